"""The changes that a session makes, each with its reverse (`engine.journal`)."""

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import NamedTuple

import numpy as np
from typing_extensions import override

from pumice.plugins import IntArray
from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.journal import Journal
from services.scheduler.engine.nodes.ledger import Ledger
from services.scheduler.engine.nodes.nodes import Nodes
from services.scheduler.engine.placement.hooks import Combined
from services.scheduler.engine.session.failures import JobFailures, UndonePlacement
from services.scheduler.engine.tasks.task import Task
from shared.model.status import TaskStatus


class SessionState(NamedTuple):
    """The parts of a session that its changes act on."""

    nodes: Nodes
    hooks: Combined
    failures: Callable[[Job], JobFailures]

    @property
    def ledger(self) -> Ledger:
        """The amounts on nodes."""
        return self.nodes.ledger


class Placed:
    """Change: tasks of one class and role were placed on nodes."""

    def __init__(
        self,
        session_state: SessionState,
        job: Job,
        tasks: list[Task],
        columns: list[int],
        *,
        waiting: bool,
    ) -> None:
        self._session_state = session_state
        self.job = job
        self.tasks = tasks
        self.waiting = waiting
        self._names = [session_state.nodes.name(column) for column in columns]
        self._columns, self._counts = _spread(columns)
        self._version = session_state.ledger.version

    def do(self) -> None:
        """Add the tasks to job, nodes, ledger and plugins."""
        task_class = self.tasks[0].task_class
        self.job.move(self.tasks, TaskStatus.PIPELINED if self.waiting else TaskStatus.ALLOCATED)
        for task, name in zip(self.tasks, self._names, strict=True):
            task.node = name
            self._session_state.nodes.meet(task, 1)
        self._session_state.ledger.place(
            self._columns, self._counts, task_class, waiting=self.waiting
        )
        self._session_state.hooks.changed(self.job, task_class, len(self.tasks))
        self._session_state.hooks.moved(self.job, task_class, self._columns, self._counts)

    def undo(self, *, final: bool) -> None:
        """Remove them again; unless `final`, record their nodes for messages."""
        task_class = self.tasks[0].task_class
        ledger = self._session_state.ledger
        ledger.place(self._columns, -self._counts, task_class, waiting=self.waiting)
        ledger.version = self._version
        if not final:
            undone_placements = self._session_state.failures(self.job).undone_placements
            for task in self.tasks:
                undone_placements[task.uid] = UndonePlacement(task.status, task.node)
            self._session_state.hooks.changed(self.job, task_class, -len(self.tasks))
            self._session_state.hooks.moved(self.job, task_class, self._columns, -self._counts)
        for task in self.tasks:
            self._session_state.nodes.meet(task, -1)
            task.node = ""
        self.job.move(self.tasks, TaskStatus.PENDING)


class Promoted:
    """Allocated tasks of one class and role became binds."""

    def __init__(self, job: Job, tasks: list[Task]) -> None:
        self._job = job
        self._tasks = tasks

    def do(self) -> None:
        """Allocated → Binding: the amounts stay as they are."""
        self._job.move(self._tasks, TaskStatus.BINDING)

    def undo(self, *, final: bool) -> None:  # noqa: ARG002 - no extension point reports it
        """Binding → Allocated."""
        self._job.move(self._tasks, TaskStatus.ALLOCATED)


class Rephased:
    """Change: a PodGroup got another phase."""

    def __init__(self, job: Job, phase: str) -> None:
        self._job = job
        self._before = job.phase
        self._after = phase

    def do(self) -> None:
        """Set the phase."""
        self._job.phase = self._after

    def undo(self, *, final: bool) -> None:  # noqa: ARG002 - no extension point reports it
        """Set the phase back."""
        self._job.phase = self._before


class PluginMemory(MutableMapping[str, float]):
    """The numbers that plugins keep from cycle to cycle; each write is a change of the journal."""

    def __init__(self, memory: MutableMapping[str, float], journal: Journal) -> None:
        self._memory = memory
        self._journal = journal

    @override
    def __getitem__(self, key: str) -> float:
        return self._memory[key]

    @override
    def __setitem__(self, key: str, value: float) -> None:
        self._journal.write(self._memory, key, value)

    @override
    def __delitem__(self, key: str) -> None:
        self._journal.write(self._memory, key, None)

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._memory)

    @override
    def __len__(self) -> int:
        return len(self._memory)


def _spread(columns: list[int]) -> tuple[IntArray, IntArray]:
    """Return distinct columns and how often each occurs."""
    if len(columns) == 1:
        return np.array(columns, dtype=np.int64), np.ones(1, dtype=np.int64)
    distinct, counts = np.unique(np.array(columns, dtype=np.int64), return_counts=True)
    return distinct, counts.astype(np.int64)


def equal_runs(tasks: Sequence[Task]) -> Iterator[list[Task]]:
    """Yield lists of tasks that share class and role: one change moves one list."""
    groups: dict[tuple[int, str], list[Task]] = {}
    for task in tasks:
        groups.setdefault((task.task_class.id, task.role), []).append(task)
    return iter(groups.values())
