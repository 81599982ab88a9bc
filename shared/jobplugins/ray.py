"""Job plugin ray: a head, workers that join it, and a Service in front of the head (JP7)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Final

from typing_extensions import override

from shared.api import keys, kinds
from shared.api.batch import Job, TaskSpec
from shared.jobplugins import hosts
from shared.jobplugins.arguments import PortDefault, Value, parse
from shared.jobplugins.interface import Companion, JobPlugin, PodBody, open_port

PORTS: Final[Mapping[str, str]] = {
    "gcs": "port",
    "dashboard": "dashboardPort",
    "client-server": "clientPort",
}
"""Name of a port → the flag with its number."""
_LABEL_MAX: Final = 63


class Ray(JobPlugin):
    """The job plugin `ray`."""

    name = "ray"
    flags: ClassVar[Mapping[str, Value]] = {
        "head": "head",
        "headContainer": "head",
        "worker": "worker",
        "workerContainer": "worker",
        "port": PortDefault(6379),
        "dashboardPort": PortDefault(8265),
        "clientPort": PortDefault(10001),
    }

    @override
    def problems_with_job(self, job: Job, values: Mapping[str, Value]) -> Iterable[str]:
        """Refuse a job without a head, or whose name is too long for the head's Service."""
        if hosts.task_named(job, values["head"]) is None:
            yield f"spec.plugins.ray: the job has no task {values['head']!r} (--head)"
        if len(_service(job)) > _LABEL_MAX:
            yield f"metadata.name: plugin ray makes a Service {_service(job)!r}, 63 letters at most"

    @override
    def companions(self, job: Job, arguments: Sequence[str]) -> Sequence[Companion]:
        """Return the Service of the head."""
        flags = parse(arguments, self.flags)
        selector = {
            keys.JOB_NAME: job.metadata.name,
            keys.JOB_NAMESPACE: job.metadata.namespace,
            keys.TASK_SPEC: str(flags["head"]),
        }
        ports = [
            {"name": name, "port": flags[flag], "targetPort": name, "protocol": "TCP"}
            for name, flag in PORTS.items()
        ]
        body = {"spec": {"selector": selector, "ports": ports}}
        return [Companion(kind=kinds.SERVICE, name=_service(job), body=body)]

    @override
    def edit_task(self, pod: PodBody, job: Job, task: TaskSpec, arguments: Sequence[str]) -> None:
        """Replace the commands of the head's and the workers' containers."""
        flags = parse(arguments, self.flags)
        head = hosts.task_named(job, flags["head"])
        assert head is not None, "a job without is not valid"
        for container in pod["spec"]["containers"]:
            role = (task.name, container.get("name"))
            if role == (flags["head"], flags["headContainer"]):
                for name, flag in PORTS.items():
                    open_port(container, name, flags[flag])
                container["command"] = _shell(
                    "ray start --head --block --dashboard-host=0.0.0.0 "
                    f"--port={flags['port']} --dashboard-port={flags['dashboardPort']} "
                    f"--ray-client-server-port={flags['clientPort']}"
                )
            elif role == (flags["worker"], flags["workerContainer"]):
                address = f"{hosts.first(job, head)}:{flags['port']}"
                container["command"] = _shell(f"ray start --block --address={address}")


def _service(job: Job) -> str:
    return f"{job.metadata.name}-head-svc"


def _shell(command: str) -> list[str]:
    return ["sh", "-c", command]
