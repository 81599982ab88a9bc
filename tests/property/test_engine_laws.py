"""Laws of the engine on small random clusters."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pumice.testing import Cluster, binds_of
from services.scheduler.decide import run_actions
from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.jobs.rollups import allocated_of
from services.scheduler.engine.session.session import Session
from services.scheduler.engine.state.cluster_state import ClusterState
from services.scheduler.policy.reservations import sharing as measure
from shared.api import kinds
from shared.contracts.messages import Result
from shared.model.status import TaskStatus
from tests.support.laws import printed_under_hash_seeds

CONF = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins:
  - {name: overcommit}
  - {name: drf}
  - {name: predicates}
  - {name: proportion}
  - {name: nodeorder}
  - {name: binpack}
"""

names = st.sampled_from
nodes = st.lists(
    st.fixed_dictionaries(
        {
            "cpu": names(["1", "2", "4", "7500m"]),
            "memory": names(["2Gi", "4Gi", "8Gi"]),
            "pods": names(["2", "5", "20"]),
            "labels": names([{}, {"disk": "ssd"}]),
            "taints": names([[], [{"key": "k", "effect": "PreferNoSchedule"}]]),
        }
    ),
    min_size=1,
    max_size=5,
)
jobs = st.lists(
    st.fixed_dictionaries(
        {
            "min_member": st.integers(0, 4),
            "queue": names(["a", "b", "nowhere"]),
            "phase": names(["Pending", "Inqueue", "Running"]),
            "minResources": names([{}, {"cpu": "1"}, {"cpu": "3", "memory": "1Gi"}]),
            "pods": st.lists(
                st.fixed_dictionaries(
                    {
                        "cpu": names(["", "500m", "1", "3"]),
                        "memory": names(["", "1Gi"]),
                        "node": names(["", "", "", "n0", "n1"]),
                        "role": names(["", "ps", "w"]),
                        "deleting": names([False, False, True]),
                    }
                ),
                max_size=5,
            ),
        }
    ),
    max_size=4,
)


def build(node_list: list[dict[str, Any]], job_list: list[dict[str, Any]]) -> Cluster:
    world = Cluster(CONF, queue=False).queue("a", weight=1, capability={"cpu": "6"})
    world.queue("b", weight=2, guarantee={"resource": {"cpu": "1"}})
    for number, node in enumerate(node_list):
        world.node(f"n{number}", **node)
    for number, job in enumerate(job_list):
        group = {k: v for k, v in job.items() if k != "pods"}
        world.group(f"g{number}", **group)
        for index, pod in enumerate(job["pods"]):
            world.pod(f"g{number}-{index}", f"g{number}", **pod)
    return world


def fingerprint(cluster_state: ClusterState) -> tuple[Any, ...]:
    """Everything that a session may change."""
    ledger = cluster_state.nodes.ledger
    arrays = (ledger.used, ledger.releasing, ledger.pipelined, ledger.evicted, ledger.scoring)
    waiting = ledger.releasing[2].any() or ledger.pipelined[2].any()
    assert ledger.at_rest is not bool(waiting)
    return (
        [array.tobytes() for array in arrays],
        sorted((t.uid, t.status, t.node) for t in cluster_state.tasks()),
        sorted(job_print(job) for job in cluster_state.jobs.all()),
        sorted(cluster_state.nodes.port_holders),
    )


def job_print(job: Job) -> tuple[Any, ...]:
    return (
        job.key,
        job.phase,
        job.conditions,
        [sorted(tasks) for tasks in job.by_status],
        sorted((role, tuple(counts)) for role, counts in job.roles.items() if any(counts)),
        job.allocated.tobytes(),
        job.requested.tobytes(),
        job.pending_best_effort,
    )


@given(nodes, jobs)
@settings(max_examples=150, deadline=None)
def test_a_cycle_leaves_the_cluster_state_as_it_was_to_the_bit(node_list, job_list):
    world = build(node_list, job_list)
    before = fingerprint(world.cluster_state)
    world.decide()
    assert fingerprint(world.cluster_state) == before
    assert world.cluster_state.audit() == []


@given(nodes, jobs)
@settings(max_examples=80, deadline=None)
def test_what_a_job_knows_of_its_tasks_stays_right_while_they_are_placed(node_list, job_list):
    world = build(node_list, job_list)
    session = world.session()
    try:
        run_actions(session, world.config)
        for job in world.cluster_state.jobs.all():
            assert job_print(job) == job_print(recounted(job))
    finally:
        session.close()


@given(nodes, jobs, st.booleans(), st.booleans())
@settings(max_examples=100, deadline=None)
def test_a_trial_that_is_not_kept_is_undone_to_the_bit(node_list, job_list, waiting, kept_inside):
    world = build(node_list, job_list)
    session = world.session()
    try:
        before = fingerprint(world.cluster_state)
        with session.trial():
            for job in session.jobs:
                with session.trial() as keep:
                    place_first_run(session, job, waiting=waiting)
                    if kept_inside:
                        keep()  # undone by the outer block all the same
        assert fingerprint(world.cluster_state) == before
    finally:
        session.close()


def place_first_run(session: Session, job: Job, *, waiting: bool) -> None:
    """Place what fits of the pending tasks that are like the first."""
    pending = list(job.by_status[TaskStatus.PENDING].values())
    run = [t for t in pending if (t.task_class, t.role) == (pending[0].task_class, pending[0].role)]
    columns = session.choose(run[0].task_class, len(run), waiting=waiting) if run else []
    if columns:
        session.place(job, run[: len(columns)], columns, waiting=waiting)


@given(nodes, jobs)
@settings(max_examples=150, deadline=None)
def test_no_decision_exceeds_a_node_and_gangs_are_whole(node_list, job_list):
    world = build(node_list, job_list)
    plan = world.step()
    ledger = world.cluster_state.nodes.ledger
    touched = {bind.node for gang in plan.binds for bind in gang.binds}
    for name in sorted(touched):
        column = world.cluster_state.nodes.column(name)
        bound = [
            t for t in world.cluster_state.nodes.tasks_on(name) if t.status is TaskStatus.BINDING
        ]
        if any(not task.task_class.best_effort for task in bound):
            over = ledger.used[:, column] > ledger.allocatable[:, column]
            assert not over.any(), name
        assert ledger.pods(column) <= ledger.allocatable[2, column]
    for gang in plan.binds:
        job = world.cluster_state.jobs.get(gang.job)
        assert job.is_ready, gang.job
        assert job.queue != "nowhere"
    uids = [bind.uid for gang in plan.binds for bind in gang.binds]
    assert len(uids) == len(set(uids))


@given(nodes, jobs, st.integers(0, 5))
@settings(max_examples=80, deadline=None)
def test_the_same_facts_and_seed_give_the_same_plan(node_list, job_list, seed):
    first, second = build(node_list, job_list), build(node_list, job_list)
    assert first.decide(seed=seed) == second.decide(seed=seed)


@given(nodes, jobs)
@settings(max_examples=80, deadline=None)
def test_cycles_on_an_unchanging_cluster_come_to_rest(node_list, job_list):
    world = build(node_list, job_list)
    for _ in range(6):
        plan = world.step()
    assert plan.is_empty, plan


@given(nodes, jobs, st.data())
@settings(max_examples=100, deadline=None)
def test_incremental_sums_equal_those_from_scratch(node_list, job_list, data):
    world = build(node_list, job_list)
    for _ in range(data.draw(st.integers(1, 6))):
        world.cluster_state.jobs.rollup(measure)  # kept up from here on
        data.draw(st.sampled_from(CHANGES))(world)
    for figure in (measure, allocated_of):
        scratch: dict[str, np.ndarray] = {}
        for job in world.cluster_state.jobs.all():
            if world.cluster_state.jobs.takes_part(job):
                scratch[job.queue] = scratch.get(job.queue, 0) + figure(job)
        kept = world.cluster_state.jobs.rollup(figure).sums()
        assert sorted(kept) == sorted(scratch)
        for queue, sums in kept.items():
            assert (sums == scratch[queue]).all(), (figure, queue)
    for job in world.cluster_state.jobs.all():
        assert job_print(job) == job_print(recounted(job))
    fingerprint(world.cluster_state)
    assert world.cluster_state.audit() == []


def recounted(job: Job) -> Job:
    """Return the job with all its counts taken anew from its tasks."""
    fresh = Job(job.key, len(job.allocated))
    fresh.phase, fresh.conditions = job.phase, job.conditions
    for task in job.tasks.values():
        fresh.take(task)
    return fresh


CHANGES = [
    lambda world: world.step(),
    lambda world: world.pod("g0-0", "g0", cpu="2", node="n0"),
    lambda world: world.pod("g0-0", "g0", cpu="2", node="n0", phase="Succeeded"),
    lambda world: world.pod("g0-1", "g1", cpu="1"),
    lambda world: world.delete(kinds.POD, "ns/g0-0"),
    lambda world: world.delete(kinds.PODGROUP, "ns/g0"),
    lambda world: world.group("g0", queue="b", phase="Running", minResources={"cpu": "2"}),
    lambda world: world.queue("nowhere", weight=1),
    lambda world: world.delete(kinds.QUEUE, "a"),
    lambda world: world.delete(kinds.NODE, "n0"),
    lambda world: world.node("n0", cpu="3", gpu="1"),
    lambda world: world.cluster_state.outcome(
        "1-0", [(t.uid, Result.FAILED) for t in world.cluster_state.tasks()]
    ),
]

SCRIPT = """
from tests.property.test_engine_laws import build
world = build(
    [{"cpu": "4", "labels": {"disk": "ssd"}}, {"cpu": "4"}, {"cpu": "2"}],
    [{"min_member": 2, "queue": q, "pods": [{"cpu": "1", "role": r} for r in "aabbc"]}
     for q in ("a", "b", "a")],
)
print(world.step(), world.step())
"""


def test_the_plan_does_not_depend_on_the_hash_seed():
    plans = printed_under_hash_seeds(SCRIPT)
    assert len(plans) == 1
    assert "GangBinds" in plans.pop()


def test_binds_are_read_by_name():
    world = build([{"cpu": "4"}], [{"min_member": 1, "queue": "a", "pods": [{"cpu": "1"}]}])
    assert binds_of(world.decide()) == {"g0-0": "n0"}
