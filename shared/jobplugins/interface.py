"""The interface of a job plugin: edits of a job's pods, and objects that live beside them.

A plugin sees the job with its defaults filled in and edits plain dictionaries in the form of the
API, so that any field of any Kubernetes version can be set. `edit_task` runs once per task,
`edit_pod` once per pod: what is equal for all pods of a task belongs into the former (5,000 pods
are made at the API server's pace).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from shared.api.batch import Job, TaskSpec
from shared.api.kinds import Kind
from shared.jobplugins.arguments import BadPluginArgument, Value, parse, unknown

PodBody = dict[str, Any]
"""A pod as JSON; `spec.containers` is present."""


class Companion(msgspec.Struct, frozen=True, kw_only=True):
    """An object beside the pods; the controller adds owner reference and namespace."""

    kind: Kind
    name: str
    body: dict[str, Any]
    keep: bool = False
    """Whether it outlives the job's end (a claim does, a service does not)."""
    once: bool = False
    """Whether an existing one stays as it is, even if `body` differs."""
    sealed: bool = False
    """Whether it is made and then neither read, changed nor deleted, so that its maker needs no
    right to read Secrets. It goes with the job by its owner reference.
    """
    needs_key_pair: bool = False
    """Whether its maker adds a new SSH key pair to `body`: chance is not for pure code."""


class JobPlugin:
    """One plugin, a row of `catalogue.PLUGINS`; what a plugin does not do, it inherits."""

    name: ClassVar[str]
    """As in `spec.plugins`."""
    flags: ClassVar[Mapping[str, Value]] = {}
    """Its arguments with their defaults."""
    marked: ClassVar[bool] = True
    """Whether `status.controlledResources` names it."""

    def problems(self, job: Job, arguments: Sequence[str]) -> Iterable[str]:
        """Return what is wrong with its arguments or with the job for it, as `field: why`."""
        try:
            values = parse(arguments, self.flags)
        except BadPluginArgument as error:
            return (f"spec.plugins.{self.name}: {error}",)
        return self.problems_with_job(job, values)

    def hints(self, arguments: Sequence[str]) -> Iterable[str]:
        """Return what of arguments without problems has no effect, as `field: why`."""
        known = ", ".join(f"--{name}" for name in self.flags)
        why = f"it is none of {known}" if known else "the plugin takes no arguments"
        for word in unknown(arguments, self.flags):
            yield f"spec.plugins.{self.name}: {word!r} has no effect, {why}"

    def problems_with_job(self, job: Job, values: Mapping[str, Value]) -> Iterable[str]:
        """Return what is wrong with the job for it; its templates need not be valid."""
        del job, values
        return ()

    def companions(self, job: Job, arguments: Sequence[str]) -> Sequence[Companion]:
        """Return the objects that the job needs now."""
        del job, arguments
        return ()

    def edit_task(self, pod: PodBody, job: Job, task: TaskSpec, arguments: Sequence[str]) -> None:
        """Edit what all pods of `task` have in common; `pod` is changed in place."""

    def edit_pod(
        self, pod: PodBody, job: Job, task: TaskSpec, index: int, arguments: Sequence[str]
    ) -> None:
        """Edit what only the pod with this index has; its name is set already."""


def containers(pod: PodBody) -> Iterator[dict[str, Any]]:
    """Yield all containers and init containers of a pod."""
    yield from pod["spec"].get("containers") or ()
    yield from pod["spec"].get("initContainers") or ()


def add(owner: dict[str, Any], field: str, *items: dict[str, Any]) -> None:
    """Append to a list field that may be absent."""
    owner[field] = [*(owner.get(field) or ()), *items]


def open_port(container: dict[str, Any], name: str, port: Value) -> None:
    """Declare a port of a container, unless it declares that number itself."""
    if all(known.get("containerPort") != port for known in container.get("ports") or ()):
        add(container, "ports", {"name": name, "containerPort": port})
