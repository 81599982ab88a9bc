"""Job plugin env: each container learns the index of its pod (JP1)."""

from collections.abc import Iterable, Sequence

from typing_extensions import override

from shared.api.batch import Job, TaskSpec
from shared.jobplugins.interface import JobPlugin, PodBody, add, containers

TASK_INDEX = ("VK_TASK_INDEX", "VC_TASK_INDEX")
"""The name of kube-batch's time, which examples still use, and Volcano's own."""


class EnvVariables(JobPlugin):
    """The job plugin `env`; takes no arguments."""

    name = "env"

    @override
    def problems(self, job: Job, arguments: Sequence[str]) -> Iterable[str]:
        """Return nothing: arguments are ignored, as in Volcano."""
        del job, arguments
        return ()

    @override
    def edit_pod(
        self, pod: PodBody, job: Job, task: TaskSpec, index: int, arguments: Sequence[str]
    ) -> None:
        """Add the index to containers and init containers."""
        del job, task, arguments
        for container in containers(pod):
            add(container, "env", *({"name": name, "value": str(index)} for name in TASK_INDEX))
