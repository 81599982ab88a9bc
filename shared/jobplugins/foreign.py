"""Job plugins of other distributions, behind a guard: their errors are reported on the job.

An error of a plugin, or a result of the wrong form, fails that job and never the process: as
a problem of the spec where the job is checked, as `PluginFailed` where its objects are made.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from typing_extensions import override

from pumice.plugins.jobs import Beside, JobView, TaskView
from pumice.plugins.jobs import JobPlugin as Foreign
from shared.api import kinds
from shared.api.batch import Job, TaskSpec
from shared.api.kinds import Kind
from shared.entry_points import BadPlugin, load
from shared.jobplugins.interface import Companion, JobPlugin, PodBody

GROUP: Final = "pumice.jobplugins"
MADE: Final[Mapping[str, Kind]] = {kind.kind: kind for kind in (kinds.CONFIGMAP, kinds.SERVICE)}
"""Companions that a plugin may ask for, by kind: those that the controller has rights to keep."""

T = TypeVar("T")


class PluginFailed(Exception):  # noqa: N818 - the fact
    """A plugin that raised, or returned what is none; the text names field and distribution."""


class ForeignJobPlugin(JobPlugin):
    """One plugin of another distribution, in the form of our own."""

    def __init__(self, plugin: Foreign, *, name: str, origin: str) -> None:
        self.name = name  # type: ignore[misc]  # ours have it in the class
        self.origin = origin
        self._plugin = plugin

    @override
    def problems(self, job: Job, arguments: Sequence[str]) -> Iterable[str]:
        """Return what the plugin says, or how it failed; its objects are tried too."""
        try:
            faults = self._guarded(lambda: _texts(self._plugin.problems(_view(job), arguments)))
            if not faults:
                self.companions(job, arguments)
        except PluginFailed as failure:
            return (str(failure),)
        return [f"spec.plugins.{self.name}: {text}" for text in faults]

    @override
    def hints(self, arguments: Sequence[str]) -> Iterable[str]:
        """Return nothing: only the plugin knows its arguments."""
        del arguments
        return ()

    @override
    def companions(self, job: Job, arguments: Sequence[str]) -> Sequence[Companion]:
        """Return the objects beside the pods. Raises PluginFailed when the plugin fails."""
        return self._guarded(
            lambda: [_companion(b) for b in self._plugin.beside(_view(job), arguments)]
        )

    @override
    def edit_pod(
        self, pod: PodBody, job: Job, task: TaskSpec, index: int, arguments: Sequence[str]
    ) -> None:
        """Let the plugin edit one pod. Raises PluginFailed when it fails."""
        self._guarded(lambda: self._plugin.edit_pod(pod, _view(job), _task(task), index, arguments))

    def _guarded(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except Exception as error:
            text = " ".join(str(error).split())
            raise PluginFailed(
                f"spec.plugins.{self.name}: job plugin of {self.origin} failed: "
                f"{type(error).__name__}: {text}"
            ) from error


def load_plugins(taken: Iterable[str]) -> dict[str, JobPlugin]:
    """Return the installed plugins by name. Raises BadPlugin with distribution and entry point."""
    found: dict[str, JobPlugin] = {}
    for offer in load(GROUP, what="job plugin", method="edit_pod", taken=tuple(taken)):
        try:
            plugin = offer.kind()
        except Exception as error:
            raise BadPlugin(
                f"job plugin of {offer.origin}: cannot be made: {type(error).__name__}: {error}"
            ) from error
        found[offer.name] = ForeignJobPlugin(plugin, name=offer.name, origin=offer.origin)
    return found


def _texts(given: Iterable[str]) -> list[str]:
    texts = list(given)
    if not all(isinstance(text, str) for text in texts):
        raise TypeError(f"problems returned {texts!r}, texts are expected")
    return texts


def _companion(beside: Beside) -> Companion:
    if beside.kind not in MADE:
        raise ValueError(f"a {beside.kind} cannot be made, only {' and '.join(MADE)}")
    body: dict[str, Any] = dict(beside.body)
    return Companion(kind=MADE[beside.kind], name=beside.name, body=body)


def _view(job: Job) -> JobView:
    meta, spec = job.metadata, job.spec
    return JobView(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        queue=spec.queue,
        labels=dict(meta.labels),
        annotations=dict(meta.annotations),
        min_available=spec.min_available,
        tasks=tuple(_task(task) for task in spec.tasks),
    )


def _task(task: TaskSpec) -> TaskView:
    least = task.replicas if task.min_available is None else task.min_available
    return TaskView(name=task.name, replicas=task.replicas, min_available=least)
