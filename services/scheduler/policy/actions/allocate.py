"""allocate (A02, A03): gangs are placed, whole or not at all, queue by queue and job by job.

An attempt places tasks of one job until it is ready. A job that is ready is committed. ⚠ A job that
is only pipelined, since it waits for resources to be released, is neither committed nor undone
(SS10): it keeps its nodes for the rest of the session, so that no later job takes them, and is
decided again in the next one. All other attempts are undone. A job that is ready and has tasks left
is visited again for each of them.
"""

import heapq
from collections import deque
from typing import Final

from pumice.plugins import Arguments
from services.scheduler.engine.jobs.records import Job, Queue
from services.scheduler.engine.session.ordering import JobHeap, by_queue
from services.scheduler.engine.session.session import Session
from services.scheduler.policy.actions.domains import DomainAttempt
from services.scheduler.policy.actions.failed_attempts import FailedAttempts
from services.scheduler.policy.actions.grouped import GroupedJobAttempt, waits_for_network
from services.scheduler.policy.actions.job_attempt import JobAttempt, Worklist
from shared.model.status import TaskStatus

_OF_ITS_OWNER: Final = frozenset({"gang", "binder"})
"""Gates of jobs that do not wait for nodes: missing pods, failed binds."""


def execute(session: Session, arguments: Arguments) -> None:  # noqa: ARG001 - see below
    """Place pending tasks that request resources.

    `predicateErrorCacheEnable` (K07) changes no decision: of equal tasks one is tried anyway.
    """
    worklists = _worklists(session)
    failed = FailedAttempts(session)
    queues, jobs = by_queue(
        session, (job for job in session.jobs if job.key in worklists), session.isolate
    )
    while queues:
        _, queue = heapq.heappop(queues)
        waiting = jobs[queue.name]
        with session.isolate("allocate", queue):
            if session.hooks.overused(queue):
                _explain_overused(session, queue, waiting)
                continue
            if not waiting:
                continue
            _, job = heapq.heappop(waiting)
            with session.isolate("allocate", job):
                session.places.turn(job)
                worklist = worklists[job.key]
                if attempt(session, queue, job, worklist, failed) and worklist:
                    heapq.heappush(waiting, (session.hooks.job_order(job), job))
            heapq.heappush(queues, (session.hooks.queue_order(queue), queue))


def attempt(
    session: Session, queue: Queue, job: Job, worklist: Worklist, failed: FailedAttempts
) -> bool:
    """Place tasks of a job, unless an equal one just failed; return whether it was committed."""
    tasks = tuple(worklist)
    hold = session.hooks.job_turn(job)
    if hold is not None:
        session.block_start(job, hold)
    elif not failed.would_fail(job, tasks):
        if _attempt_of(job)(session, queue, job, worklist).run():
            return True
        if job.key not in session.start_blocked:
            failed.learn(job, tasks)
    if _waits_for_room(session, job):
        session.hooks.job_waits(job)
    return False


def _attempt_of(job: Job) -> type[JobAttempt | DomainAttempt | GroupedJobAttempt]:
    if job.sub_jobs is not None:
        return GroupedJobAttempt
    return DomainAttempt if job.domain_key else JobAttempt


def _waits_for_room(session: Session, job: Job) -> bool:
    """Tell whether a job waits for nodes, a share, a release or a plugin, and not for its owner."""
    why = session.explanations.get(job.key)
    return why is None or why.gate not in _OF_ITS_OWNER


def _explain_overused(session: Session, queue: Queue, waiting: JobHeap) -> None:
    for _, job in sorted(waiting, key=lambda entry: entry[0]):
        session.places.turn(job)
        session.explain(job, "queue", f"queue {queue.name} has used up what it deserves")


def _worklists(session: Session) -> dict[str, Worklist]:
    """Return job → tasks to place, for the jobs that may be visited."""
    enqueues = "enqueue" in session.actions
    worklists: dict[str, Worklist] = {}
    for job in session.jobs:
        if job.is_pending:
            if enqueues:
                continue
            session.rephase(job, "Inqueue")
        with session.isolate("allocate", job):
            worklist = _worklist(session, job)
            if worklist:
                worklists[job.key] = worklist
    return worklists


def _worklist(session: Session, job: Job) -> Worklist:
    """Return the tasks to place, in order; none for a job that is not valid."""
    if job.sub_jobs is not None and waits_for_network(session, job):
        session.explain(job, "topology", "the HyperNodes do not make a tree")
        return deque()
    invalid = session.hooks.job_valid(job)
    if invalid is not None:
        session.explain(job, "gang", invalid.message)
        return deque()
    pending = [
        t for t in job.by_status[TaskStatus.PENDING].values() if not t.task_class.best_effort
    ]
    return deque(sorted(pending, key=session.hooks.task_order))
