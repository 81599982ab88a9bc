"""How often the API of JetStream and the API server are asked: no more than the work needs."""

import asyncio
from collections import Counter

import pytest

from tests.sim import simulation, workloads
from tests.sim.request_counts import NOT_COUNTED, RequestCounts
from tests.sim.simulation import Simulation, simulate
from tests.sim.wire import CoreTransport
from tests.support import world

MOST_PER_SECOND = 44
"""Of one process, at its start: the declarer looks for all streams and consumers, makes
them, and looks at the streams again."""
MOST_LATER = 16
"""Who declares streams and consumers looks at all of them every few seconds."""
STARTED_S = 5


def played(
    monkeypatch: pytest.MonkeyPatch, *, gangs: int, size: int, delay_s: float = 0.00101
) -> tuple[RequestCounts, float]:
    """Play so many gangs at once on a calm cluster that has room; return the virtual time too."""
    simulations: list[Simulation] = []

    async def mass(sim: Simulation) -> None:
        sim.network.mean_s = delay_s
        for number in range(gangs * size // 50):
            sim.cluster.create("nodes", world.node(f"more-{number}", cpu="64"))
        await asyncio.sleep(STARTED_S)
        for number in range(gangs):
            workloads.gang(sim, f"mass-{number}", size, run_s=15)

    monkeypatch.setitem(simulation.WORKLOADS, "mass", mass)
    report = simulate(1, workload="mass", nemesis_names=[], plant=simulations.append)
    assert report.ok, report.violations
    return simulations[0].asked, report.virtual_s


def test_requests_to_jetstream_do_not_grow_with_the_load(monkeypatch):
    few, few_s = played(monkeypatch, gangs=5, size=4)
    many, many_s = played(monkeypatch, gangs=20, size=12)
    for asked in (few, many):
        assert asked.most_since(0) <= MOST_PER_SECOND
        assert asked.most_since(STARTED_S) <= MOST_LATER
    for operation in few.operations.keys() | many.operations.keys():
        if operation not in NOT_COUNTED:
            per_second = few.operations[operation] / few_s
            assert many.operations[operation] <= 1.25 * per_second * many_s + 5, operation


def test_statuses_cost_one_request_each_and_pods_on_their_way_none(monkeypatch):
    asked: Counter[str] = Counter()
    exchange = CoreTransport.exchange

    async def counted(self, request):
        if self._who.startswith("binder"):
            kind = next((k for k in ("podgroups", "pods", "queues") if k in request.path), "")
            status = kind == "podgroups" or request.path.endswith("/status")
            asked[f"{request.method} {kind}{' status' if status else ''}"] += 1
        return await exchange(self, request)

    monkeypatch.setattr(CoreTransport, "exchange", counted)
    gangs = 10
    played(monkeypatch, gangs=gangs, size=10, delay_s=0.03)
    read = sum(n for what, n in asked.items() if what.startswith(("GET p", "GET q")))
    assert asked["PATCH pods status"] == 0
    # One when it runs, and one when it has ended (ADR 35). With messages of 30 ms some cross a
    # change of the group: these are refused, read and written again.
    assert read <= gangs / 5
    assert 0 < asked["PATCH podgroups status"] <= 2 * gangs + 2 * read
