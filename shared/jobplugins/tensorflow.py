"""Job plugin tensorflow: every container learns the cluster and its place in it (JP4).

`TF_CONFIG` is what TensorFlow's own cluster resolver reads. A job of one pod needs none.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

import msgspec
from typing_extensions import override

from shared.api.batch import Job, TaskSpec
from shared.jobplugins import hosts
from shared.jobplugins.arguments import PortDefault, Value, parse
from shared.jobplugins.interface import JobPlugin, PodBody, add

CONFIG: Final = "TF_CONFIG"
ROLES: Final = ("ps", "worker", "chief", "evaluator")
"""TensorFlow's roles in the order of Volcano's JSON; each is a flag that names its task."""


class TensorFlow(JobPlugin):
    """The job plugin `tensorflow`."""

    name = "tensorflow"
    flags: ClassVar[Mapping[str, Value]] = {
        **{role: role for role in ROLES},
        "port": PortDefault(2222),
    }

    @override
    def edit_task(self, pod: PodBody, job: Job, task: TaskSpec, arguments: Sequence[str]) -> None:
        """Describe the cluster up to the index of the pod, which `edit_pod` adds.

        The list of hosts is long where the pods are many: it is made once.
        """
        if _stands_alone(job):
            return
        flags = parse(arguments, self.flags)
        cluster = _encode(_cluster(job, flags))
        role = next((role for role in ROLES if flags[role] == task.name), task.name)
        begun = f'{{"cluster":{cluster},"task":{{"type":{_encode(role)},"index":'
        for container in pod["spec"]["containers"]:
            add(container, "env", {"name": CONFIG, "value": begun})

    @override
    def edit_pod(
        self, pod: PodBody, job: Job, task: TaskSpec, index: int, arguments: Sequence[str]
    ) -> None:
        """Complete what `edit_task` began; a variable of that name in the template comes before."""
        del task, arguments
        if _stands_alone(job):
            return
        for container in pod["spec"]["containers"]:
            ours = [entry for entry in container["env"] if entry["name"] == CONFIG][-1]
            ours["value"] += f"{index}}}}}"


def _stands_alone(job: Job) -> bool:
    return len(job.spec.tasks) == 1 and job.spec.tasks[0].replicas == 1


def _cluster(job: Job, flags: Mapping[str, Value]) -> dict[str, list[str]]:
    named = {role: hosts.task_named(job, flags[role]) for role in ROLES}
    return {
        role: [f"{host}:{flags['port']}" for host in hosts.by_index(job, task)]
        for role, task in named.items()
        if task is not None and task.replicas
    }


def _encode(value: object) -> str:
    return msgspec.json.encode(value).decode()
