"""Laws of evictions on small random clusters: preempt and reclaim."""

from collections import Counter
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pumice.plugins import BoolArray
from pumice.testing import Cluster
from services.scheduler.decide import run_actions
from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.plan import Plan
from services.scheduler.engine.session.session import Session
from services.scheduler.engine.tasks.task import Task
from services.scheduler.policy.actions import reclaim
from services.scheduler.policy.actions.evictions import UnschedulableCache
from services.scheduler.policy.actions.failed_attempts import FailedAttempts
from services.scheduler.policy.actions.victims import Preemptable, Reclaimable
from services.scheduler.policy.reservations import sharing as measure
from shared.api import kinds
from shared.model.status import TaskStatus
from tests.support.laws import count_hits, needs_hits

PLUGINS = """
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
"""
PIPELINES = (
    "enqueue, allocate, preempt, reclaim, backfill",
    "allocate, backfill, preempt, reclaim",
    "reclaim, allocate, preempt",
)
CPUS = {"n0": 6, "n1": 4}

CAPACITY = """
tiers:
- plugins: [{name: priority}, {name: conformance}]
- plugins: [{name: gang, enableReclaimable: false}, {name: predicates}, {name: capacity}]
"""

names = st.sampled_from
just = st.just
amounts = st.integers(1, 4)
jobs = st.lists(
    st.fixed_dictionaries(
        {
            "queue": names(["a", "b"]),
            "priority": names(["low", "high"]),
            "min_member": st.integers(0, 3),
            "running": st.lists(st.tuples(amounts, names(["n0", "n1"])), max_size=3),
            "pending": st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), max_size=3),
        }
    ),
    min_size=1,
    max_size=5,
)


@st.composite
def full_nodes(draw: st.DrawFn, most_room: int = 1) -> list[dict[str, Any]]:
    """Draw jobs of little priority that fill the nodes, and jobs that want the room of some."""
    residents: list[dict[str, Any]] = [
        {
            "queue": draw(names(["a", "a", "b"])),
            "priority": "low",
            "min_member": draw(st.integers(0, 3)),
            "running": [],
            "pending": [],
        }
        for _ in range(draw(st.integers(1, 3)))
    ]
    for node, cpu in CPUS.items():
        room = cpu - draw(st.integers(0, most_room))
        while room:
            size = draw(st.integers(1, min(room, 3)))
            draw(names(residents))["running"].append((size, node))
            room -= size
    return residents + draw(preemptors)


preemptors = st.lists(
    st.fixed_dictionaries(
        {
            "queue": names(["b", "b", "a"]),
            "priority": names(["high", "high", "low"]),
            "min_member": st.integers(0, 2),
            "running": just([]),
            "pending": st.lists(
                st.tuples(st.integers(1, 3), st.integers(0, 2)), min_size=1, max_size=3
            ),
        }
    ),
    min_size=1,
    max_size=3,
)


def build(
    pipeline: str,
    job_list: list[dict[str, Any]],
    *,
    aware: bool = False,
    volcano: bool = False,
    whole: bool = True,
    plugins: str = PLUGINS,
) -> Cluster:
    conf = f'actions: "{pipeline}"{plugins}volcanoEvictions: {volcano}\nconfigurations:\n'
    conf += f"- {{name: preempt, arguments: {{enableTopologyAwarePreemption: {aware}}}}}\n"
    for name in ("gangpreempt", "gangreclaim"):
        conf += f"- {{name: {name}, arguments: {{allowWholeBundle: {whole}}}}}\n"
    world = Cluster(conf, queue=False)
    for name, weight, deserved in (("a", 1, 3), ("b", 3, 7)):
        world.queue(name, weight=weight, deserved={"cpu": str(deserved)})
    for name, cpu in CPUS.items():
        world.node(name, cpu=str(cpu))
    for name, value in (("low", 1), ("high", 100)):
        world.put(kinds.PRIORITYCLASS, {"metadata": {"name": name, "uid": name}, "value": value})
    for number, job in enumerate(job_list):
        group = f"j{number}"
        world.group(
            group,
            queue=job["queue"],
            min_member=job["min_member"],
            phase="Running",
            priorityClassName=job["priority"],
        )
        for index, (cpu, node) in enumerate(job["running"]):
            deleting = index >= job.get("stay", index + 1)
            world.pod(f"{group}-{index}", group, cpu=str(cpu), node=node, deleting=deleting)
        for index, (cpu, priority) in enumerate(job["pending"], start=10):
            asked = str(cpu) if cpu else ""
            world.pod(f"{group}-{index}", group, cpu=asked, priority=priority)
    return world


some = st.one_of(full_nodes(), full_nodes(), jobs)
worlds = st.builds(build, names(PIPELINES), some, aware=st.booleans(), volcano=st.booleans())


def waiting(world: Cluster) -> tuple[Plan, dict[str, tuple[str, str]]]:
    """Return the plan, and the status and node of every task before the session is closed."""
    session = world.session()
    try:
        run_actions(session, world.config)
        standing = {t.key: (t.status.label, t.node) for t in world.cluster_state.tasks()}
    finally:
        session.close()
    return world.decide(), standing


@needs_hits(at_least=60)
@settings(max_examples=150, deadline=None)
@given(worlds)
def test_nobody_is_evicted_but_for_a_pod_that_then_waits_or_is_placed(world: Cluster):
    """It waits where its victims were, unless backfill placed it elsewhere meanwhile (A04)."""
    plan, standing = waiting(world)
    count_hits(plan.evictions)
    nominated = {n.uid: n.node for n in plan.nominations}
    for eviction in plan.evictions:
        assert standing[eviction.pod] == ("Releasing", eviction.node)
        status, node = standing[eviction.preemptor]
        assert status in {"Binding", "Allocated"} or (status, node) == ("Pipelined", eviction.node)
        assert nominated[eviction.preemptor_uid] == eviction.node
    assert max(Counter(e.uid for e in plan.evictions).values(), default=1) == 1


@needs_hits(at_least=60)
@settings(max_examples=150, deadline=None)
@given(worlds)
def test_what_waits_fits_once_the_victims_are_gone(world: Cluster):
    session = world.session()
    try:
        before = [session.ledger.future_idle(dim).min(initial=0) for dim in range(2)]
        run_actions(session, world.config)
        count_hits(session.evictions)
        after = [session.ledger.future_idle(dim).min(initial=0) for dim in range(2)]
    finally:
        session.close()
    # nothing that was decided takes a node below zero; facts may have
    assert all(now >= min(then, 0) for then, now in zip(before, after, strict=True))


@needs_hits(at_least=40)
@settings(max_examples=100, deadline=None)
@given(worlds)
def test_a_session_with_evictions_leaves_the_cluster_state_as_it_was(world: Cluster):
    cluster_state = world.cluster_state
    ledger = cluster_state.nodes.ledger

    def state() -> list[Any]:
        arrays = [ledger.used, ledger.releasing, ledger.pipelined, ledger.evicted, ledger.scoring]
        tasks = sorted((t.key, t.status, t.node) for t in cluster_state.tasks())
        sums = {k: v.tolist() for k, v in cluster_state.jobs.rollup(measure).sums().items()}
        held = sorted(
            (j.key, j.claimed.tolist(), j.requested.tolist()) for j in cluster_state.jobs.all()
        )
        return [[a.tolist() for a in arrays], tasks, sums, held, ledger.at_rest]

    before = state()
    count_hits(world.decide().evictions)
    assert state() == before
    assert cluster_state.audit() == []


GANG_HAS_THE_SAY = """
tiers:
- plugins: [{name: priority, enablePreemptable: false}, {name: gang}]
- plugins: [{name: drf, enablePreemptable: false}, {name: predicates}]
- plugins: [{name: proportion, enableReclaimable: false}, {name: nodeorder}]
"""


@needs_hits(at_least=50)
@settings(max_examples=100, deadline=None)
@given(
    st.builds(
        build, names(PIPELINES), full_nodes(), volcano=st.booleans(), plugins=just(GANG_HAS_THE_SAY)
    )
)
def test_no_gang_is_cut_below_its_minimum_where_gang_has_the_say(world: Cluster):
    """A ready job stays ready (PL01).

    ⚠ With other plugins beside it its word may be lost: where priority and gang name nobody in
    common, a third plugin's list or the next tier decides (SS06).
    """
    plan = world.decide()
    count_hits(plan.evictions)
    lost = Counter(eviction.job for eviction in plan.evictions)
    won = Counter({gang.job: len(gang.binds) for gang in plan.binds})
    for key, count in lost.items():
        job = world.cluster_state.jobs.get(key)
        assert job is not None
        assert len(job.by_status[TaskStatus.RUNNING]) + won[key] - count >= job.min_available


@needs_hits(at_least=35)
@settings(max_examples=100, deadline=None)
@given(worlds)
def test_cycles_come_to_rest_while_the_victims_are_on_their_way(world: Cluster):
    """As long as no fact changes, what was asked for is enough: nobody else is evicted for it.

    Two cycles settle what the first one started (its binds change shares); then nobody is placed
    or evicted any more. ⚠ A phase may go on changing: reclaim before allocate promises nodes to
    best-effort pods, which unmakes a gang that they had completed (SS04).
    """
    plans = [world.step() for _ in range(6)]
    count_hits(*(plan.evictions for plan in plans))
    plan = plans[-1]
    assert (plan.binds, plan.evictions) == ((), ())


residents = st.lists(st.tuples(amounts, st.integers(0, 3)), min_size=1, max_size=6)


@needs_hits(at_least=90)
@settings(max_examples=150, deadline=None)
@given(residents, st.integers(1, 12), names(["preempt", "reclaim"]))
def test_each_victim_is_needed(there: list[tuple[int, int]], wanted: int, action: str):
    """Were any one of them to stay, the preemptor would not fit."""
    conf = f"""
actions: "allocate, {action}"
tiers:
- plugins: [{{name: priority}}]
- plugins: [{{name: predicates}}, {{name: proportion, enabledAllocatable: false}}]
"""
    cpu = max(wanted, sum(size for size, _ in there))
    world = Cluster(conf, queue=False).node("n0", cpu=str(cpu)).queue("a").queue("b", weight=50)
    world.put(kinds.PRIORITYCLASS, {"metadata": {"name": "high", "uid": "high"}, "value": 9})
    world.group("j", queue="a", min_member=0, phase="Running")
    for index, (size, priority) in enumerate(there):
        world.pod(f"j-{index}", "j", cpu=str(size), node="n0", priority=priority)
    queue = "a" if action == "preempt" else "b"
    world.group("t", queue=queue, priorityClassName="high").pod("t-0", "t", cpu=str(wanted))
    plan = world.decide()
    count_hits(plan.evictions)
    sizes = {f"ns/j-{index}": size for index, (size, _) in enumerate(there)}
    left = cpu - sum(sizes.values()) + sum(sizes[e.pod] for e in plan.evictions) - wanted
    assert left >= 0 or not plan.evictions
    assert all(sizes[e.pod] > left for e in plan.evictions)


def live(world: Cluster, cycles: int) -> int:
    """Return how many cycles at the end were quiet, when binds happen and victims come back.

    A victim dies at once and its job's controller replaces it by a pending pod of the same kind.
    """
    quiet = 0
    plans = []
    for cycle in range(cycles):
        plan = world.step()
        plans.append(plan)
        quiet = 0 if plan.binds or plan.evictions else quiet + 1
        for bind in (bind for gang in plan.binds for bind in gang.binds):
            _replace(world, bind.uid, node=bind.node, uid=bind.uid)
        for eviction in plan.evictions:
            _replace(world, eviction.uid, node="", uid=f"{eviction.pod}-{cycle}")
    count_hits(*(plan.evictions for plan in plans))
    return quiet


def _replace(world: Cluster, before: str, *, node: str, uid: str) -> None:
    task = world.cluster_state.task(before)
    assert task is not None
    milli = int(task.task_class.request[0])
    group = task.job_key.partition("/")[2]
    world.delete(kinds.POD, task.key, before)
    cpu = f"{milli}m" if milli else ""
    world.pod(task.name, group, cpu=cpu, node=node, uid=uid, priority=task.priority)


@needs_hits(at_least=12)
@settings(max_examples=60, deadline=None)
@given(worlds)
def test_cycles_come_to_rest_though_every_victim_comes_back(world: Cluster):
    """No ping-pong: nobody takes back what was taken from it, however often it asks."""
    assert live(world, cycles=15) >= 3


@st.composite
def crowds(draw: st.DrawFn) -> Cluster:
    """Draw full nodes on which several equal jobs want room."""
    many = [
        job
        for preemptor in draw(preemptors)
        for job in [{**preemptor, "min_member": draw(st.integers(1, 4))}] * draw(st.integers(1, 3))
    ]
    room = draw(names([1, 3, 4]))
    residents = [job for job in draw(full_nodes(room)) if job["running"]]
    for job in residents:
        job["stay"] = draw(names([0, 1, 9, 9]))  # the other pods are being deleted
    return build(
        draw(names(PIPELINES)),
        residents + many,
        volcano=draw(st.booleans()),
        plugins=draw(names([PLUGINS, CAPACITY])),
    )


@needs_hits(at_least=60)
@settings(max_examples=200, deadline=None)
@given(crowds())
def test_what_spares_a_search_changes_nothing_that_is_decided_or_said(world: Cluster):
    """Equal jobs fail alike, and nodes without a victim by the word of plugins have none."""
    spared = []
    would_fail = FailedAttempts.would_fail

    def counted(failed: FailedAttempts, job: Job, tasks: Sequence[Task]) -> bool:
        stands = would_fail(failed, job, tasks)
        spared.extend([job] if stands else [])
        return stands

    def everywhere(session: Session, *_: object) -> BoolArray:
        return np.ones(session.ledger.size, dtype=np.bool_)

    with (
        patch.object(FailedAttempts, "would_fail", counted),
        patch.object(reclaim, "_FRUITLESS_NODES", 0),
    ):
        short = world.decide()
    with (
        patch.object(FailedAttempts, "would_fail", lambda *_: False),
        patch.object(UnschedulableCache, "knows", lambda *_: False),
        patch.object(Preemptable, "nodes", lambda its, _: everywhere(its._session)),
        patch.object(Reclaimable, "nodes", lambda its, _: everywhere(its._session)),
    ):
        long = world.decide()
    count_hits(spared, short.evictions)
    assert short == msgspec.structs.replace(long, cycle=short.cycle)
