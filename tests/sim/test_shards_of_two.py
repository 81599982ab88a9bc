"""Two schedulers with a shard each, one of which dies: no node is both of theirs at once (CA12).

Each installation has a bus and a Lease of its own. Each binding is judged in the moment in which
the API server takes it, by what the NodeShards show then.
"""

import asyncio
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from pumice.embedded.memory_nats.server import MemoryNats
from services.controller.adapters.takeovers import ShardTakeovers
from services.scheduler.engine.state.shards import NodeShards
from shared.contracts.permissions import permissions
from tests.sim import simulation
from tests.sim.machine import SERVICES, Machine
from tests.sim.simloop import SimClock
from tests.sim.simulation import Report, Simulation, simulate
from tests.sim.workloads import NODE_CPU, NODES, gang

if TYPE_CHECKING:
    from shared.kube.wire import Request

OWN, OTHER = "volcano", "second"
"""Names of the schedulers, of their NodeShards and of the Leases that they act under."""
LETTERS = {"a": OWN, "y": OTHER}
BOTH = (OWN, OTHER)
QUEUES = {OWN: 1000, OTHER: 1}
"""Weights: what waits for the scheduler that died takes no share from the other one."""
SHARDS = ("second:agent:0.0:1.0:false:0:2", "volcano:volcano:0.0:1.0:false:0:100")
"""The second one has two nodes, the first one the others."""
DEALT_S, TAKEN_S = 30.0, 60.0
"""How long it may take until nodes are dealt out, and until those of one that died are used."""
HARD: dict[str, Any] = {"scheduler_sharding_mode": "hard"}
FLAGS: dict[str, dict[str, dict[str, Any]]] = {
    "a": {
        "cache": {"scheduler_name": BOTH},
        "scheduler": HARD,
        "controller": {
            "controllers": ("*",),
            "scheduler_name": BOTH,
            "scheduler_configs": SHARDS,
        },
    },
    "y": {
        "cache": {
            "scheduler_name": (OTHER,),
            "leader_elect_resource_name": OTHER,
            "leader_elect_controller_resource_name": f"{OTHER}-controller",
        },
        "scheduler": {**HARD, "scheduler_name": (OTHER,), "scheduler_sharding_name": OTHER},
        "binder": {"scheduler_name": (OTHER,)},
        "controller": {"controllers": ("-sharding-controller",)},
    },
}
_BINDS = re.compile(r"/api/v1/namespaces/[^/]+/pods/[^/]+/binding")


class Shards:
    """The two installations, and which nodes they have bound pods to."""

    def __init__(self) -> None:
        self.sim: Simulation | None = None
        self.bound: set[tuple[str, str]] = set()
        """Each scheduler with each node that it has bound a pod to."""
        self._by: dict[str, set[str]] = {}
        """Schedulers that have bound a pod to a node since both claim it."""

    def plant(self, sim: Simulation) -> None:
        self.sim = sim
        sim.judge.on_request.append(self.judge)
        sim.cluster.watch("nodeshards", lambda *_: self._claims_changed())
        permitted = {user: allowed.publish for user, allowed in permissions("local").items()}
        nats = MemoryNats(wall=SimClock(3.25).now, network=sim.network, permissions=permitted)
        sim.machines = [
            Machine(sim, service, letter, nats=server, flags=FLAGS[letter].get(service))
            for letter, server in (("a", sim.nats), ("y", nats))
            for service in SERVICES
        ]
        for name, weight in QUEUES.items():
            queue = {
                "apiVersion": "scheduling.volcano.sh/v1beta1",
                "kind": "Queue",
                "metadata": {"name": name},
                "spec": {"weight": weight, "reclaimable": True},
            }
            sim.cluster.create("queues", queue)

    def in_use(self, name: str) -> set[str]:
        """Return the nodes that a NodeShard shows in use."""
        assert self.sim is not None
        for shard in self.sim.cluster.items("nodeshards"):
            if shard["metadata"]["name"] == name:
                return set(shard.get("status", {}).get("nodesInUse", ()))
        return set()

    def _claims_changed(self) -> None:
        both = self.in_use(OWN) & self.in_use(OTHER)
        self._by = {node: self._by.get(node, set()) for node in both}

    def judge(self, who: str, request: "Request") -> None:
        if request.method != "POST" or not _BINDS.fullmatch(request.path):
            return
        assert self.sim is not None
        scheduler = LETTERS[who[-1]]
        node = json.loads(request.body or b"")["target"]["name"]
        self.bound.add((scheduler, node))
        if node not in self.in_use(scheduler):
            self.sim.judge.broken(
                request.doing, f"{scheduler} binds to {node}, which it does not claim"
            )
        if node in self._by:
            self._by[node].add(scheduler)
            if len(self._by[node]) > 1:
                self.sim.judge.broken(request.doing, f"both schedulers bind to {node}")


async def until(is_so: Callable[[], bool], *, within_s: float) -> bool:
    """Wait until something is so; tell whether it came."""
    loop = asyncio.get_running_loop()
    end = loop.time() + within_s
    while loop.time() < end and not is_so():
        await asyncio.sleep(0.5)
    return is_so()


def is_dealt(shards: Shards) -> bool:
    """Tell whether each scheduler has its nodes in use."""
    return (len(shards.in_use(OWN)), len(shards.in_use(OTHER))) == (NODES - 2, 2)


async def some_gangs(sim: Simulation, part: str) -> None:
    """Submit gangs of both schedulers."""
    for number in range(3):
        for name in sim.rng.sample(BOTH, 2):
            size, run_s = sim.rng.randint(1, 4), sim.rng.uniform(1, 6)
            gang(
                sim, f"{part}-{name}-{number}", size, cpu=2, run_s=run_s,
                schedulerName=name, queue=name,
            )  # fmt: skip
        await asyncio.sleep(sim.rng.uniform(0, 3))


def are_placed(sim: Simulation, part: str) -> bool:
    """Tell whether the second scheduler has placed its gangs of one part."""
    phases = {sim.judge.phase(f"users/{part}-{OTHER}-{number}") for number in range(3)}
    return phases <= {"Running", "Completing", "Completed"}


def kill(sim: Simulation, letter: str, *services: str) -> list[Machine]:
    """Kill services of one installation; returns those that ran."""
    dead = [m for m in sim.machines if m.instance[-1] == letter and m.service in services]
    for machine in dead:
        machine.kill()
    return dead


async def lives_and_deaths(sim: Simulation, shards: Shards) -> None:
    """One scheduler dies for a moment, then the second one with its cache for long."""
    if not await until(lambda: is_dealt(shards), within_s=DEALT_S):
        sim.judge.broken("nodeshards", "the nodes are not dealt out")
    await some_gangs(sim, "first")
    for machine in kill(sim, sim.rng.choice(sorted(LETTERS)), "scheduler"):
        sim.restart_later(machine)
    await some_gangs(sim, "then")
    # A gang that was admitted and not placed reserves room in the cluster, also when its scheduler
    # is dead, and the gang that shows which nodes are used needs all of them.
    if not await until(lambda: are_placed(sim, "then"), within_s=TAKEN_S):
        sim.judge.broken("nodeshards", f"{OTHER} has not placed its gangs")
    had = shards.in_use(OTHER)
    dead = kill(sim, "y", "scheduler", "cache", *sim.rng.choice(((), ("binder",))))
    shards.bound.clear()
    gang(sim, "whole", NODES, cpu=NODE_CPU - 1, run_s=2.0, queue=OWN)

    def are_used() -> bool:
        return {(OWN, node) for node in had} <= shards.bound

    if not had or not await until(are_used, within_s=TAKEN_S):
        sim.judge.broken("nodeshards", f"{OWN} has not used the nodes {sorted(had)} of the dead")
    for machine in dead:
        sim.restart_later(machine)
    await some_gangs(sim, "last")
    if not await until(lambda: is_dealt(shards), within_s=TAKEN_S):
        sim.judge.broken("nodeshards", f"{OTHER} has not got its nodes back")


def play(
    seed: int, troubles: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> tuple[Report, Shards]:
    """Play both installations; returns how it ended, and who has bound pods since the death."""
    shards = Shards()

    async def shared_out(sim: Simulation) -> None:
        await lives_and_deaths(sim, shards)

    monkeypatch.setitem(simulation.WORKLOADS, "shards", shared_out)
    report = simulate(seed, workload="shards", nemesis_names=troubles, plant=shards.plant)
    return report, shards


@pytest.mark.parametrize("troubles", [("delay",), ("reorder", "watch_gap")], ids="-".join)
@pytest.mark.parametrize("seed", range(2))
def test_the_nodes_of_a_scheduler_that_dies_are_used_by_one_at_a_time_ca12(
    seed: int, troubles: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    report, shards = play(seed, troubles, monkeypatch)
    assert report.ok, f"{report.story}\n{report.violations}"
    assert {name for name, _ in shards.bound} == set(BOTH), "each had its turn"


def at_once(shards: NodeShards, name: str) -> frozenset[str]:
    """Return the nodes that a scheduler is to have, though another may have some still."""
    own = shards.get(name)
    return own.desired if own else frozenset()


async def none_has_died(_: ShardTakeovers, __: object) -> frozenset[str]:
    """Stand for a controller that looks at no Lease."""
    return frozenset()


@pytest.mark.parametrize(
    ("part", "name", "bug", "wanted"),
    [
        pytest.param(NodeShards, "usable", at_once, "which it does not claim", id="no claim"),
        pytest.param(
            ShardTakeovers, "absent", none_has_died, "has not used the nodes", id="no look"
        ),
    ],
)
def test_a_bug_in_how_nodes_change_hands_is_found(
    part: type, name: str, bug: object, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part, name, bug)
    report, _ = play(0, (), monkeypatch)
    assert any(wanted in violation for violation in report.violations), report.violations
