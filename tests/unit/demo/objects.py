"""Objects as the API server shows them, and a scene with a full cluster, for the demo's tests."""

from pumice.demo.model import Change, Moment, Op, Scene, Seen
from pumice.demo.sentences import Sentence, tell
from shared.api import keys
from shared.api.batch import Job, JobPhase, JobSpec, JobState, JobStatus, TaskSpec
from shared.api.core import (
    Container,
    Node,
    NodeCondition,
    NodeStatus,
    Pod,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)
from shared.api.meta import ObjectMeta, OwnerReference
from shared.api.scheduling import (
    PodGroup,
    PodGroupCondition,
    PodGroupPhase,
    PodGroupStatus,
)

NO_ROOM = (
    "10/10 tasks in gang unschedulable: pod group is not ready, 10 Pending, 10 minAvailable; "
    "8 nodes: 8 insufficient cpu"
)


def seen(obj: Seen) -> Change:
    return Change(op=Op.SEEN, obj=obj)


def gone(obj: Seen) -> Change:
    return Change(op=Op.GONE, obj=obj)


def job(name: str, replicas: int, minimum: int | None = None, phase: str | None = None) -> Job:
    return Job(
        metadata=ObjectMeta(name=name, namespace="default", uid=f"uid-of-{name}"),
        spec=JobSpec(
            min_available=replicas if minimum is None else minimum,
            tasks=(TaskSpec(name="worker", replicas=replicas),),
        ),
        status=JobStatus(state=JobState(phase=JobPhase(phase) if phase else None)),
    )


def group(job_name: str, phase: str | None, *conditions: PodGroupCondition) -> PodGroup:
    owner = OwnerReference(
        api_version="batch.volcano.sh/v1alpha1",
        kind="Job",
        name=job_name,
        uid=f"uid-of-{job_name}",
        controller=True,
    )
    return PodGroup(
        metadata=ObjectMeta(
            name=f"{job_name}-uid-of-{job_name}", namespace="default", owner_references=(owner,)
        ),
        status=PodGroupStatus(phase=PodGroupPhase(phase) if phase else None, conditions=conditions),
    )


def condition(kind: str, message: str, at: str = "2026-01-01T00:00:00Z") -> PodGroupCondition:
    return PodGroupCondition(type=kind, status="True", message=message, last_transition_time=at)


def pod(
    job_name: str,
    index: int,
    node: str = "",
    phase: str = "Pending",
    *,
    cpu: str = "2",
    uid: str = "",
) -> Pod:
    name = f"{job_name}-worker-{index}"
    container = Container(
        name="main", resources=ResourceRequirements(requests={"cpu": cpu, "memory": "1Gi"})
    )
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=uid or f"uid-of-{name}",
            annotations={keys.JOB_NAME: job_name},
        ),
        spec=PodSpec(node_name=node, containers=(container,)),
        status=PodStatus(phase=phase),
    )


def node(name: str, *, cpu: str = "8", ready: bool = True) -> Node:
    return Node(
        metadata=ObjectMeta(name=name),
        status=NodeStatus(
            allocatable={"cpu": cpu, "memory": "32Gi", "pods": "110"},
            conditions=(NodeCondition(type="Ready", status="True" if ready else "False"),),
        ),
    )


class Story:
    """Events in turn, with what was told about them."""

    def __init__(self) -> None:
        self.scene = Scene()
        self.log: list[Sentence] = []

    def at(self, at_s: float, *changes: Change) -> list[str]:
        """Fold the events of one refresh; return what is said about them."""
        moments = [moment for change in changes for moment in self.scene.fold(change, at_s)]
        return [f"{said.subject}: {said.text}" for said in self.refresh(at_s, moments)]

    def refresh(self, at_s: float, moments: list[Moment]) -> list[Sentence]:
        """Tell what has been folded since the refresh before."""
        told = tell([*moments, *self.scene.settle(at_s)], self.scene)
        self.log += told
        return told


def full_cluster(first: str = "tensorflow-benchmark") -> Story:
    """Return a story in which two gangs hold the cluster and a third waits for room."""
    story = Story()
    story.at(0.1, *(seen(node(f"node-{i}")) for i in range(8)))
    for at_s, name, replicas, minimum in (
        (1.0, first, 3, 3),
        (1.1, "twenty-together", 20, 20),
        (1.2, "elastic", 8, 2),
        (1.3, "waits-for-room", 10, 10),
    ):
        story.at(at_s, seen(job(name, replicas, minimum, "Pending")))
        story.at(at_s + 0.05, seen(group(name, "Inqueue")))
        story.at(at_s + 0.08, *(seen(pod(name, i)) for i in range(replicas)))
    story.at(1.5, *(seen(pod(first, i, f"node-{i}", "Running")) for i in range(3)))
    story.at(1.5, seen(job(first, 3, 3, "Running")), seen(group(first, "Running")))
    name = "twenty-together"
    story.at(1.6, *(seen(pod(name, i, f"node-{i % 8}")) for i in range(20)))
    story.at(1.8, *(seen(pod(name, i, f"node-{i % 8}", "Running")) for i in range(12)))
    story.at(1.9, *(seen(pod("elastic", i, f"node-{4 + i}")) for i in range(4)))
    story.at(2.0, seen(group("waits-for-room", "Inqueue", condition("Unschedulable", NO_ROOM))))
    story.at(2.7)
    story.at(3.4, *(seen(pod(name, i, f"node-{i % 8}", "Succeeded")) for i in range(5)))
    return story
