"""Laws: what a queue holds against its capability, pods on their way out included.

As in Volcano, pods that are being deleted do not count against a queue's limit: while they go, the
queue may hold more by as much. With `countReleasing` they count, as nodes count them, until they
are gone. Held for every action that places, over several cycles in which victims linger.
"""

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pumice.testing import Cluster, binds_of
from shared.api import kinds
from shared.model.status import HOLDS_RESOURCES, TaskStatus
from tests.support.laws import count_hits, needs_hits

CONF = (
    'actions: "enqueue, allocate, preempt, reclaim, backfill"\ntiers:\n- plugins:\n'
    "  - {{name: priority}}\n  - {{name: gang, enablePreemptable: false}}\n"
    "  - {{name: predicates}}\n- plugins:\n"
    "  - {{name: {sharing}, arguments: {{countReleasing: {counts}}}}}\n"
)
LIMIT = 8
CPU = st.integers(1, 3)


def holds(world: Cluster) -> Counter[tuple[str, str]]:
    """Return CPUs of pods on nodes per queue, those that stay and those that go."""
    found: Counter[tuple[str, str]] = Counter()
    for job in world.cluster_state.jobs.all():
        for task in job.tasks.values():
            cpus = int(task.task_class.request[0]) // 1000
            if HOLDS_RESOURCES[task.status]:
                found[job.queue, "stays"] += cpus
            elif task.status is TaskStatus.RELEASING and task.node:
                found[job.queue, "goes"] += cpus
    return found


@st.composite
def worlds(draw, sharing: str, counts: str) -> Cluster:
    world = Cluster(CONF.format(sharing=sharing, counts=counts), queue=False)
    world.put(kinds.PRIORITYCLASS, {"metadata": {"name": "high"}, "value": 100})
    for number in range(3):
        world.node(f"n{number}", cpu="8")
    for name in ("a", "b"):
        world.queue(name, capability={"cpu": str(LIMIT)}, deserved={"cpu": "4"})
    room = {"a": LIMIT, "b": LIMIT}
    for number in range(draw(st.integers(2, 7))):
        name, queue, cpu = f"g{number}", draw(st.sampled_from(["a", "b"])), draw(CPU)
        tasks = draw(st.integers(1, 3))
        runs = draw(st.booleans()) and room[queue] >= tasks * cpu
        room[queue] -= tasks * cpu if runs else 0
        world.group(
            name,
            queue=queue,
            phase="Running" if runs else "Pending",
            min_member=draw(st.integers(1, tasks)),
            priorityClassName=draw(st.sampled_from(["", "high"])),
        )
        for task in range(tasks):
            node = f"n{number % 3}" if runs else ""
            deleting = runs and draw(st.booleans())
            world.pod(f"{name}-{task}", name, cpu=str(cpu), node=node, deleting=deleting)
    return world


@pytest.mark.parametrize("sharing", ["capacity", "proportion"])
@pytest.mark.parametrize("counts", ["true", "false"])
@needs_hits(at_least=17)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_queue_never_holds_more_than_its_capability_as_releasing_pods_are_counted(
    sharing, counts, data
) -> None:
    world = data.draw(worlds(sharing, counts))
    placed_beside_leaving = []
    for _ in range(4):
        plan = world.step()
        held = holds(world)
        bound = {world.job(name.rpartition("-")[0]).queue for name in binds_of(plan)}
        for queue in ("a", "b"):
            stays, goes = held[queue, "stays"], held[queue, "goes"]
            assert stays <= LIMIT, (queue, stays, goes)
            if queue in bound and goes:
                placed_beside_leaving.append(queue)
            if counts == "true" and queue in bound:
                assert stays + goes <= LIMIT, (queue, stays, goes)
        leaving = [t for t in list(world.cluster_state.tasks()) if t.status is TaskStatus.RELEASING]
        for task in leaving:
            if data.draw(st.booleans()):
                world.delete(kinds.POD, task.key, task.uid)
    count_hits(placed_beside_leaving)


def test_a_queue_at_its_limit_places_beside_leaving_pods_only_as_volcano_does() -> None:
    placed = {}
    for counts in ("true", "false"):
        world = Cluster(CONF.format(sharing="capacity", counts=counts), queue=False)
        world.node("n0", cpu="32").queue("a", capability={"cpu": "8"})
        world.gang("old", tasks=4, cpu="2", queue="a", node="n0", phase="Running", deleting=True)
        world.gang("new", tasks=4, cpu="2", queue="a")
        first = binds_of(world.step())
        for number in range(4):
            world.delete(kinds.POD, f"ns/old-{number}")
        placed[counts] = (len(first), len(first | binds_of(world.step())))
    assert placed == {"false": (4, 4), "true": (0, 4)}
