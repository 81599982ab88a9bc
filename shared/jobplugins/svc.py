"""Job plugin svc: the pods of a job find each other by name (JP2).

A headless Service gives each pod the host name `<pod>.<job>`; a ConfigMap lists the names per task,
as files under /etc/volcano (`ps.host`) and as environment (`VC_PS_HOSTS`), both with `_` for each
`-` of a task's name; a NetworkPolicy keeps other jobs out.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from typing_extensions import override

from shared.api import keys, kinds
from shared.api.batch import Job, TaskSpec
from shared.jobplugins import hosts
from shared.jobplugins.arguments import Value, parse
from shared.jobplugins.interface import (
    Companion,
    JobPlugin,
    PodBody,
    add,
    containers,
)

MOUNT_PATH: Final = "/etc/volcano"


class Svc(JobPlugin):
    """The job plugin `svc`."""

    name = "svc"
    flags: ClassVar[Mapping[str, Value]] = {
        "publish-not-ready-addresses": False,
        "disable-network-policy": False,
        "inject-hosts-env": True,
    }

    @override
    def companions(self, job: Job, arguments: Sequence[str]) -> Sequence[Companion]:
        """Return Service, ConfigMap and NetworkPolicy."""
        flags = parse(arguments, self.flags)
        name = job.metadata.name
        selector = {keys.JOB_NAME: name, keys.JOB_NAMESPACE: job.metadata.namespace}
        service: dict[str, Any] = {"clusterIP": "None", "selector": selector}
        if flags["publish-not-ready-addresses"]:
            service["publishNotReadyAddresses"] = True
        found = [
            Companion(kind=kinds.SERVICE, name=name, body={"spec": service}),
            Companion(kind=kinds.CONFIGMAP, name=_config(job), body={"data": _hosts_data(job)}),
        ]
        if not flags["disable-network-policy"]:
            found.append(
                Companion(kind=kinds.NETWORKPOLICY, name=name, body={"spec": _fence(selector)})
            )
        return found

    @override
    def edit_task(self, pod: PodBody, job: Job, task: TaskSpec, arguments: Sequence[str]) -> None:
        """Mount the lists of hosts into every container, and name them in its environment."""
        del task
        name = _config(job)
        add(pod["spec"], "volumes", {"name": name, "configMap": {"name": name}})
        in_env = [
            {"name": key, "valueFrom": {"configMapKeyRef": {"name": name, "key": key}}}
            for key in _env_keys(job)
        ]
        for container in containers(pod):
            add(container, "volumeMounts", {"name": name, "mountPath": MOUNT_PATH})
            if parse(arguments, self.flags)["inject-hosts-env"]:
                add(container, "env", *in_env)

    @override
    def edit_pod(
        self, pod: PodBody, job: Job, task: TaskSpec, index: int, arguments: Sequence[str]
    ) -> None:
        """Give the pod its host name, unless its template has one."""
        del task, index, arguments
        spec = pod["spec"]
        if not spec.get("hostname"):
            spec["hostname"] = pod["metadata"]["name"]
        if not spec.get("subdomain"):
            spec["subdomain"] = job.metadata.name


def _config(job: Job) -> str:
    return f"{job.metadata.name}-svc"


def _fence(selector: Mapping[str, str]) -> dict[str, Any]:
    return {
        "podSelector": {"matchLabels": selector},
        "ingress": [{"from": [{"podSelector": {"matchLabels": selector}}]}],
        "policyTypes": ["Ingress"],
    }


def _shown(task: TaskSpec) -> str:
    return task.name.replace("-", "_")


def _variable(task: TaskSpec, suffix: str) -> str:
    return f"VC_{_shown(task).upper()}_{suffix}"


def _env_keys(job: Job) -> list[str]:
    return [_variable(task, suffix) for task in job.spec.tasks for suffix in ("HOSTS", "NUM")]


def _hosts_data(job: Job) -> dict[str, str]:
    data: dict[str, str] = {}
    for task in job.spec.tasks:
        names = [str(host) for host in hosts.distinct(job, task)]
        data[f"{_shown(task)}.host"] = "\n".join(names)
        data[_variable(task, "HOSTS")] = ",".join(names)
        data[_variable(task, "NUM")] = str(len(names))
    return dict(sorted(data.items()))
