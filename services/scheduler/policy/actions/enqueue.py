"""enqueue (A01): lets pending PodGroups into their queues while resources are expected for them.

The job controller creates their pods only then. A refused job does not block those behind it.
"""

import heapq
from typing import Final

from pumice.plugins import Arguments, Vote
from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.plan import Shortage
from services.scheduler.engine.session.activation import activate_next
from services.scheduler.engine.session.ordering import by_queue
from services.scheduler.engine.session.session import Session
from services.scheduler.policy.arguments import seconds

_TIMEOUT_S: Final = 300.0


def inqueue_timeout_s(arguments: Arguments) -> float:
    """Return `inqueueTimeout`: how long a group that does not start reserves; 0 = forever.

    `SchedulerState` reads it, not the action (`engine.jobs.reservation_timeouts`).
    """
    return seconds(arguments, "inqueueTimeout", _TIMEOUT_S)


def execute(session: Session, arguments: Arguments) -> None:  # noqa: ARG001 - see above
    """Move every pending job that may enter to phase Inqueue, in queue and job order."""
    hooks = session.hooks
    queues, jobs = by_queue(
        session, (job for job in session.jobs if job.is_pending), session.isolate
    )
    while queues:
        _, queue = heapq.heappop(queues)
        waiting = jobs[queue.name]
        if not waiting:
            continue
        _, job = heapq.heappop(waiting)
        with session.isolate("enqueue", job):
            if _admit(session, job) and (following := activate_next(session, job)) is not None:
                heapq.heappush(waiting, (hooks.job_order(following), following))
        with session.isolate("enqueue", queue):
            heapq.heappush(queues, (hooks.queue_order(queue), queue))


def _admit(session: Session, job: Job) -> bool:
    hooks = session.hooks
    session.places.turn(job)
    opinion = None if job.min_resources is None else hooks.job_enqueueable(job)
    if opinion is not None and opinion.vote is Vote.REJECT:
        session.explain(
            job,
            "enqueue",
            opinion.reason or "not admitted to its queue",
            shortages=[Shortage.of(*short) for short in opinion.short],
            budget=opinion.budget,
        )
        return False
    hooks.job_enqueued(job)
    session.rephase(job, "Inqueue")
    return True
