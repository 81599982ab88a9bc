"""Job plugin svc: the pods of a job find each other by name (JP2).

A headless Service gives each pod the host name `<pod>.<job>`; a ConfigMap lists the names per task,
as files under /etc/volcano (`ps.host`) and as environment (`VC_PS_HOSTS`), both with `_` for each
`-` of a task's name; a NetworkPolicy keeps other jobs out.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec
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
ENVIRONMENT_MAX: Final = 131_072
"""Bytes of one variable, name and end included, that Linux passes to a process (`execve(2)`)."""
CONFIG_MAX: Final = 1_048_576
"""Bytes of a ConfigMap's data that Kubernetes takes."""


class Svc(JobPlugin):
    """The job plugin `svc`."""

    name = "svc"
    flags: ClassVar[Mapping[str, Value]] = {
        "publish-not-ready-addresses": False,
        "disable-network-policy": False,
        "inject-hosts-env": True,
    }

    @override
    def problems_with_job(self, job: Job, values: Mapping[str, Value]) -> Iterable[str]:
        """Refuse lists of hosts with which no container starts, or that no ConfigMap holds."""
        sizes = {task.name: _hosts_bytes(job, task) for task in job.spec.tasks}
        if (total := 2 * sum(sizes.values())) > CONFIG_MAX:
            yield (
                f"spec.plugins.svc: the names of all pods take {total} bytes in ConfigMap "
                f"{_config(job)}, {CONFIG_MAX} are the most: choose a shorter name, fewer "
                "replicas, or no plugin svc"
            )
        elif values["inject-hosts-env"]:
            for task in job.spec.tasks:
                name = _variable(task, "HOSTS")
                if (size := len(name) + sizes[task.name] + 1) > ENVIRONMENT_MAX:
                    yield (
                        f"spec.plugins.svc: variable {name} with the names of {task.replicas} pods "
                        f"takes {size} bytes, Linux starts no process with more than "
                        f"{ENVIRONMENT_MAX}: add --inject-hosts-env=false, the names are in "
                        f"{MOUNT_PATH}/{_shown(task)}.host as well"
                    )

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


_POWERS: Final = tuple(int(10**digits) for digits in range(1, 7))
"""Indexes from which on a number has one more digit."""


def _hosts_bytes(job: Job, task: TaskSpec) -> int:
    """Return the length of a list of a task's hosts, without making it."""
    try:
        first = hosts.first(job, task)
    except msgspec.MsgspecError:
        return 0  # a fault of the template, which has its own problem
    is_shared = first.name != f"{job.metadata.name}-{task.name}-0"
    count = min(task.replicas, 1) if is_shared else task.replicas
    more_digits = sum(max(0, count - power) for power in _POWERS)
    return count * (len(str(first)) + 1) + more_digits


def _hosts_data(job: Job) -> dict[str, str]:
    data: dict[str, str] = {}
    for task in job.spec.tasks:
        names = [str(host) for host in hosts.distinct(job, task)]
        data[f"{_shown(task)}.host"] = "\n".join(names)
        data[_variable(task, "HOSTS")] = ",".join(names)
        data[_variable(task, "NUM")] = str(len(names))
    return dict(sorted(data.items()))
