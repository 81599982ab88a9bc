"""Law: a node that a cycle binds to has room for all that is on it, what terminates included.

Room is of amounts, of host ports and of volumes that can be attached, and a volume that one pod
alone may use has one.

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
from tests.support.laws import count_hits, needs_hits
from tests.unit.scheduler.test_storage import mounting

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


PORT = {"ports": [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]}
ALONE = "alone"
VOLUMES = ("v0", "v1", "v2", ALONE)
LIMIT = 1
wishes = st.sampled_from([{}, PORT, PORT, *map(mounting, (*VOLUMES, ALONE))])


def put_volumes(world: Cluster) -> None:
    """Put volumes of a driver that attaches one to each node."""
    for name in VOLUMES:
        mode = "ReadWriteOncePod" if name == ALONE else "ReadWriteOnce"
        csi = {"driver": "csi", "volumeHandle": name}
        head = {"name": name, "uid": name}
        world.put(kinds.PV, {"metadata": head, "spec": {"accessModes": [mode], "csi": csi}})
        spec = {"volumeName": name, "accessModes": [mode]}
        world.put(kinds.PVC, {"metadata": {**head, "namespace": "ns"}, "spec": spec})
    for node in NODES:
        drivers = [{"name": "csi", "allocatable": {"count": LIMIT}}]
        head = {"name": node, "uid": node}
        world.put(kinds.CSINODE, {"metadata": head, "spec": {"drivers": drivers}})


def shared_wrongly(world: Cluster, node: str) -> dict[str, list[str]]:
    """Return what pods on a node share that they cannot, terminating ones included."""
    tasks = [t for t in world.cluster_state.tasks() if t.node and not TERMINAL[t.status]]
    here = [task for task in tasks if task.node == node]
    ports = [task.key for task in here if task.task_class.host_ports]
    alone = [task.key for task in tasks if f"ns/{ALONE}" in task.task_class.claims]
    volumes = sorted({claim for task in here for claim in task.task_class.claims})
    most = {"ports": (ports, 1), "alone": (alone, 1), "volumes": (volumes, LIMIT)}
    return {what: found for what, (found, limit) in most.items() if len(found) > limit}


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


@st.composite
def crowded(draw: st.DrawFn) -> Cluster:
    """Draw nodes whose pods have a port or a volume and all the CPU, and others that want them."""
    world = Cluster(CONF.format(draw(st.sampled_from(PIPELINES))), queue=False)
    world.put(kinds.PRIORITYCLASS, {"metadata": {"name": "high"}, "value": 100})
    world.queue("rich", weight=1).queue("poor", weight=3)
    put_volumes(world)
    for number, name in enumerate(NODES):
        world.node(name, cpu="4")
        has = draw(st.sampled_from([PORT, mounting(f"v{number}"), mounting(ALONE)][: 3 - number]))
        world.group(f"r{number}", queue=draw(queues), min_member=0, phase="Running")
        world.pod(f"r{number}-0", f"r{number}", cpu="4", node=name, **has)
    for number in range(draw(st.integers(2, 5))):
        high = draw(st.sampled_from(["", "high"]))
        world.group(f"t{number}", queue=draw(queues), priorityClassName=high)
        asks = draw(st.sampled_from(["", "", "1", "2"]))
        world.pod(f"t{number}-0", f"t{number}", cpu=asks, **draw(wishes))
    return world


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


@needs_hits(at_least=40)
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_pod_is_bound_to_a_port_or_volume_that_another_has_until_it_is_gone(data) -> None:
    world = data.draw(crowded())
    left = []
    for _ in range(4):
        plan = world.step()
        assert {
            node: found for node in times_on(plan) if (found := shared_wrongly(world, node))
        } == {}
        for task in list(world.cluster_state.tasks()):
            if task.status is TaskStatus.RELEASING:
                left += [task.key] if task.task_class.host_ports or task.task_class.claims else []
                if data.draw(st.booleans()):
                    world.delete(kinds.POD, task.key, task.uid)
    count_hits(left)
