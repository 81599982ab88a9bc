"""Law: a node that a cycle binds to has room for all that is on it, what terminates included.

Held for every action that places or clears nodes, over several cycles in which victims linger, pods
are resized, and pods of other schedulers come; some that wait are nominated to nodes. A pod of
another scheduler and a resize may overcommit a node; no bind may.
"""

from collections import Counter

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pumice.testing import Cluster
from services.scheduler.engine.plan import Plan
from shared.api import kinds
from shared.model.status import TERMINAL, TaskStatus
from tests.support.hits import count_hits, needs_hits

PIPELINES = (
    "enqueue, allocate, reclaim, backfill",
    "enqueue, allocate, preempt, backfill",
    "reclaim, preempt, allocate, backfill",
    "allocate, gangpreempt, gangreclaim, backfill",
    "backfill, allocate, preempt, reclaim",
)
CONF = """
actions: "{}"
tiers:
- plugins: [{{name: priority}}, {{name: gang}}, {{name: conformance}}]
- plugins: [{{name: predicates}}, {{name: proportion}}, {{name: nodeorder}}]
"""
NODES = ("n0", "n1")
GI = 1 << 30
MESSAGE = "has too little"

cpu = st.sampled_from(["", "", "1", "2"])
memory = st.sampled_from(["", "", "1Gi"])


def beyond(world: Cluster, node: str) -> dict[str, int]:
    """Return by how much the pods on a node ask for more than it has."""
    column = world.cluster_state.nodes.column(node)
    has = world.cluster_state.nodes.ledger.allocatable[:, column]
    on_it = [t for t in world.cluster_state.tasks() if t.node == node and not TERMINAL[t.status]]
    return {
        name: over
        for dim, name in enumerate(("cpu", "memory", "pods"))
        if (over := sum(int(task.task_class.request[dim]) for task in on_it) - int(has[dim])) > 0
    }


@st.composite
def worlds(draw: st.DrawFn) -> Cluster:
    world = Cluster(CONF.format(draw(st.sampled_from(PIPELINES))), queue=False)
    world.put(kinds.PRIORITYCLASS, {"metadata": {"name": "high"}, "value": 100})
    world.queue("rich", weight=1).queue("poor", weight=draw(st.sampled_from([1, 3])))
    for name in NODES:
        pods = draw(st.integers(1, 4))
        world.node(name, cpu=draw(st.sampled_from(["2", "4"])), memory="2Gi", pods=str(pods))
        for number in range(draw(st.integers(0, pods))):
            group = f"r-{name}-{number}"
            world.group(group, queue=draw(queues), min_member=0, phase="Running")
            world.pod(f"{group}-0", group, cpu=draw(cpu), memory=draw(memory), node=name)
    for number in range(draw(st.integers(1, 4))):
        tasks = draw(st.integers(1, 3))
        world.group(
            f"t{number}",
            queue=draw(st.sampled_from(["poor", "poor", "rich"])),
            min_member=draw(st.integers(1, tasks)),
            priorityClassName=draw(st.sampled_from(["", "high"])),
        )
        for task in range(tasks):
            nominated = draw(st.sampled_from(["", "", "", *NODES]))
            world.pod(
                f"t{number}-{task}",
                f"t{number}",
                cpu=draw(cpu),
                memory=draw(memory),
                status={"nominatedNodeName": nominated} if nominated else {},
            )
    return world


queues = st.sampled_from(["rich", "rich", "poor"])


def times_on(plan: Plan) -> Counter[str]:
    return Counter(bind.node for gang in plan.binds for bind in gang.binds)


def held_back(plan: Plan) -> list[str]:
    return [pod.key for pod in plan.pods if MESSAGE in pod.condition.message]


def resize(world: Cluster, data: st.DataObject) -> None:
    """Begin a resize: a running pod asks for another amount than is set aside for it."""
    running = sorted(t.key for t in world.cluster_state.tasks() if t.status is TaskStatus.RUNNING)
    if not running or not data.draw(st.booleans()):
        return
    _, _, name = data.draw(st.sampled_from(running)).partition("/")
    if not name.startswith("r-"):
        return
    set_aside, asks = (data.draw(st.sampled_from(["1Gi", "2Gi", "3Gi"])) for _ in range(2))
    status = {
        "phase": "Running",
        "containerStatuses": [
            {
                "name": "main",
                "allocatedResources": {"memory": set_aside},
                "resources": {"requests": {"memory": set_aside}},
            }
        ],
    }
    node = name.split("-")[1]
    world.pod(name, name.removesuffix("-0"), memory=asks, node=node, status=status)


@needs_hits(at_least=60)
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_is_bound_to_a_node_and_what_terminates_there_is_never_more_than_it_has(data) -> None:
    world = data.draw(worlds())
    waited = []
    for cycle in range(4):
        plan = world.step()
        assert {node: over for node in times_on(plan) if (over := beyond(world, node))} == {}
        waited += held_back(plan)
        for task in list(world.cluster_state.tasks()):
            if task.status is TaskStatus.RELEASING and data.draw(st.booleans()):
                world.delete(kinds.POD, task.key, task.uid)
        resize(world, data)
        if data.draw(st.booleans()):
            asked = {"memory": data.draw(st.sampled_from(["", "1Gi", "3Gi"]))}
            node = data.draw(st.sampled_from(NODES))
            world.pod(f"other-{cycle}", node=node, scheduler="other", **asked)
    count_hits(waited)
