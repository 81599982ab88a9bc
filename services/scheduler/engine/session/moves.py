"""Moves within a session: a task leaves its node, and its replacement goes to another one.

While a move is tried, the task still counts for its job and queue: it will run elsewhere. Only the
nodes change.
"""

import numpy as np

from pumice.plugins import IntArray
from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.session.changes import SessionState
from services.scheduler.engine.session.session import Session
from services.scheduler.engine.tasks.task import Task

_ONE = np.ones(1, dtype=np.int64)


class Departure:
    """Change: a task is about to leave its node, whose room a waiting task may reserve."""

    def __init__(self, session_state: SessionState, job: Job, task: Task, column: int) -> None:
        self._session_state = session_state
        self._job = job
        self._task = task
        self._column: IntArray = np.array([column], dtype=np.int64)
        self._version = session_state.ledger.version

    def do(self) -> None:
        """Count it as terminating on its node."""
        self._count(1, silently=False)

    def undo(self, *, final: bool) -> None:
        """Count it as running again."""
        self._count(-1, silently=final)
        self._session_state.ledger.version = self._version

    def _count(self, sign: int, *, silently: bool) -> None:
        task_class, state = self._task.task_class, self._session_state
        state.ledger.evict(self._column, sign * _ONE, task_class)
        state.nodes.meet(self._task, -sign)
        if not silently:
            state.hooks.moved(self._job, task_class, self._column, -sign * _ONE)


class Arrival:
    """Change: the replacement of a task that departs takes idle room of another node."""

    def __init__(self, session_state: SessionState, job: Job, task: Task, column: int) -> None:
        self._session_state = session_state
        self._job = job
        self._task = task
        self._node = session_state.nodes.name(column)
        self._column: IntArray = np.array([column], dtype=np.int64)
        self._version = session_state.ledger.version

    def do(self) -> None:
        """Take the room."""
        self._count(1, silently=False)

    def undo(self, *, final: bool) -> None:
        """Leave the room."""
        self._count(-1, silently=final)
        self._session_state.ledger.version = self._version

    def _count(self, sign: int, *, silently: bool) -> None:
        task, task_class, state = self._task, self._task.task_class, self._session_state
        state.ledger.place(self._column, sign * _ONE, task_class, waiting=False)
        before, task.node = task.node, self._node
        state.nodes.meet(task, sign)
        task.node = before
        if not silently:
            state.hooks.moved(self._job, task_class, self._column, sign * _ONE)


def depart(session: Session, job: Job, task: Task) -> None:
    """Let a task of a job leave its node."""
    state, column = _state(session), session.cluster_state.nodes.column(task.node)
    session.journal.make(Departure(state, job, task, column))


def arrive(session: Session, job: Job, task: Task, column: int) -> None:
    """Reserve room in a column for the replacement of a task that departs."""
    session.journal.make(Arrival(_state(session), job, task, column))


def _state(session: Session) -> SessionState:
    return SessionState(session.cluster_state.nodes, session.hooks, session.failures)
