"""The changes that a session makes, each with its reverse; see `journal`."""

import numpy as np

from pumice.plugins import IntArray
from services.scheduler.engine.board import Board
from services.scheduler.engine.failures import Attempt
from services.scheduler.engine.records import Job
from services.scheduler.engine.tasks import Task
from shared.model.status import TaskStatus


class Placed:
    """Tasks of one class and role were put on nodes."""

    def __init__(
        self,
        board: Board,
        job: Job,
        tasks: list[Task],
        columns: list[int],
        *,
        waiting: bool,
    ) -> None:
        self._board = board
        self.job = job
        self.tasks = tasks
        self.waiting = waiting
        self._names = [board.nodes.name(column) for column in columns]
        self._columns, self._counts = _spread(columns)
        self._version = board.ledger.version

    def do(self) -> None:
        """Count the tasks in at job, nodes and plugins."""
        shape = self.tasks[0].shape
        self.job.move(self.tasks, TaskStatus.PIPELINED if self.waiting else TaskStatus.ALLOCATED)
        for task, name in zip(self.tasks, self._names, strict=True):
            task.node = name
            self._board.nodes.meet(task, 1)
        if shape.host_ports:
            holders = self._board.nodes.port_holders
            holders.update((task.uid, task) for task in self.tasks)
        self._board.ledger.place(self._columns, self._counts, shape, waiting=self.waiting)
        self._board.hooks.changed(self.job, shape, len(self.tasks))
        self._board.hooks.moved(self.job, shape, self._columns, self._counts)

    def undo(self, *, final: bool) -> None:
        """Count them out again; remember that it was tried."""
        shape = self.tasks[0].shape
        ledger = self._board.ledger
        ledger.place(self._columns, -self._counts, shape, waiting=self.waiting)
        ledger.version = self._version
        if not final:
            attempts = self._board.failures(self.job).attempts
            for task in self.tasks:
                attempts[task.uid] = Attempt(task.status, task.node)
            self._board.hooks.changed(self.job, shape, -len(self.tasks))
            self._board.hooks.moved(self.job, shape, self._columns, -self._counts)
        for task in self.tasks:
            self._board.nodes.meet(task, -1)
            task.node = ""
            self._board.nodes.port_holders.pop(task.uid, None)
        self.job.move(self.tasks, TaskStatus.PENDING)


class Promoted:
    """Allocated tasks of one class and role became binds."""

    def __init__(self, job: Job, tasks: list[Task]) -> None:
        self._job = job
        self._tasks = tasks

    def do(self) -> None:
        """Allocated → Binding: the amounts stay as they are."""
        self._job.move(self._tasks, TaskStatus.BINDING)

    def undo(self, *, final: bool) -> None:  # noqa: ARG002 - plugins never hear of it
        """Binding → Allocated."""
        self._job.move(self._tasks, TaskStatus.ALLOCATED)


class Rephased:
    """A PodGroup got another phase."""

    def __init__(self, job: Job, phase: str) -> None:
        self._job = job
        self._before = job.phase
        self._after = phase

    def do(self) -> None:
        """Set the phase."""
        self._job.phase = self._after

    def undo(self, *, final: bool) -> None:  # noqa: ARG002 - plugins never hear of it
        """Set the phase back."""
        self._job.phase = self._before


def _spread(columns: list[int]) -> tuple[IntArray, IntArray]:
    """Return distinct columns and how often each occurs."""
    if len(columns) == 1:
        return np.array(columns, dtype=np.int64), np.ones(1, dtype=np.int64)
    distinct, counts = np.unique(np.array(columns, dtype=np.int64), return_counts=True)
    return distinct, counts.astype(np.int64)
