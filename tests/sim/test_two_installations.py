"""Two installations on buses of their own, and one cluster: never do both write to it.

Each write is judged in the moment in which the API server takes it, by the Lease that it needs.
"""

import asyncio
from typing import TYPE_CHECKING

import pytest

from pumice.embedded.memory_nats.server import MemoryNats
from shared.contracts.permissions import permissions
from shared.election.installation import InstallationLeadership
from tests.sim import nemeses, simulation
from tests.sim.cluster import Refused
from tests.sim.machine import SERVICES, Machine
from tests.sim.simloop import SimClock
from tests.sim.simulation import Simulation, simulate
from tests.sim.workloads import gang

if TYPE_CHECKING:
    from shared.kube.wire import Request

FIRST, SECOND = "a", "y"
"""Letters of the replicas of each."""
LEASES = {"binder": "volcano", "controller": "vc-controller-manager"}
EXPIRY_S = 22.0
"""Longer than a Lease lasts that is not renewed."""


def lease(sim: Simulation, name: str) -> dict:
    path = f"/apis/coordination.k8s.io/v1/namespaces/volcano-system/leases/{name}"
    try:
        return sim.cluster.request("GET", path)
    except Refused:
        return {"metadata": {}, "spec": {}}


def keeper(sim: Simulation, name: str) -> str:
    """Return the letter of the cache that renews a Lease, "" while nobody has it."""
    found = lease(sim, name)
    if not found["spec"].get("holderIdentity"):
        return ""
    return found["metadata"]["annotations"]["pumice.dev/held-by"][-1]


class Two:
    """The second installation, and who wrote."""

    def __init__(self) -> None:
        self.sim: Simulation | None = None
        self.writers: set[str] = set()
        """Letters of those who wrote."""

    def plant(self, sim: Simulation) -> None:
        self.sim = sim
        sim.judge.on_request.append(self.judge)
        sim.machines = [machine for machine in sim.machines if machine.instance[-1] == FIRST]
        permitted = {user: allowed.publish for user, allowed in permissions("local").items()}
        nats = MemoryNats(wall=SimClock(3.25).now, network=sim.network, permissions=permitted)
        sim.machines += [Machine(sim, service, SECOND, nats=nats) for service in SERVICES]

    def judge(self, who: str, request: "Request") -> None:
        service, _, letter = who.partition("-")
        if request.method == "GET" or service not in LEASES or "/events" in request.path:
            return
        assert self.sim is not None
        self.writers.add(letter)
        holder = keeper(self.sim, LEASES[service])
        if holder != letter:
            self.sim.judge.broken(request.doing, f"{who} wrote while {holder!r} holds the Lease")


async def gangs(sim: Simulation) -> None:
    for number in range(16):
        gang(sim, f"gang-{number}", sim.rng.randint(2, 6), run_s=sim.rng.uniform(2, 8))
        await asyncio.sleep(sim.rng.uniform(1, 5))


async def in_turns(sim: Simulation) -> None:
    """Each installation dies as a whole while it is in charge, and comes back too late."""
    for _ in range(2):
        await asyncio.sleep(sim.rng.uniform(4, 9))
        letter = keeper(sim, "volcano") or FIRST
        dead = [machine for machine in sim.machines if machine.instance[-1] == letter]
        for machine in dead:
            machine.kill()
        await asyncio.sleep(EXPIRY_S)
        for machine in dead:
            sim.restart_later(machine)


async def cut_off_from_the_cluster(sim: Simulation) -> None:
    """The cache in charge cannot reach the API server any more, all others can."""
    await asyncio.sleep(sim.rng.uniform(4, 9))
    letter = keeper(sim, "volcano") or FIRST
    (cache,) = [m for m in sim.machines if m.instance == f"cache-{letter}"]
    assert cache.transport is not None
    cache.transport.open_way.clear()
    await asyncio.sleep(EXPIRY_S + 5)
    cache.transport.open_way.set()


@pytest.mark.parametrize("nemesis", [in_turns, cut_off_from_the_cluster])
@pytest.mark.parametrize("seed", range(3))
def test_who_does_not_hold_the_lease_does_not_write(seed, nemesis, monkeypatch) -> None:
    monkeypatch.setitem(simulation.WORKLOADS, "gangs", gangs)
    monkeypatch.setitem(nemeses.NEMESES, "turns", nemesis)
    two = Two()
    report = simulate(seed, workload="gangs", nemesis_names=("turns", "delay"), plant=two.plant)
    assert report.ok, f"{report.story}\n{report.violations}"
    assert two.writers == {FIRST, SECOND}, "each had its turn"
    assert two.sim is not None
    assert lease(two.sim, "volcano")["spec"]["leaseTransitions"] >= 1


def test_two_that_heed_no_lease_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(simulation.WORKLOADS, "gangs", gangs)
    monkeypatch.setattr(InstallationLeadership, "why_not", lambda _: "")
    monkeypatch.setattr(InstallationLeadership, "held", True)
    report = simulate(0, workload="gangs", nemesis_names=(), plant=Two().plant)
    assert any("wrote while" in violation for violation in report.violations)
