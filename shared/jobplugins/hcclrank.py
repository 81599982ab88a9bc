"""Job plugin hcclrank: the rank of a pod for Huawei's collective communication (JP8)."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from typing_extensions import override

from shared.api.batch import Job, TaskSpec
from shared.jobplugins import hosts
from shared.jobplugins.arguments import Value, parse
from shared.jobplugins.interface import JobPlugin, PodBody
from shared.jobplugins.pytorch import RANK

ANNOTATION: Final = "hccl/rankIndex"


class HcclRank(JobPlugin):
    """The job plugin `hcclrank`: makes no objects beside the pods; the status does not name it."""

    name = "hcclrank"
    flags: ClassVar[Mapping[str, Value]] = {"master": "master", "worker": "worker"}
    marked = False

    @override
    def edit_pod(
        self, pod: PodBody, job: Job, task: TaskSpec, index: int, arguments: Sequence[str]
    ) -> None:
        """Annotate the rank: the template's own, that of the environment, or masters first."""
        flags = parse(arguments, self.flags)
        annotations = pod["metadata"]["annotations"]
        if annotations.get(ANNOTATION):
            return
        if rank := _rank_in_environment(pod):
            annotations[ANNOTATION] = rank
        elif task.name == flags["master"]:
            annotations[ANNOTATION] = str(index)
        elif task.name == flags["worker"]:
            master = hosts.task_named(job, flags["master"])
            annotations[ANNOTATION] = str(index + (master.replicas if master else 0))


def _rank_in_environment(pod: PodBody) -> str:
    """Return the first RANK of a container, "" when there is none (pytorch gives one)."""
    return next(
        (
            str(entry["value"])
            for container in pod["spec"]["containers"]
            for entry in container.get("env") or ()
            if entry.get("name") == RANK and entry.get("value")
        ),
        "",
    )
