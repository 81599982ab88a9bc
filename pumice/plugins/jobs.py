"""Public interface for job plugins: the values that they get, and the objects that they add.

A job plugin is named in `spec.plugins` of a job, with arguments. It edits the pods that the job
makes and may ask for objects beside them (as `svc` makes a Service). It is called by the
controller, and by admission, which only asks for `problems`; both need it installed.

Plain values in, plain dictionaries out: any field of any Kubernetes version can be set. The same
job must come out the same every time, because the controller asks again whenever it looks at it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, kw_only=True)
class TaskView:
    """One task of a job."""

    name: str
    replicas: int
    min_available: int


@dataclass(frozen=True, kw_only=True)
class JobView:
    """A job with its defaults filled in."""

    name: str
    namespace: str
    uid: str
    queue: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    min_available: int
    tasks: Sequence[TaskView]

    def pod_name(self, task: str, index: int) -> str:
        """Return the name of a pod of the job."""
        return f"{self.name}-{task}-{index}"


@dataclass(frozen=True, kw_only=True)
class Beside:
    """An object beside the pods: a ConfigMap or a Service in the job's namespace.

    The controller adds namespace and owner reference, brings one that is there to what `body` says,
    and deletes it when the job ends. An object of that name that is another's is left alone, and
    told on the job.
    """

    kind: str
    name: str
    body: Mapping[str, Any]
    """Everything but `apiVersion`, `kind` and `metadata`: `{"data": {…}}`, `{"spec": {…}}`."""


class JobPlugin(Protocol):
    """A job plugin: an entry point of the group `pumice.jobplugins` names a class of this form.

    It is built without arguments, once per process.
    """

    name: str
    """As in `spec.plugins`, and that of the entry point."""

    def problems(self, job: JobView, arguments: Sequence[str], /) -> Sequence[str]:
        """Return why the job cannot have the plugin with these arguments; empty when it can."""
        ...

    def beside(self, job: JobView, arguments: Sequence[str], /) -> Sequence[Beside]:
        """Return the objects that the job needs now; called again when the job changes."""
        ...

    def edit_pod(
        self,
        pod: dict[str, Any],
        job: JobView,
        task: TaskView,
        index: int,
        arguments: Sequence[str],
        /,
    ) -> None:
        """Edit one pod before it is made, in place; `metadata` and `spec.containers` are there."""
        ...
