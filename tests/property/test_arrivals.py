"""Laws of pods that are too new for measurements: what is kept agrees with a walk over all tasks.

Also when facts change a pod, take it away or move it, and when a later question asks for an earlier
time, as a forecast that is taken back does.
"""

import datetime as dt

from hypothesis import given, settings
from hypothesis import strategies as st

from pumice.testing import Cluster
from services.scheduler.engine.nodes.arrivals import TaskArrivals
from shared.api import kinds
from shared.model.status import TaskStatus
from tests.support.laws import count_hits, needs_hits

CONF = 'actions: "allocate"\ntiers:\n- plugins: [{name: gang}, {name: usage}]\n'
EPOCH = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
ON_THE_WAY = {TaskStatus.ALLOCATED, TaskStatus.BINDING, TaskStatus.BOUND}

numbers = st.integers(0, 4)
moments = st.integers(0, 6)
putting = st.tuples(
    st.just("put"),
    numbers,
    st.sampled_from(["n0", "n1", "gone"]),
    st.sampled_from(["Running", "Pending", "Succeeded"]),
    st.none() | moments,
    st.booleans(),
)
steps = st.lists(
    putting | st.tuples(st.just("ask"), moments) | st.tuples(st.just("delete"), numbers),
    min_size=1,
    max_size=25,
)


def at(moment: int) -> float:
    return (EPOCH + dt.timedelta(seconds=10 * moment)).timestamp()


def shown(moment: int | None) -> dict[str, str]:
    if moment is None:
        return {}
    return {"startTime": dt.datetime.fromtimestamp(at(moment), dt.UTC).strftime("%FT%TZ")}


def young(world: Cluster, start: float) -> list[tuple[str, str]]:
    nodes = world.cluster_state.nodes
    return [
        (name, task.uid)
        for name in ("n0", "n1", "gone")
        for task in nodes.tasks_on(name)
        if task.status in ON_THE_WAY or (task.status == TaskStatus.RUNNING and task.started > start)
    ]


def apply(world: Cluster, arrivals: TaskArrivals, step: tuple) -> list[tuple[str, str]]:
    """Take one step; return the young pods if it was a question."""
    match step:
        case ("put", number, node, phase, started, deleting):
            status = shown(started)
            world.pod(f"p{number}", node=node, phase=phase, deleting=deleting, status=status)
        case ("delete", number):
            world.delete(kinds.POD, f"ns/p{number}", f"uid-ns/p{number}")
        case ("ask", moment):
            found = [(task.node, task.uid) for task in arrivals.since(at(moment))]
            assert sorted(found) == sorted(young(world, at(moment)))
            for name in ("n0", "n1"):
                # Estimates of one node depend on the order in which its pods are counted.
                there = [each for each in found if each[0] == name]
                assert there == [each for each in young(world, at(moment)) if each[0] == name]
            return found
    return []


@needs_hits(at_least=50)
@settings(max_examples=200)
@given(steps)
def test_young_pods_are_those_that_a_walk_over_all_tasks_finds_pl21(drawn):
    world = Cluster(CONF).node("n0").node("n1")
    arrivals = world.cluster_state.store(TaskArrivals)
    count_hits(*[apply(world, arrivals, step) for step in (*drawn, ("ask", 3))])
