"""Law: a queue never admits more than it has room for, whatever becomes of those admitted (CA14).

Some admitted pods find a node, some wait for one that never comes, some are deleted; the gate of
some is seen to fall late. Pods that ask for no gate take what the others leave.
"""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pumice.testing import Cluster, binds_of
from services.scheduler.engine.state.cluster_state import ClusterState
from services.scheduler.policy.catalog import states
from shared.api import keys, kinds
from shared.model.status import HOLDS_RESOURCES, TaskStatus
from tests.support.laws import count_hits, needs_hits

CONF = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: predicates}, {name: capacity}, {name: nodeorder}]
"""
LIMIT = 6
GATE = [{"name": keys.QUEUE_GATE}]
FOREIGN = [{"name": "example.com/wait"}, *GATE]


class Run:
    """A cluster with one queue, and what its pods were made of."""

    def __init__(self) -> None:
        self.cluster = Cluster(CONF, queue=False)
        self.cluster.cluster_state = ClusterState(("volcano",), states(queue_gates=True))
        self.cluster.queue("q", capability={"cpu": str(LIMIT)}).node("n1", cpu="32")
        self.pods: dict[str, dict] = {}

    def pod(self, name: str, *, asks: bool, **more) -> None:
        """Add a pod, or change it."""
        self.pods[name] = {"asks": asks, **more}
        meta = {"annotations": {keys.QUEUE_GATE: "true"}} if asks else {}
        self.cluster.pod(name, metadata=meta, **more)

    def promised(self) -> int:
        """Return the CPUs that the queue's pods hold or were admitted for."""
        tasks = self.cluster.cluster_state.tasks()
        return sum(
            int(task.task_class.request[0]) // 1000
            for task in tasks
            if HOLDS_RESOURCES[task.status]
            or (
                task.status is TaskStatus.PENDING
                and self.pods[task.name]["asks"]
                and (task.lifting or not task.gated)
            )
        )


@st.composite
def runs(draw: st.DrawFn) -> Run:
    run = Run()
    for number in range(draw(st.integers(1, 4))):
        tasks = draw(st.integers(1, 4))
        group = f"g{number}"
        run.cluster.group(group, queue="q", min_member=draw(st.integers(1, tasks)))
        for task in range(tasks):
            asks = draw(st.sampled_from([True, True, False]))
            more: dict[str, Any] = {"group": group, "cpu": str(draw(st.integers(1, 2)))}
            if draw(st.booleans()):
                more["nodeSelector"] = {"made": "later"}
            if asks:
                more["schedulingGates"] = draw(st.sampled_from([GATE, GATE, FOREIGN]))
            run.pod(f"{group}-{task}", asks=asks, **more)
    return run


@needs_hits(at_least=60)
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_queue_admits_no_more_pods_than_it_has_room_for(data) -> None:
    run, waited = data.draw(runs()), []
    for _ in range(4):
        plan = run.cluster.step()
        assert run.promised() <= LIMIT
        binds = binds_of(plan)
        for task in list(run.cluster.cluster_state.tasks()):
            more = run.pods[task.name]
            fate = data.draw(st.sampled_from(["stays", "falls", "falls", "goes"]))
            if task.gated and not task.lifting:
                waited.append(task.name)
            if fate == "goes" and task.name not in binds:
                run.cluster.delete(kinds.POD, task.key, task.uid)
            elif fate == "falls" and (task.lifting or more.get("schedulingGates") is FOREIGN):
                left = [] if task.lifting else GATE
                run.pod(task.name, **{**more, "schedulingGates": left})
    count_hits(waited)


@needs_hits(at_least=40)
@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=6), st.integers(1, LIMIT), st.booleans())
def test_an_admitted_pod_starts_if_its_queue_has_room_for_it(sizes, left, admission) -> None:
    """Whatever others were admitted: the queue may get less, and `admission` may be away."""
    run = Run()
    for number, cpu in enumerate(sizes):
        run.cluster.group(f"g{number}", queue="q")
        gates = GATE if admission else []
        run.pod(f"p{number}", asks=True, group=f"g{number}", cpu=str(cpu), schedulingGates=gates)
    admitted = [gate.key.removeprefix("ns/") for gate in run.cluster.decide().lifted]
    run.cluster.queue("q", capability={"cpu": str(left)})
    for name in admitted:
        run.pod(name, **{**run.pods[name], "schedulingGates": []})
    run.cluster.step()
    tasks = list(run.cluster.cluster_state.tasks())
    asks = {task.name: int(task.task_class.request[0]) // 1000 for task in tasks}
    held = sum(asks[task.name] for task in tasks if HOLDS_RESOURCES[task.status])
    waiting = [t.name for t in tasks if t.status is TaskStatus.PENDING and not t.gated]
    assert held <= left
    assert all(asks[name] > left - held for name in waiting)
    count_hits(waiting)
