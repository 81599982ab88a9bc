"""Evictions within a session: their changes in the journal, and their commit (SS10).

An evicted task is Releasing from then on: it still uses its node, but no longer counts for its job
and queue, and its resources are part of what the node will have idle (T08). No eviction is in the
plan before a commit; undoing a trial puts every victim back as it was.
"""

from collections.abc import Sequence

import numpy as np

from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.journal import UndoableChange
from services.scheduler.engine.plan import Eviction
from services.scheduler.engine.session.changes import Placed, SessionState
from services.scheduler.engine.tasks.task import Task
from shared.contracts.messages import Preemptor
from shared.model.status import TaskStatus

_ONE = np.ones(1, dtype=np.int64)


class Evicted:
    """Change: one task was evicted, for a preemptor or, by shuffle, for none."""

    def __init__(
        self,
        session_state: SessionState,
        job: Job,
        task: Task,
        *,
        reason: str,
        preemptor: Task | None,
    ) -> None:
        self._session_state = session_state
        self._job = job
        self._before = task.status
        self._version = session_state.ledger.version
        self._column = np.array([session_state.nodes.column(task.node)], dtype=np.int64)
        self.task = task
        self.reason = reason
        self.preemptor = preemptor
        self.queue = job.queue

    def do(self) -> None:
        """Count the task as Releasing in job, ledger and plugins."""
        self._move(TaskStatus.RELEASING, 1)

    def undo(self, *, final: bool) -> None:
        """Restore its former status."""
        self.restore(silently=final)
        self._session_state.ledger.version = self._version

    def restore(self, *, silently: bool = False) -> None:
        """Restore its former status after any later changes."""
        self._move(self._before, -1, silently=silently)

    def _move(self, status: TaskStatus, count: int, *, silently: bool = False) -> None:
        task_class = self.task.task_class
        self._job.move([self.task], status)
        self._session_state.ledger.evict(self._column, count * _ONE, task_class)
        self._session_state.nodes.meet(self.task, -count)
        if not silently:
            self._session_state.hooks.changed(self._job, task_class, -count)
            self._session_state.hooks.moved(self._job, task_class, self._column, -count * _ONE)


class Withdrawn:
    """Change: a Pipelined task is pending again."""

    def __init__(self, session_state: SessionState, job: Job, task: Task) -> None:
        column = session_state.nodes.column(task.node)
        self._session_state = session_state
        self._placed = Placed(session_state, job, [task], [column], waiting=True)

    def do(self) -> None:
        """Take it off the node."""
        self._placed.undo(final=False)
        self._session_state.ledger.version = self._session_state.ledger.tick

    def undo(self, *, final: bool) -> None:  # noqa: ARG002 - the placement's own undo follows
        """Put it back on the node."""
        self._placed.do()


class Reprieved:
    """Change: the eviction of a task was undone."""

    def __init__(self, evicted: Evicted) -> None:
        self.evicted = evicted

    def do(self) -> None:
        """Undo the eviction."""
        self.evicted.restore()

    def undo(self, *, final: bool) -> None:  # noqa: ARG002 - the eviction's own undo follows
        """Evict again, so that changes before this one find the task as they left it."""
        self.evicted.do()


def nomination(job: Job, task: Task) -> Preemptor:
    """Return the nomination of a task of a job to the node that it waits on."""
    return Preemptor(
        pod=task.key, uid=task.uid, node=task.node, queue=job.queue, priority=job.priority
    )


def committed(changes: Sequence[UndoableChange]) -> tuple[list[Eviction], list[Preemptor]]:
    """Return the evictions among these changes, and the preemptors that are Pipelined for them.

    ⚠ A task is nominated to its node only if something was evicted for this very task (SS11).
    """
    standing: dict[str, Evicted] = {}
    for change in changes:
        if isinstance(change, Evicted):
            standing[change.task.uid] = change
        elif isinstance(change, Reprieved):
            del standing[change.evicted.task.uid]
    evictions = [
        Eviction(
            pod=change.task.key,
            uid=change.task.uid,
            node=change.task.node,
            job=change.task.job_key,
            owner_job=change.task.owner_job,
            queue=change.queue,
            reason=change.reason,
            preemptor=change.preemptor.key if change.preemptor else "",
            preemptor_uid=change.preemptor.uid if change.preemptor else "",
        )
        for change in standing.values()
    ]
    preemptors = {eviction.preemptor_uid for eviction in evictions}
    nominations = [
        nomination(change.job, task)
        for change in changes
        if isinstance(change, Placed) and change.waiting
        for task in change.tasks
        if task.uid in preemptors
    ]
    return evictions, nominations
