"""backfill (A04): places tasks without requests on nodes by predicates and scores.

There is no trial: a task placed here is bound as soon as its job is ready, together with what else
is allocated for the job (SS11).
"""

import heapq
from collections.abc import Iterator

from pumice.plugins import Arguments
from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.placement.choice import PlacementTarget
from services.scheduler.engine.session.ordering import by_queue
from services.scheduler.engine.session.session import Session
from services.scheduler.engine.tasks.task import Task
from services.scheduler.policy.actions.domains import domains
from services.scheduler.policy.actions.job_attempt import admit
from services.scheduler.policy.states.queue_gates import QueueGates
from shared.model.status import TaskStatus


def execute(session: Session, arguments: Arguments) -> None:  # noqa: ARG001 - not read here
    """Place pending best-effort tasks of valid jobs, in the order queue, job, task.

    Those that wait on a node for an eviction are looked at again (A04).
    """
    _admit(session)
    for job in session.jobs:
        for task in list(job.by_status[TaskStatus.PIPELINED].values()):
            if task.task_class.best_effort:
                session.withdraw(job, task)
    for job in _in_order(session):
        with session.isolate("backfill", job):
            for run in _runs(sorted(_wanting(job), key=session.hooks.task_order)):
                left = _place(session, job, run)
                if left:
                    failure = session.fail(job, left)
                    session.explain(job, "predicate", failure.text(), failure)


def _admit(session: Session) -> None:
    """Remove the gates of tasks that wait only for their queue; Volcano does not."""
    gates = session.store(QueueGates)
    for job in session.jobs:
        queue = session.queue(job.queue)
        if not job.gated or job.is_pending or queue is None:
            continue
        with session.isolate("backfill", job):
            if session.hooks.job_valid(job) is None:
                for task in job.by_status[TaskStatus.PENDING].values():
                    if task.task_class.best_effort and gates.may_lift(task):
                        admit(session, queue, job, [task])


def _place(session: Session, job: Job, run: list[Task]) -> list[Task]:
    """Place as many equal tasks as fit; return the others."""
    sub = job.sub_jobs.of_task(run[0]) if job.sub_jobs else None
    while run:
        for within in domains(session, job) if job.domain_key else (None,):
            target = PlacementTarget(job, sub, within=within)
            columns = session.choose(run[0].task_class, len(run), waiting=False, target=target)
            if columns:
                break
        else:
            break
        placed, run = run[: len(columns)], run[len(columns) :]
        session.place(job, placed, columns, waiting=False)
        if session.hooks.job_ready(job) == 0:
            session.dispatch(job)
    return run


def _in_order(session: Session) -> Iterator[Job]:
    wanting = []
    for job in session.jobs:
        if job.pending_best_effort and not job.is_pending and _wanting(job):
            with session.isolate("backfill", job):
                if session.hooks.job_valid(job) is None:
                    wanting.append(job)
    queues, jobs = by_queue(session, wanting, session.isolate)
    while queues:
        _, queue = heapq.heappop(queues)
        heap = jobs[queue.name]
        while heap:
            yield heapq.heappop(heap)[1]


def _wanting(job: Job) -> list[Task]:
    pending = job.by_status[TaskStatus.PENDING].values()
    return [
        task
        for task in pending
        if task.task_class.best_effort and not (task.gated or task.backoff_reason)
    ]


def _runs(tasks: list[Task]) -> Iterator[list[Task]]:
    """Split tasks into runs that share class and role."""
    run: list[Task] = []
    for task in tasks:
        if run and (task.task_class is not run[0].task_class or task.role != run[0].role):
            yield run
            run = []
        run.append(task)
    if run:
        yield run
