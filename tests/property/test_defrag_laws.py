"""Laws of moves: what they are for starts, what moves runs again, and no move is left over."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from pumice.testing import Cluster, binds_of, evictions_of
from services.scheduler.engine.plan import Eviction, Plan
from shared.api import kinds
from shared.api.time import format_seconds
from shared.model.status import TaskStatus
from tests.support.laws import count_hits, needs_hits

NOW = 1_800_000_000.0
CONF = """
actions: "enqueue, allocate, backfill, defrag"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: predicates}, {name: proportion}, {name: nodeorder}, {name: SCORE}]
configurations:
- name: defrag
  arguments: {schedule: '@every 1m', maxMoves: 6, minRunningTime: RAN}
"""
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}


class Gang(NamedTuple):
    """A gang: CPUs of each pod, nodes of the pods (none: it waits), its minimum, its cost."""

    cpu: int
    nodes: tuple[int, ...]
    least: int
    cost: int
    waiting: int = 0


running = st.builds(
    Gang,
    cpu=st.integers(1, 2),
    nodes=st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple),
    least=st.integers(1, 3),
    cost=st.integers(0, 2),
    waiting=st.just(0),
)
waiting = st.builds(
    Gang,
    cpu=st.integers(2, 5),
    nodes=st.just(()),
    least=st.just(0),
    cost=st.just(0),
    waiting=st.integers(1, 2),
)


class Fleet(Cluster):
    """A drawn cluster whose evicted pods come again, and that does as plans say."""

    def __init__(
        self, score: str, nodes: list[int], gangs: Iterable[Gang], *, ran: str = "10m"
    ) -> None:
        super().__init__(CONF.replace("SCORE", score).replace("RAN", ran))
        self.cluster_state.memory["defrag"] = NOW - 100
        self.free = {f"n{at}": cpu for at, cpu in enumerate(nodes)}
        self.cpus: dict[str, int] = {}
        self.group_of: dict[str, str] = {}
        for name, cpu in self.free.items():
            self.node(name, cpu=str(cpu))
        for number, gang in enumerate(gangs):
            self._add(f"g{number}", gang)

    def _add(self, name: str, gang: Gang) -> None:
        nodes = [f"n{at % len(self.free)}" for at in gang.nodes]
        placed = []
        for node in nodes:
            if self.free[node] >= gang.cpu:
                self.free[node] -= gang.cpu
                placed.append(node)
        if not placed and not gang.waiting:
            return
        least = gang.waiting or min(gang.least, len(placed))
        self.group(name, min_member=least, phase="Inqueue" if gang.waiting else "Running")
        for number, node in enumerate(placed or [""] * gang.waiting):
            pod = f"{name}-{number}"
            self.cpus[pod], self.group_of[pod] = gang.cpu, name
            self.show(pod, node, ran_s=3600, cost=gang.cost)

    def show(self, pod: str, node: str = "", *, ran_s: float = 0, cost: int = 0) -> None:
        notes = {"pumice.dev/eviction-cost": str(cost)}
        metadata = {"ownerReferences": [OWNER], "annotations": notes}
        status = {"startTime": format_seconds(NOW - ran_s)} if node else {}
        name = pod.rstrip("+")
        self.pod(
            name, self.group_of[name], cpu=str(self.cpus[name]), node=node, status=status,
            uid=f"uid-{pod}", metadata=metadata,
        )  # fmt: skip

    def carry_out(self, moved: Iterable[Eviction], plan: Plan) -> None:
        """Nominate as a plan says; let pods leave, and come again."""
        for nomination in plan.nominations:
            self.cluster_state.assume_nomination("n", nomination.uid, nomination.node)
        for eviction in moved:
            self.delete(kinds.POD, eviction.pod, eviction.uid)
        for eviction in moved:
            self.show(f"{eviction.uid.removeprefix('uid-')}+")

    def settle(self) -> None:
        """Run cycles until nothing is bound any more."""
        for _ in range(10):
            plan = self.decide(now=NOW + 1)
            bound = binds_of(plan)
            if not bound:
                return
            jobs = self.cluster_state.jobs.all()
            named = {task.name: task.uid for job in jobs for task in job.tasks.values()}
            for pod, node in bound.items():
                self.show(named[pod].removeprefix("uid-"), node)
        raise AssertionError("the cluster does not come to rest")

    def waits(self) -> set[str]:
        """Return the pods that wait."""
        jobs = self.cluster_state.jobs.all()
        return {t.name for j in jobs for t in j.by_status[TaskStatus.PENDING].values()}


scores = st.sampled_from(["binpack", "drf"])
sizes = st.lists(st.integers(3, 6), min_size=2, max_size=4)
many = st.lists(running, min_size=1, max_size=6)


def served(plan: Plan) -> set[str]:
    """Return the gangs that pods move for."""
    return {e.preemptor.partition("/")[2].rpartition("-")[0] for e in plan.evictions}


@needs_hits(at_least=20)
@settings(max_examples=200, deadline=None)
@given(scores, sizes, many, st.lists(waiting, min_size=1, max_size=3))
def test_the_gangs_start_and_what_moved_runs_again(
    score: str, nodes: list[int], gangs: list[Gang], waits: list[Gang]
) -> None:
    fleet = Fleet(score, nodes, [*gangs, *waits])
    plan = fleet.decide(now=NOW)
    count_hits(plan.evictions)
    for pod, node in binds_of(plan).items():
        fleet.show(pod, node)
    before = fleet.waits()
    for name, leave in Counter(fleet.group_of[pod] for pod in evictions_of(plan)).items():
        job = fleet.job(name)
        assert job.task_count == 1 or job.ready_count - leave >= job.min_available
    fleet.carry_out(plan.evictions, plan)
    fleet.settle()
    moved = {eviction.pod.partition("/")[2] for eviction in plan.evictions}
    assert not moved & fleet.waits()
    assert all(fleet.job(name).is_ready for name in served(plan))
    assert fleet.waits() <= before

    fleet.cluster_state.memory["defrag"] = NOW - 100
    assert not fleet.decide(now=NOW + 60).evictions


@needs_hits(at_least=20)
@settings(max_examples=200, deadline=None)
@given(scores, sizes, many, waiting)
def test_no_move_can_be_left_out(
    score: str, nodes: list[int], gangs: list[Gang], waits: Gang
) -> None:
    plan = Fleet(score, nodes, [*gangs, waits]).decide(now=NOW)
    count_hits(plan.evictions[1:])
    for left_out in plan.evictions:
        fleet = Fleet(score, nodes, [*gangs, waits])
        for pod, node in binds_of(plan).items():
            fleet.show(pod, node)
        fleet.carry_out([each for each in plan.evictions if each is not left_out], plan)
        fleet.settle()
        moved = {each.pod.partition("/")[2] for each in plan.evictions}
        gang_waits = not all(fleet.job(name).is_ready for name in served(plan))
        assert gang_waits or moved & fleet.waits()


@needs_hits(at_least=20)
@settings(max_examples=150, deadline=None)
@given(scores, sizes, many, st.lists(waiting, min_size=1, max_size=3))
def test_rounds_end_although_pods_may_move_at_any_age(
    score: str, nodes: list[int], gangs: list[Gang], waits: list[Gang]
) -> None:
    """Each round starts a gang that waited, so there are no more rounds than such gangs."""
    fleet = Fleet(score, nodes, [*gangs, *waits], ran="0s")
    started = set[str]()
    moved = 0
    for _ in range(len(waits) + 1):
        fleet.cluster_state.memory["defrag"] = NOW - 100
        plan = fleet.decide(now=NOW)
        for pod, node in binds_of(plan).items():
            fleet.show(pod, node)
        if not plan.evictions:
            break
        moved += len(plan.evictions)
        assert not served(plan) & started
        started |= served(plan)
        fleet.carry_out(plan.evictions, plan)
        fleet.settle()
        assert all(fleet.job(name).is_ready for name in started)
    else:
        raise AssertionError("rounds do not end")
    count_hits(range(moved))
