"""Workloads that the scenarios walk through: the example of each, and what of it is changed."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from tools.frameworks_check.submitting import AIRFLOW, SPARK_SUBMIT, Submitter

ROOT: Final = Path(__file__).parents[2]
EXAMPLES: Final = ROOT / "examples" / "frameworks"
Step = str | int
Object = dict[str, Any]


class Scaling(msgspec.Struct, frozen=True, kw_only=True):
    """How a workload is scaled."""

    path: tuple[Step, ...]
    """Where the number is that is changed."""
    step: int = 2
    """By how much it is raised."""
    pods: int = 1
    """Pods for each."""
    down: bool = True
    """Whether it is lowered as well."""


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of workload and its example."""

    operator: str
    """Name of its operator; empty: the controllers of Kubernetes."""
    kind: str
    example: str
    """File in `examples/frameworks`; its last object is the workload."""
    api: str
    """Group and version."""
    plural: str
    pods: int
    """Pods that its example has."""
    count: tuple[Step, ...]
    """Where it says how many workers it has: all pods but `beside`."""
    beside: int = 1
    minimum: tuple[Step, ...] | None = None
    """Where its minimum stands, if that does not follow from its pods."""
    at_once: int | None = None
    """Pods that are created before others run; None: all."""
    priority: tuple[Step, ...] | None = None
    """Where its priority stands; None: in the pod templates."""
    annotations: tuple[Step, ...] | None = None
    """Where annotations of its pods stand; None: in the pod templates."""
    prioritized: bool = True
    """Whether its PodGroup has the priority."""
    label: str = ""
    """Label of the pods that count; a RayJob has one more, which submits the job."""
    suspend: tuple[Step, ...] | None = None
    scaling: Scaling | None = None
    ends: tuple[str, str] | None = None
    """Type and status of the condition of one that has ended; None: it does not end by itself."""
    state: tuple[Step, ...] | None = None
    """Where its state stands, the type of `ends`; None: in conditions."""
    ends_with: int | None = None
    """How many of its pod templates end by themselves; None: all."""
    limits: str = ""
    """What is left out here, and why."""
    version: str = ""
    """Version of its kind, where more than one operator has the kind."""
    submitter: Submitter | None = None
    """Program that sends it in place of a plain request."""
    word: str = ""
    """Word of its file that names it and all objects before it, if these belong to it alone."""
    named: str = ""
    """Name of its row, if its kind is not enough of one."""
    is_plain: bool = False
    """Whether commands name it without a kind: a Job of Volcano, a PodGroup of a user."""

    @property
    def title(self) -> str:
        """Name of its row in the table, and of it on the command line."""
        return self.named or f"{self.kind}{self.version}"

    def argument(self, name: str) -> str:
        """Return how commands name one of it."""
        return name if self.is_plain else f"{self.kind.lower()}/{name}"

    def least(self, workers: int | None = None) -> int:
        """Return the minimum of its PodGroup, of the example or with a number of workers."""
        return self.at_once or (self.pods if workers is None else workers + self.beside)

    def has_ended(self, found: Object) -> bool:
        """Tell whether an object of it has ended."""
        status = found.get("status", {})
        if self.state and self.ends:
            for step in self.state:
                status = (status or {}).get(step)
            return bool(status == self.ends[0])
        return self.ends in {(c["type"], c["status"]) for c in status.get("conditions", ())}

    @property
    def too_many(self) -> int:
        """Workers of two CPUs each that do not fit on four nodes of four."""
        return 8 if self.beside else 9


_POLICY: Final = ("spec", "runPolicy", "schedulingPolicy", "priorityClass")
_SUSPEND: Final = ("spec", "runPolicy", "suspend")
_LEAST: Final = ("metadata", "annotations", "scheduling.volcano.sh/group-min-member")
_ENDED: Final = ("Succeeded", "True")


def _of_training(kind: str, specs: str) -> Workload:
    return Workload(
        operator="training-operator",
        kind=kind,
        example=f"{kind.lower()}.yaml",
        api="kubeflow.org/v1",
        plural=f"{kind.lower()}s",
        pods=4,
        count=("spec", specs, "Worker", "replicas"),
        priority=_POLICY,
        suspend=_SUSPEND,
        ends=_ENDED,
        ends_with=1,
    )


WORKLOADS: Final = (
    Workload(
        operator="kuberay",
        kind="RayCluster",
        example="raycluster.yaml",
        api="ray.io/v1",
        plural="rayclusters",
        pods=4,
        count=("spec", "workerGroupSpecs", 0, "replicas"),
        priority=("metadata", "labels", "ray.io/priority-class-name"),
        label="ray.io/group",
        suspend=("spec", "suspend"),
        scaling=Scaling(path=("spec", "workerGroupSpecs", 0, "replicas")),
    ),
    Workload(
        operator="kuberay",
        kind="RayJob",
        example="rayjob.yaml",
        api="ray.io/v1",
        plural="rayjobs",
        pods=4,
        count=("spec", "rayClusterSpec", "workerGroupSpecs", 0, "replicas"),
        priority=("metadata", "labels", "ray.io/priority-class-name"),
        label="ray.io/group",
        suspend=("spec", "suspend"),
        limits="its end needs the dashboard of a real Ray",
    ),
    _of_training("PyTorchJob", "pytorchReplicaSpecs"),
    _of_training("TFJob", "tfReplicaSpecs"),
    _of_training("XGBoostJob", "xgbReplicaSpecs"),
    _of_training("MPIJob", "mpiReplicaSpecs"),
    Workload(
        operator="mpi-operator",
        kind="MPIJob",
        version="-v2beta1",
        example="mpijob-v2beta1.yaml",
        api="kubeflow.org/v2beta1",
        plural="mpijobs",
        pods=4,
        count=("spec", "mpiReplicaSpecs", "Worker", "replicas"),
        priority=_POLICY,
        suspend=_SUSPEND,
        ends=_ENDED,
        ends_with=1,
    ),
    Workload(
        operator="jobset",
        kind="JobSet",
        example="jobset.yaml",
        api="jobset.x-k8s.io/v1alpha2",
        plural="jobsets",
        pods=4,
        count=("spec", "replicatedJobs", 1, "template", "spec", "parallelism"),
        suspend=("spec", "suspend"),
        ends=("Completed", "True"),
    ),
    Workload(
        operator="lws",
        kind="LeaderWorkerSet",
        example="leaderworkerset.yaml",
        api="leaderworkerset.x-k8s.io/v1",
        plural="leaderworkersets",
        pods=4,
        count=("spec", "leaderWorkerTemplate", "size"),
        beside=0,
        prioritized=False,
        scaling=Scaling(path=("spec", "replicas"), step=1, pods=4),
        limits="0.7 sets no priority in PodGroups",
    ),
    Workload(
        operator="trainer",
        kind="TrainJob",
        example="trainjob.yaml",
        api="trainer.kubeflow.org/v1alpha1",
        plural="trainjobs",
        pods=4,
        count=("spec", "trainer", "numNodes"),
        beside=0,
        suspend=("spec", "suspend"),
        ends=("Complete", "True"),
        limits="2.0 has no plugin for Volcano: PodGroups for workloads",
    ),
    Workload(
        operator="argo-workflows",
        kind="Workflow",
        example="workflow.yaml",
        api="argoproj.io/v1alpha1",
        plural="workflows",
        pods=4,
        count=("spec", "templates", 0, "steps", 0, 0, "withSequence", "count"),
        beside=0,
        minimum=_LEAST,
        priority=("spec", "podPriorityClassName"),
        annotations=("spec", "podMetadata", "annotations"),
        ends=("Completed", "True"),
        limits="what needs argoexec: outputs, resource templates",
    ),
    Workload(
        operator="spark-operator",
        kind="SparkApplication",
        example="sparkapplication.yaml",
        api="sparkoperator.k8s.io/v1beta2",
        plural="sparkapplications",
        pods=1,
        at_once=1,
        count=("spec", "executor", "instances"),
        priority=("spec", "batchSchedulerOptions", "priorityClassName"),
        annotations=("spec", "driver", "annotations"),
        ends=("COMPLETED", ""),
        state=("applicationState", "state"),
        limits="executors, which a running driver creates",
    ),
    Workload(
        operator="kthena",
        kind="ModelServing",
        example="modelserving.yaml",
        api="workload.serving.volcano.sh/v1alpha1",
        plural="modelservings",
        pods=4,
        count=("spec", "template", "roles", 0, "workerReplicas"),
        prioritized=False,
        scaling=Scaling(path=("spec", "replicas"), step=1, pods=4),
        limits="its webhook; 1.0 sets no priority in PodGroups",
    ),
    Workload(
        operator="dask",
        kind="DaskCluster",
        example="daskcluster.yaml",
        api="kubernetes.dask.org/v1",
        plural="daskclusters",
        pods=4,
        count=("spec", "worker", "replicas"),
        scaling=Scaling(path=("spec", "worker", "replicas"), down=False),
        limits="fewer workers: the operator asks Dask's scheduler which",
    ),
    Workload(
        operator="dask",
        kind="DaskJob",
        example="daskjob.yaml",
        api="kubernetes.dask.org/v1",
        plural="daskjobs",
        pods=4,
        beside=2,
        count=("spec", "cluster", "spec", "worker", "replicas"),
        ends=("Successful", ""),
        ends_with=1,
        state=("jobStatus",),
    ),
    Workload(
        operator="",
        kind="Job",
        named="DAG",
        submitter=AIRFLOW,
        is_plain=True,
        example="airflow-job.yaml",
        api="batch.volcano.sh/v1alpha1",
        plural="jobs",
        pods=4,
        count=("spec", "tasks", 0, "replicas"),
        beside=0,
        priority=("spec", "priorityClassName"),
        ends=("Completed", ""),
        state=("state", "phase"),
    ),
    Workload(
        operator="",
        kind="PodGroup",
        named="spark-submit",
        submitter=SPARK_SUBMIT,
        is_plain=True,
        example="spark.yaml",
        api="scheduling.volcano.sh/v1beta1",
        plural="podgroups",
        pods=3,
        count=("spec", "minMember"),
        beside=0,
        priority=("spec", "priorityClassName"),
        limits="tasks, which executors on real nodes run",
    ),
    Workload(
        operator="",
        kind="Deployment",
        named="Flink",
        word="flink",
        is_plain=True,
        example="flink.yaml",
        api="apps/v1",
        plural="deployments",
        pods=4,
        count=("spec", "replicas"),
        scaling=Scaling(path=("spec", "replicas")),
    ),
    Workload(
        operator="",
        kind="Deployment",
        example="deployment.yaml",
        api="apps/v1",
        plural="deployments",
        pods=4,
        count=("spec", "replicas"),
        beside=0,
        minimum=_LEAST,
        scaling=Scaling(path=("spec", "replicas")),
    ),
    Workload(
        operator="",
        kind="StatefulSet",
        example="statefulset.yaml",
        api="apps/v1",
        plural="statefulsets",
        pods=4,
        count=("spec", "replicas"),
        beside=0,
        minimum=_LEAST,
        scaling=Scaling(path=("spec", "replicas")),
    ),
    Workload(
        operator="",
        kind="Job",
        example="job.yaml",
        api="batch/v1",
        plural="jobs",
        pods=4,
        count=("spec", "parallelism"),
        beside=0,
        minimum=_LEAST,
        suspend=("spec", "suspend"),
        scaling=Scaling(path=("spec", "parallelism")),
        ends=("Complete", "True"),
    ),
)


def at(found: Any, path: Sequence[Step]) -> Any:  # noqa: ANN401 - a value of JSON
    """Return what is at a path."""
    for step in path:
        found = found[step]
    return found


def put(found: Any, path: Sequence[Step], value: Any) -> None:  # noqa: ANN401 - values of JSON
    """Set what is at a path."""
    for step in path[:-1]:
        found = found.setdefault(step, {}) if isinstance(found, dict) else found[step]
    found[path[-1]] = value


def templates(found: Any) -> Iterator[Object]:  # noqa: ANN401 - a value of JSON
    """Yield the pod templates of an object."""
    if isinstance(found, dict):
        if "containers" in (found.get("spec") or {}):
            yield found
        else:
            for inner in found.values():
                yield from templates(inner)
    elif isinstance(found, list):
        for inner in found:
            yield from templates(inner)
