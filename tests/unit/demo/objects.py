"""Objects as the API server shows them, and a scene with a full cluster, for the demo's tests."""

from pumice.demo.model import Moment, Scene, Seen, WatchChange, WatchOp
from pumice.demo.sentences import Sentence, sentences_of
from shared.api import keys
from shared.api.batch import Job
from shared.api.core import Pod
from shared.api.scheduling import PodGroup, PodGroupCondition
from tests.support import structs
from tests.support.structs import node
from tests.support.world import job_owner

NO_ROOM = (
    "10/10 tasks in gang unschedulable: pod group is not ready, 10 Pending, 10 minAvailable; "
    "8 nodes: 8 insufficient cpu"
)


def seen(obj: Seen) -> WatchChange:
    return WatchChange(op=WatchOp.SEEN, obj=obj)


def gone(obj: Seen) -> WatchChange:
    return WatchChange(op=WatchOp.GONE, obj=obj)


def job_of(name: str, replicas: int, minimum: int | None = None, phase: str | None = None) -> Job:
    """Return a job of one task."""
    least = replicas if minimum is None else minimum
    task = {"name": "worker", "replicas": replicas}
    return structs.job(task, name=name, namespace="default", phase=phase, minAvailable=least)


def group_of(job_name: str, phase: str | None, *conditions: PodGroupCondition) -> PodGroup:
    """Return the group of a job."""
    uid = f"uid-{job_name}"
    return structs.group(
        f"{job_name}-{uid}",
        namespace="default",
        phase=phase,
        metadata={"ownerReferences": [job_owner(job_name, uid)]},
        status={"conditions": conditions},
    )


def condition(kind: str, message: str, at: str = "2026-01-01T00:00:00Z") -> PodGroupCondition:
    return PodGroupCondition(type=kind, status="True", message=message, last_transition_time=at)


def worker_pod(
    job_name: str,
    index: int,
    node: str = "",
    phase: str = "Pending",
    *,
    cpu: str = "2",
    uid: str = "",
) -> Pod:
    """Return a pod of a job's task."""
    name = f"{job_name}-worker-{index}"
    notes = {keys.JOB_NAME: job_name}
    return structs.pod(
        name,
        namespace="default",
        uid=uid,
        node=node,
        phase=phase,
        cpu=cpu,
        memory="1Gi",
        annotations=notes,
    )


class Story:
    """Events in turn, with what was told about them."""

    def __init__(self) -> None:
        self.scene = Scene()
        self.log: list[Sentence] = []

    def at(self, at_s: float, *changes: WatchChange) -> list[str]:
        """Fold the events of one refresh; return what is said about them."""
        moments = [moment for change in changes for moment in self.scene.fold(change, at_s)]
        return [f"{said.subject}: {said.text}" for said in self.refresh(at_s, moments)]

    def refresh(self, at_s: float, moments: list[Moment]) -> list[Sentence]:
        """Tell what has been folded since the refresh before."""
        told = sentences_of([*moments, *self.scene.settle(at_s)], self.scene)
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
        story.at(at_s, seen(job_of(name, replicas, minimum, "Pending")))
        story.at(at_s + 0.05, seen(group_of(name, "Inqueue")))
        story.at(at_s + 0.08, *(seen(worker_pod(name, i)) for i in range(replicas)))
    story.at(1.5, *(seen(worker_pod(first, i, f"node-{i}", "Running")) for i in range(3)))
    story.at(1.5, seen(job_of(first, 3, 3, "Running")), seen(group_of(first, "Running")))
    name = "twenty-together"
    story.at(1.6, *(seen(worker_pod(name, i, f"node-{i % 8}")) for i in range(20)))
    story.at(1.8, *(seen(worker_pod(name, i, f"node-{i % 8}", "Running")) for i in range(12)))
    story.at(1.9, *(seen(worker_pod("elastic", i, f"node-{4 + i}")) for i in range(4)))
    story.at(2.0, seen(group_of("waits-for-room", "Inqueue", condition("Unschedulable", NO_ROOM))))
    story.at(2.7)
    story.at(3.4, *(seen(worker_pod(name, i, f"node-{i % 8}", "Succeeded")) for i in range(5)))
    return story
