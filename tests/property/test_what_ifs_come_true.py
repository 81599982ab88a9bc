"""Answers about a job agree with what then happens to it, and leave no trace.

Drawn clusters are asked about a drawn job; then the job is submitted to the scheduler's own state,
beside a controller that makes pods of admitted groups and a binder that does as it is told.
"""

from collections import Counter
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from services.scheduler.decide import decide
from services.scheduler.engine.state.memory import memory_of
from services.visibility.queries import rehearsal
from shared.api.visibility import WhatIfStatus
from shared.model.status import TaskStatus
from tests.support.laws import configured, count_hits, needs_hits
from tests.support.world import Json
from tests.unit.visibility.mirrors import NOW, Cluster, World, ask, job_of_tasks, running

TIERS = """
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: overcommit}, {name: drf}, {name: predicates}, {name: SHARING}, {name: nodeorder}]
"""
CONFIGURATIONS = [
    f'actions: "{actions}"\n' + TIERS.replace("SHARING", sharing)
    for actions in ("enqueue, allocate, backfill", "enqueue, allocate, preempt, reclaim, backfill")
    for sharing in ("proportion", "capacity")
]
amounts = st.sampled_from(["500m", "1", "2", "3"])
worlds = st.fixed_dictionaries(
    {
        "nodes": st.lists(st.sampled_from(["1", "2", "4"]), min_size=1, max_size=4),
        "capability": st.sampled_from([{}, {"cpu": "3"}]),
        "running": st.lists(
            st.tuples(st.integers(0, 3), amounts, st.sampled_from(["a", "b"])), max_size=4
        ),
        "gangs": st.lists(
            st.tuples(st.integers(1, 3), amounts, st.sampled_from(["a", "b"])), max_size=3
        ),
        "waiting": st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["a", "b"])), max_size=2),
    }
)
asked = st.fixed_dictionaries(
    {
        "tasks": st.lists(st.tuples(st.integers(1, 3), amounts), min_size=1, max_size=2),
        "queue": st.sampled_from(["a", "b"]),
        "priority": st.sampled_from(["", "high"]),
        "least": st.integers(0, 2),
    }
)
changes = st.fixed_dictionaries(
    {},
    optional={
        "addNodes": st.just([{"count": 2, "like": "n0"}]),
        "drainNodes": st.just(["n0"]),
        "queue": st.sampled_from([{"cpu": "1"}, {"cpu": "9"}]).map(
            lambda capability: {"metadata": {"name": "a"}, "spec": {"capability": capability}}
        ),
    },
)


def build(drawn: Json) -> World:
    world = World().queue("default").queue("a", capability=drawn["capability"]).queue("b")
    world.priority("high", 1000).priority("low", 1)
    free = {}
    for number, cpu in enumerate(drawn["nodes"]):
        world.node(f"n{number}", cpu=cpu)
        free[f"n{number}"] = int(cpu) * 1000
    for number, (at, cpu, queue) in enumerate(drawn["running"]):
        node, milli = f"n{at % len(free)}", int(float(cpu.replace("500m", "0.5")) * 1000)
        if milli <= free[node]:
            free[node] -= milli
            running(world, f"run{number}", cpu=cpu, node=node, priority="low", queue=queue)
            if milli <= free[node]:
                free[node] -= milli
                world.pod(f"run{number}-1", f"run{number}", cpu=cpu, node=node)
    for number, (size, cpu, queue) in enumerate(drawn["gangs"]):
        world.gang(f"gang{number}", pods=size, cpu=cpu, queue=queue)
    for number, (size, queue) in enumerate(drawn["waiting"]):
        world.waiting(f"wait{number}", pods=size, cpu=str(size), queue=queue)
    return world


def wanted(drawn: Json) -> Json:
    tasks = {f"t{number}": task for number, task in enumerate(drawn["tasks"])}
    found = job_of_tasks("asked", queue=drawn["queue"], priority=drawn["priority"], **tasks)
    if drawn["least"]:
        found["spec"]["minAvailable"] = min(drawn["least"], sum(pods for pods, _ in tasks.values()))
    return found


def told(answer: WhatIfStatus) -> Counter[tuple[str, str]]:
    return Counter({(each.task, each.node): each.pods for each in answer.placements})


@needs_hits(at_least=25)
@settings(max_examples=100, deadline=None)
@example(
    drawn={
        "nodes": ["1", "1", "4"],
        "capability": {},
        "running": [(0, "500m", "a"), (2, "2", "a")],
        "gangs": [],
        "waiting": [],
    },
    question={"tasks": [(2, "1")], "queue": "a", "priority": "", "least": 0},
    conf=CONFIGURATIONS[2],
).via("once the victim is gone, both pods go to its node, not one to the node that was free")
@given(worlds, asked, st.sampled_from(CONFIGURATIONS))
def test_a_job_that_is_said_to_start_now_does_so_on_those_nodes(
    drawn: Json, question: Json, conf: str
) -> None:
    """Where jobs may evict, none waits beside it: the pods of one that gets its places meanwhile
    may be evicted once they run, and a rehearsal evicts none that it has placed.
    """
    if "preempt" in conf:
        drawn = {**drawn, "gangs": [], "waiting": []}
    world, submitted = build(drawn), wanted(question)

    answer = ask(world, conf, job=submitted)

    cluster = Cluster(world, conf)
    cluster.submit(submitted)
    cluster.run()
    count_hits(answer.placements, answer.evictions)
    assert bool(answer.gate) is not answer.starts_now
    if answer.starts_now:
        assert cluster.asked_runs
        assert cluster.bound == told(answer)


@needs_hits(at_least=20)
@settings(max_examples=100, deadline=None)
@given(worlds, asked, st.sampled_from([CONFIGURATIONS[0], CONFIGURATIONS[1]]))
def test_pods_of_a_drained_node_go_where_it_is_said_and_the_job_beside_them_too(
    drawn: Json, question: Json, conf: str
) -> None:
    """Nothing evicts: evicted pods do not come again here, and fewer would wait than said."""
    world, submitted = build(drawn), wanted(question)

    answer = ask(world, conf, job=submitted, drainNodes=["n0"])

    cluster = Cluster(world, conf)
    cluster.drain("n0")
    cluster.submit(submitted)
    cluster.run()
    count_hits(range(answer.drained_pods))
    assert cluster.without_place == answer.unplaced_pods
    assert cluster.asked_runs is answer.starts_now


def at_rest(world: World, conf: str) -> World:
    """Return a cluster when the scheduler has nothing left to do in it."""
    cluster, found = Cluster(world, conf), World()
    cluster.run()
    for (kind, _), document in cluster.objects.items():
        found.put(kind, document)
    return found


@needs_hits(at_least=10)
@settings(max_examples=60, deadline=None)
@given(worlds, asked, st.sampled_from(CONFIGURATIONS))
def test_it_does_so_among_many_that_wait_where_the_cluster_has_come_to_rest(
    drawn: Json, question: Json, conf: str
) -> None:
    """With many that wait, only the job asked about evicts in thought: others have done so."""
    world, submitted = at_rest(build(drawn), conf), wanted(question)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rehearsal, "FEW", 0)
        answer = ask(world, conf, job=submitted)

    cluster = Cluster(world, conf)
    cluster.submit(submitted)
    cluster.run()
    waits = any(not each.is_ready for each in world.mirror.state.jobs.all())
    count_hits(answer.placements if waits else (), answer.evictions if waits else ())
    if answer.starts_now:
        assert cluster.asked_runs
        assert cluster.bound == told(answer)


def digest(world: World) -> Any:
    """Return everything that decisions rest on."""
    state = world.mirror.state
    ledger = state.nodes.ledger
    alive = [state.nodes.column(name) for name in sorted(ledger_names(state))]
    arrays = (ledger.allocatable, ledger.used, ledger.releasing, ledger.pipelined, ledger.evicted)
    memory = dict(memory_of(state))
    memory["columns"] = [name for name in memory["columns"] if name]
    memory["reported"] = sorted(memory["reported"], key=str)
    known = len(memory.pop("resources"))
    jobs = {
        each.key: (
            each.uid, each.queue, each.phase, each.decided, each.last_status,
            {uid: (task.status, task.node, task.nominated) for uid, task in each.tasks.items()},
            each.sums.value[:, :known].tolist(),
            [len(each.by_status[status]) for status in TaskStatus],
        )
        for each in state.jobs.all()
    }  # fmt: skip
    queues = {
        name: (queue.capability, queue.deserved.tolist(), queue.is_open, queue.parent)
        for name, queue in state.jobs.queues.items()
    }
    amounts = [array[:, alive].tolist() for array in arrays]
    return amounts, memory, jobs, queues, state.audit()


def ledger_names(state: Any) -> list[str]:
    names = state.nodes.attributes.names
    return [name for at, name in enumerate(names) if name and state.nodes.column(name) == at]


@needs_hits(at_least=25)
@settings(max_examples=75, deadline=None)
@given(worlds, st.one_of(st.none(), asked), changes, st.sampled_from(CONFIGURATIONS))
def test_a_question_leaves_the_cluster_state_as_it_was(
    drawn: Json, question: Json | None, change: Json, conf: str
) -> None:
    asks = {**({} if question is None else {"job": wanted(question)}), **change}
    assume(asks)
    world, config = build(drawn), configured(conf)
    plan = decide(world.mirror.state, config, now=NOW)
    before = digest(world)

    answer = ask(world, conf, **asks)

    count_hits(answer.placements, answer.evictions, answer.starting, answer.delays)
    assert digest(world) == before
    assert decide(world.mirror.state, config, now=NOW) == plan
