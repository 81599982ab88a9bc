"""Job plugin pytorch: what `torch.distributed` reads from its environment (JP5).

Rank 0 is the master's, the workers' follow. On request a worker waits, in an init container, until
the master listens.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from typing_extensions import override

from shared.api.batch import Job, TaskSpec
from shared.jobplugins import hosts
from shared.jobplugins.arguments import PortDefault, Value, parse
from shared.jobplugins.interface import JobPlugin, PodBody, add, open_port

PORT_NAME: Final = "pytorchjob-port"
RANK: Final = "RANK"
WAITER: Final = "wait-for-master"


class PyTorch(JobPlugin):
    """The job plugin `pytorch`: leaves a job without a master task as it is."""

    name = "pytorch"
    flags: ClassVar[Mapping[str, Value]] = {
        "master": "master",
        "worker": "worker",
        "port": PortDefault(23456),
        "wait-master-enabled": False,
        "wait-master-timeout": 300,
        "wait-master-image": "busybox:1.36.1",
    }

    @override
    def edit_task(self, pod: PodBody, job: Job, task: TaskSpec, arguments: Sequence[str]) -> None:
        """Open the port and say where the master is and how many take part."""
        flags = parse(arguments, self.flags)
        master = hosts.task_named(job, flags["master"])
        if master is None:
            return
        address = str(hosts.first(job, master))
        members = (flags["master"], flags["worker"])
        size = sum(each.replicas for each in job.spec.tasks if each.name in members)
        for container in pod["spec"]["containers"]:
            open_port(container, PORT_NAME, flags["port"])
            add(
                container,
                "env",
                {"name": "MASTER_ADDR", "value": address},
                {"name": "MASTER_PORT", "value": str(flags["port"])},
                {"name": "WORLD_SIZE", "value": str(size)},
            )
        if flags["wait-master-enabled"] and task.name == flags["worker"]:
            _wait_for(address, pod["spec"], flags)

    @override
    def edit_pod(
        self, pod: PodBody, job: Job, task: TaskSpec, index: int, arguments: Sequence[str]
    ) -> None:
        """Give a master or worker its rank."""
        flags = parse(arguments, self.flags)
        ranks = {flags["worker"]: index + 1, flags["master"]: 0}
        if task.name not in ranks or hosts.task_named(job, flags["master"]) is None:
            return
        for container in pod["spec"]["containers"]:
            add(container, "env", {"name": RANK, "value": str(ranks[task.name])})


def _wait_for(address: str, spec: dict[str, Any], flags: Mapping[str, Value]) -> None:
    """Add the init container, unless the template has one of that name."""
    if any(each.get("name") == WAITER for each in spec.get("initContainers") or ()):
        return
    port, limit_s = flags["port"], flags["wait-master-timeout"]
    script = (
        f"end=$(($(date +%s) + {limit_s})); until nc -z -w 2 {address} {port}; do "
        f'if [ "$(date +%s)" -ge "$end" ]; then '
        f'echo "{address}:{port} did not listen within {limit_s} s" >&2; exit 1; fi; '
        "sleep 2; done"
    )
    waiter = {
        "name": WAITER,
        "image": flags["wait-master-image"],
        "command": ["sh", "-c", script],
    }
    add(spec, "initContainers", waiter)
