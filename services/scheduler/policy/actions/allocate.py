"""allocate (A02, A03): gangs are placed, whole or not at all, queue by queue and job by job.

A turn places tasks of one job until it is ready. What is ready is committed; what would be ready
once releases have happened keeps its place for the rest of the session (neither committed nor
undone ⚠); all else is undone. A job that is ready with tasks left gets further turns, one task
each.
"""

import heapq
from collections import deque
from collections.abc import Mapping
from itertools import islice, takewhile
from typing import Any

from services.scheduler.engine.failures import need_continue
from services.scheduler.engine.records import Job, Queue, Task
from services.scheduler.engine.session import Session
from services.scheduler.policy.actions.queues import by_queue
from shared.model.status import TaskStatus

Worklist = deque[Task]


def execute(session: Session, arguments: Mapping[str, Any]) -> None:  # noqa: ARG001 - see below
    """Place pending tasks that ask for resources.

    `predicateErrorCacheEnable` (K07) changes no decision: equal tasks are looked at once anyway.
    """
    enqueues = "enqueue" in session.actions
    worklists = {}
    for job in session.jobs:
        if job.is_pending:
            if enqueues:
                continue
            session.rephase(job, "Inqueue")
        worklist = _worklist(session, job)
        if worklist:
            worklists[job.key] = worklist
    queues, jobs = by_queue(session, (job for job in session.jobs if job.key in worklists))
    while queues:
        _, queue = heapq.heappop(queues)
        waiting = jobs[queue.name]
        if session.hooks.is_overused(queue):
            for _, job in sorted(waiting, key=lambda entry: entry[0]):
                session.turn(job)
                session.explain(job, "queue", f"queue {queue.name} has used up what it deserves")
            continue
        if not waiting:
            continue
        _, job = heapq.heappop(waiting)
        session.turn(job)
        turn = _Turn(session, queue, job, worklists[job.key])
        if turn.run() and worklists[job.key]:
            heapq.heappush(waiting, (session.hooks.job_key(job), job))
        heapq.heappush(queues, (session.hooks.queue_key(queue), queue))


def _worklist(session: Session, job: Job) -> Worklist:
    """Return the tasks to place, in order; none for a job that is not valid."""
    invalid = session.hooks.invalidity(job)
    if invalid is not None:
        session.explain(job, "gang", invalid.message)
        return deque()
    pending = [t for t in job.by_status[TaskStatus.PENDING].values() if not t.shape.best_effort]
    return deque(sorted(pending, key=session.hooks.task_key))


class _Turn:
    """One attempt at one job."""

    def __init__(self, session: Session, queue: Queue, job: Job, tasks: Worklist) -> None:
        self._session = session
        self._queue = queue
        self._job = job
        self._tasks = tasks
        self._failed = session.failures(job)

    def run(self) -> bool:
        """Place tasks until the job is ready; return whether it was committed."""
        session, job = self._session, self._job
        position = session.journal.position
        with session.trial() as keep:
            self._place()
            if session.hooks.missing(job) == 0:
                keep()
                session.commit(job, position)
                return True
            if session.hooks.pipelined(job):
                keep()
        return False

    def _place(self) -> None:
        session, job, tasks = self._session, self._job, self._tasks
        while tasks:
            run = self._next_run()
            head = run[0]
            allowed = session.hooks.allowed(self._queue, head.shape, len(run))
            if allowed == 0:
                session.explain(job, "quota", self._no_share(head))
                self._skip(self._equals())
                continue
            if head.gated:
                session.explain(job, "gang", f"pod {head.name} has scheduling gates")
                self._skip(self._equals())
                continue
            if head.role and head.role in self._failed.roles:
                self._skip(self._equals())
                continue
            if not self._place_run(run[:allowed]):
                failure = session.fail(job, self._equals())
                session.explain(job, "predicate", failure.text(), failure)
                self._skip(self._equals())
                if not need_continue(job, self._failed.roles):
                    break
                continue
            if session.hooks.missing(job) == 0:
                break

    def _no_share(self, task: Task) -> str:
        """Say that the queue may not have more, and of what the whole cluster has too little."""
        session = self._session
        left = session.total - session.ledger.total_used()
        short = [
            name
            for name, asked, free in zip(session.resources, task.shape.request, left, strict=False)
            if asked > free and name != "pods"
        ]
        text = f"queue {self._queue.name} has no share left for {task.name}"
        return f"{text}: insufficient {', '.join(short)}" if short else text

    def _equals(self, limit: int | None = None) -> list[Task]:
        """Return the tasks at the head that share class and role: what one's fate says of all."""
        head = self._tasks[0]
        alike = takewhile(
            lambda task: (
                task.shape is head.shape
                and task.role == head.role
                and task.nominated == head.nominated
                and task.gated == head.gated
            ),
            self._tasks,
        )
        return list(islice(alike, limit))

    def _next_run(self) -> list[Task]:
        """Return as many equal tasks as the job lacks, at least one."""
        return self._equals(max(1, self._session.hooks.missing(self._job)))

    def _skip(self, tasks: list[Task]) -> None:
        for _ in tasks:
            self._tasks.popleft()

    def _place_run(self, run: list[Task]) -> bool:
        """Place some of these equal tasks; return whether any could be."""
        session = self._session
        for waiting in (False, True):
            columns = self._columns(run, waiting=waiting)
            if columns:
                placed = run[: len(columns)]
                self._skip(placed)
                session.place(self._job, placed, columns, waiting=waiting)
                return True
        return False

    def _columns(self, run: list[Task], *, waiting: bool) -> list[int]:
        session, head = self._session, run[0]
        if head.nominated:
            column = session.replica.nodes.column(head.nominated)
            candidates = session.candidates(head.shape)
            if column >= 0 and candidates.future[column]:
                # The node that was cleared for this task comes first; try no other in this round.
                fits = candidates.future if waiting else candidates.idle
                return [column] if fits[column] else []
            run = run[:1]
        return session.choose(head.shape, len(run), waiting=waiting)
