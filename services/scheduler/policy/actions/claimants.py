"""Claimants: jobs for whose pods others were evicted are placed first in each cycle.

A pod is nominated to the node on which others are evicted for it (SS11). The resources that they
release belong to its job until the job has started, is deleted, or cannot use them any more. So
before anything else is placed or evicted, each claimant is placed: bound where there is room
already, also on other nodes, else Pipelined, which keeps others off for the rest of the cycle. A
claimant that finds no place loses its claim and waits like every other job; where its nominated
node is full, it may evict elsewhere.

No state is kept between cycles: nominations are in the statuses of pods, or still in COMMAND. So a
new leader sees the same claims.
"""

from collections import deque
from typing import Any

import numpy as np

from services.scheduler.engine.jobs.records import NOWHERE, Job, Queue
from services.scheduler.engine.session.session import Session
from services.scheduler.engine.tasks.task import Task
from services.scheduler.policy.actions.allocate import attempt
from services.scheduler.policy.actions.evictions import has_idle
from services.scheduler.policy.actions.failed_attempts import FailedAttempts
from services.scheduler.policy.actions.job_attempt import JobAttempt
from shared.model.status import TaskStatus


def take_first_turns(session: Session) -> None:
    """Place the jobs with nominated pods, the most important first."""
    claimants = []
    for job in session.jobs:
        with session.isolate("allocate", job):
            queue = session.queue(job.queue)
            if queue is not None and nominated(job) and _may_start(session, job):
                claimants.append((session.hooks.job_order(job), job, queue))
    claimants.sort(key=lambda claimant: claimant[0])
    for _, job, queue in claimants:
        with session.isolate("allocate", job):
            _keep_room(session, job, queue)
    failed = FailedAttempts(session)
    for _, job, queue in claimants:
        with session.isolate("allocate", job):
            _take_turn(session, job, queue, failed)


def nominated(job: Job) -> list[Task]:
    """Return the pending pods of a job that are nominated to a node."""
    return [
        t
        for t in job.by_status[TaskStatus.PENDING].values()
        if t.nominated and not t.backoff_reason
    ]


def _may_start(session: Session, job: Job) -> bool:
    waits_to_enter = job.is_pending and "enqueue" in session.actions
    return not waits_to_enter and session.hooks.job_valid(job) is None


def _keep_room(session: Session, job: Job, queue: Queue) -> None:
    """Pipeline nominated pods on their nodes, so that no other claimant takes their room."""
    left = deque(nominated(job))
    while left:
        claims = _equal_claims(session, left)
        head = left[0]
        for _ in claims:
            left.popleft()
        allowed = session.hooks.allocatable(queue, head.task_class, len(claims))
        if not allowed:
            continue
        future = session.candidates(head.task_class).future
        keeping = [(task, at) for task, at in claims if at != NOWHERE and future[at]][:allowed]
        if keeping:
            tasks, columns = zip(*keeping, strict=True)
            session.place(job, list(tasks), list(columns), waiting=True)


def _equal_claims(session: Session, tasks: deque[Task]) -> list[tuple[Task, int]]:
    """Return the equal tasks at the head with distinct nodes, to be checked together."""
    head, claims, taken = tasks[0], [], set[int]()
    alone = session.candidates(head.task_class).stepwise
    for task in tasks:
        column = session.cluster_state.nodes.column(task.nominated)
        if column in taken or (task.task_class, task.role) != (head.task_class, head.role):
            break
        claims.append((task, column))
        taken.add(column)
        if alone:
            break
    return claims


def _take_turn(session: Session, job: Job, queue: Queue, failed: FailedAttempts) -> None:
    """Place a claimant's pods, those with a nominated node first.

    The nodes planned for its other pods at the eviction are not stored. If they do not complete the
    gang in their order, the small ones are tried first, then the large ones.
    """
    if _waits_as_it_is(session, job):
        return
    for task in list(job.by_status[TaskStatus.PIPELINED].values()):
        session.withdraw(job, task)
        session.failures(job).undone_placements.pop(task.uid, None)
    _start_at_once(session, job, queue)
    for by_size in (0, 1, -1):
        if not nominated(job):
            break
        session.failures(job).begin_again()
        worklist = _claims_first(session, job, by_size)
        while worklist and attempt(session, queue, job, worklist, failed):
            if not worklist or not worklist[0].nominated:
                break


def _waits_as_it_is(session: Session, job: Job) -> bool:
    """Tell whether nothing is idle for a fully nominated gang: its turn would change nothing."""
    waiting = job.by_status[TaskStatus.PIPELINED].values()
    if nominated(job) or not session.hooks.job_pipelined(job):
        return False
    classes = {task.task_class.id: task.task_class for task in waiting}
    if any(has_idle(session, each).any() for each in classes.values()):
        return False
    hold = session.hooks.job_turn(job)
    if hold is not None:
        return False
    session.hooks.job_waits(job)
    return True


def _start_at_once(session: Session, job: Job, queue: Queue) -> None:
    """Start a claimant on idle nodes elsewhere while its victims terminate."""
    waiting = [task for task in nominated(job) if not _has_place(session, task)]
    if not waiting or job.sub_jobs is not None or session.hooks.job_turn(job) is not None:
        return
    if all(session.candidates(task.task_class).idle.any() for task in waiting):
        worklist = _claims_first(session, job, 0)
        while JobAttempt(session, queue, job, worklist, at_once=True).run():
            if not worklist or not worklist[0].nominated:
                break
        session.explanations.pop(job.key, None)  # of why it does not start elsewhere


def _has_place(session: Session, task: Task) -> bool:
    column = session.cluster_state.nodes.column(task.nominated)
    return column != NOWHERE and bool(session.candidates(task.task_class).idle[column])


def _claims_first(session: Session, job: Job, by_size: int) -> deque[Task]:
    """Return a job's tasks, those with a nominated node first, with 1 or -1 by their size then."""

    def key(task: Task) -> tuple[Any, ...]:
        share = (task.task_class.request / np.maximum(session.total, 1)).max()
        return not task.nominated, by_size * float(share), session.hooks.task_order(task)

    pending = job.by_status[TaskStatus.PENDING].values()
    return deque(sorted((t for t in pending if not t.task_class.best_effort), key=key))
