"""Host names of a job's pods, as plugin svc makes them resolvable (JP2).

A host name or subdomain in a task's template wins over `<pod>` and `<job>`; with the former all
pods of the task are one host.
"""

import msgspec
from typing_extensions import override

from shared.api.batch import Job, TaskSpec


class Host(msgspec.Struct, frozen=True):
    """A pod's name in the network."""

    name: str
    domain: str

    @override
    def __str__(self) -> str:
        """Return the name that every pod of the namespace can resolve."""
        return f"{self.name}.{self.domain}"


def by_index(job: Job, task: TaskSpec) -> list[Host]:
    """Return the host of each pod of `task`."""
    spec = _spec(task)
    return [_host(job, task, spec, index) for index in range(task.replicas)]


def distinct(job: Job, task: TaskSpec) -> list[Host]:
    """Return the hosts of `task`, each once."""
    return list(dict.fromkeys(by_index(job, task)))


def first(job: Job, task: TaskSpec) -> Host:
    """Return the host of a task's pod 0, whether or not it has one now."""
    return _host(job, task, _spec(task), 0)


def task_named(job: Job, name: object) -> TaskSpec | None:
    """Return the task of that name."""
    return next((task for task in job.spec.tasks if task.name == name), None)


class _Spec(msgspec.Struct, frozen=True):
    hostname: str | None = None
    subdomain: str | None = None


class _Template(msgspec.Struct, frozen=True):
    spec: _Spec | None = None


def _spec(task: TaskSpec) -> _Spec:
    return msgspec.json.decode(task.template, type=_Template).spec or _Spec()


def _host(job: Job, task: TaskSpec, spec: _Spec, index: int) -> Host:
    name = spec.hostname or f"{job.metadata.name}-{task.name}-{index}"
    return Host(name, spec.subdomain or job.metadata.name)
