"""Hypothetical changes of a cluster state, on which sessions can decide.

    with Imagined(cluster_state) as imagined:
        imagined.fold(QUEUE, changed, before)
        decide(cluster_state, …)

A forecast simulates the future: gangs end, others start, jobs arrive. A what-if changes objects.
The changes use the same counting as facts, so undoing them in reverse order restores the former
amounts; what plugins stored meanwhile is dropped. Fold no facts until then.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby
from operator import attrgetter
from types import TracebackType
from typing import Any, Self

from msgspec import to_builtins

from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.state.cluster_state import ClusterState
from services.scheduler.engine.tasks.task import Task
from shared.api.kinds import Kind
from shared.model.status import TaskStatus

_by_class = attrgetter("task_class.id", "role", "status")


class Imagined:
    """The hypothetical changes of one cluster state, until `undo` or the end of `with`."""

    def __init__(self, cluster_state: ClusterState) -> None:
        """Begin; unschedulable jobs take part in sessions again."""
        cluster_state.jobs.activate_all()
        self._cluster_state = cluster_state
        self._undo: list[Callable[[], None]] = []
        self._memory = dict(cluster_state.memory)
        self._remembered: list[Any] = [
            to_builtins(state.dump()) if state.name else None for state in cluster_state.states
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.undo()

    def settle(self, job: Job, tasks: Iterable[Task], status: TaskStatus) -> None:
        """Change the status of tasks on their nodes; ended ones use nothing there."""
        self._move(job, [(task, task.node) for task in tasks], status)

    def bind(self, job: Job, places: Mapping[str, str]) -> None:
        """Make tasks of a job run on nodes, by uid."""
        found = [(job.tasks[uid], node) for uid, node in places.items() if uid in job.tasks]
        self._move(job, found, TaskStatus.RUNNING)

    def unbind(self, job: Job, tasks: Iterable[Task]) -> None:
        """Make tasks of a job pending again."""
        self._move(job, [(task, "") for task in tasks], TaskStatus.PENDING)

    def phase(self, job: Job, phase: str) -> None:
        """Set the phase of a job."""
        before = job.phase
        self.on_undo(lambda: self._set_phase(job, before))
        self._set_phase(job, phase)

    def fold(self, kind: Kind, obj: Any, before: Any = None) -> None:  # noqa: ANN401 - of the kind
        """Fold an object in the place of the one of its name; None: the name is free."""
        token, key, uid = kind.token, obj.metadata.key, obj.metadata.uid
        cluster_state = self._cluster_state

        def take_back() -> None:
            if before is None:
                cluster_state.delete(token, key, uid)
            else:
                cluster_state.put(token, key, before.metadata.uid, before)

        self.on_undo(take_back)  # first: a bad object takes the place of the one before, too
        cluster_state.put(token, key, uid, obj)

    def on_undo(self, take_back: Callable[[], None]) -> None:
        """Register a callback that undoes a change of the caller."""
        self._undo.append(take_back)

    def undo(self) -> None:
        """Undo everything, the latest first; on an error the state is marked inconsistent."""
        with self._mark_inconsistent_on_error():
            while self._undo:
                self._undo.pop()()
            self._put_back()

    def _put_back(self) -> None:
        cluster_state = self._cluster_state
        cluster_state.jobs.activate_all()
        cluster_state.memory.clear()
        cluster_state.memory.update(self._memory)
        for state, remembered in zip(cluster_state.states, self._remembered, strict=True):
            if state.name:
                state.restore(remembered)
        cluster_state.tidy()

    # --- details -----------------------------------------------------------------------------

    @contextmanager
    def _mark_inconsistent_on_error(self) -> Iterator[None]:
        done = False
        try:
            yield
            done = True
        finally:
            if not done:
                self._cluster_state.mark_inconsistent()

    def _set_phase(self, job: Job, phase: str) -> None:
        job.phase = phase
        self._cluster_state.jobs.changed(job)

    def _move(self, job: Job, places: list[tuple[Task, str]], status: TaskStatus) -> None:
        before = [(task, task.node) for task, _ in places]
        statuses = [task.status for task, _ in places]
        with self._mark_inconsistent_on_error():
            self._carry_out(job, places, [status] * len(places))
        self.on_undo(lambda: self._carry_out(job, before, statuses))

    def _carry_out(
        self, job: Job, places: list[tuple[Task, str]], statuses: list[TaskStatus]
    ) -> None:
        nodes = self._cluster_state.nodes
        for task, _ in places:
            nodes.release(task)
        desired = {task.uid: status for (task, _), status in zip(places, statuses, strict=True)}
        tasks = sorted((task for task, _ in places), key=_by_class)
        for _, alike in groupby(tasks, key=_by_class):
            equal = sorted(alike, key=lambda task: desired[task.uid])
            for status, run in groupby(equal, key=lambda task: desired[task.uid]):
                job.move(list(run), status)
        for task, node in places:
            task.node = node
            nodes.hold(task)
        self._cluster_state.jobs.changed(job)
