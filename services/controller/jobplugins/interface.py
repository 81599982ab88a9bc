"""What a job plugin is: edits of the pods that a job makes, and objects that live beside them.

A plugin sees the job with its defaults filled in and edits plain dictionaries in the form of the
API, so that any field of any Kubernetes version can be set. `edit_task` runs once per task,
`edit_pod` once per pod: what is equal for all pods of a task belongs into the former (5,000 pods
are made at the API server's pace).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import msgspec

from shared.api.batch import Job, TaskSpec
from shared.api.kinds import Kind

PodBody = dict[str, Any]
"""A pod as JSON; `spec.containers` is present."""


class Companion(msgspec.Struct, frozen=True, kw_only=True):
    """An object beside the pods; whoever writes it adds owner reference and namespace."""

    kind: Kind
    name: str
    body: dict[str, Any]
    keep: bool = False
    """Whether it outlives the job's end (a claim does, a service does not)."""


class JobPlugin(Protocol):
    """One plugin; a row of `catalogue.PLUGINS`."""

    def problems(self, job: Job, arguments: Sequence[str]) -> Iterable[str]:
        """Return what is wrong with its arguments or with the job for it."""
        ...

    def companions(self, job: Job, arguments: Sequence[str]) -> Sequence[Companion]:
        """Return the objects that the job needs now."""
        ...

    def edit_task(self, pod: PodBody, job: Job, task: TaskSpec, arguments: Sequence[str]) -> None:
        """Edit what all pods of `task` have in common; `pod` is changed in place."""
        ...

    def edit_pod(self, pod: PodBody, job: Job, task: TaskSpec, index: int) -> None:
        """Edit what only the pod with this index has; its name is set already."""
        ...


def containers(pod: PodBody) -> Iterator[dict[str, Any]]:
    """Yield all containers and init containers of a pod."""
    yield from pod["spec"].get("containers") or ()
    yield from pod["spec"].get("initContainers") or ()


def add(owner: dict[str, Any], field: str, *items: dict[str, Any]) -> None:
    """Append to a list field that may be absent."""
    owner[field] = [*(owner.get(field) or ()), *items]
