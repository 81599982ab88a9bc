"""Job plugin mpi: the master learns the workers' hosts, and sshd's port is open everywhere (JP6).

It implies svc, for the names to resolve, and ssh, for the master to get in (JP9).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Final

from typing_extensions import override

from shared.api.batch import Job, TaskSpec
from shared.jobplugins import hosts
from shared.jobplugins.arguments import PortDefault, Value, parse
from shared.jobplugins.interface import (
    JobPlugin,
    PodBody,
    add,
    containers,
    open_port,
)

HOSTS: Final = "MPI_HOST"
PORT_NAME: Final = "mpijob-port"


class Mpi(JobPlugin):
    """The job plugin `mpi`."""

    name = "mpi"
    flags: ClassVar[Mapping[str, Value]] = {
        "master": "master",
        "worker": "worker",
        "port": PortDefault(22),
    }

    @override
    def problems_with_job(self, job: Job, values: Mapping[str, Value]) -> Iterable[str]:
        """Refuse a job without the master's task (W23); one without workers may run."""
        if hosts.task_named(job, values["master"]) is None:
            yield (
                f"spec.plugins.mpi: the job has no task {values['master']!r} (--master):"
                " The specified mpi master task was not found"
            )

    @override
    def edit_task(self, pod: PodBody, job: Job, task: TaskSpec, arguments: Sequence[str]) -> None:
        """Open the port; name the workers to the master."""
        flags = parse(arguments, self.flags)
        workers = hosts.task_named(job, flags["worker"])
        for container in containers(pod):
            open_port(container, PORT_NAME, flags["port"])
            if task.name == flags["master"] and workers is not None:
                names = ",".join(str(host) for host in hosts.distinct(job, workers))
                add(container, "env", {"name": HOSTS, "value": names})
