"""The order in which victims are looked at: who can be missed best comes first."""

from collections.abc import Sequence

from services.scheduler.engine.records import Job, Task
from services.scheduler.engine.session import Session


def in_order(session: Session, victims: Sequence[Task], taker: Task) -> list[Task]:
    """Return victims by queue (`victim_queue_order`, else last in line first), job, and task.

    Within queue and job the last ones in order come first; jobs that no plugin tells apart are not
    told apart by age either, so that their tasks mingle. Tasks without a job go first.
    """
    hooks = session.hooks
    own = session.job_of(taker)
    asking = session.queue(own.queue) if own else None
    jobs = {task.uid: session.job_of(task) for task in victims}

    def job_key(task: Task) -> tuple[object, ...]:
        job = jobs[task.uid]
        return tuple(fn(job) for fn in hooks.job_order.all()) if job else ()

    def queue_key(job: Job) -> tuple[object, ...]:
        queue = session.queue(job.queue)
        return hooks.queue_key(queue) if queue else ()

    def kin_key(job: Job) -> tuple[object, ...]:
        queue = session.queue(job.queue)
        if queue is None or asking is None:
            return ()
        return tuple(fn(queue, asking) for fn in hooks.victim_queue_order.all())

    orphans = [task for task in victims if jobs[task.uid] is None]
    others = [task for task in victims if jobs[task.uid] is not None]
    # One stable sort per rule, the most important one last.
    orphans.sort(key=hooks.task_key, reverse=True)
    others.sort(key=hooks.task_key, reverse=True)
    others.sort(key=job_key, reverse=True)
    if asking is not None:
        others.sort(key=lambda task: queue_key(_known(jobs[task.uid])), reverse=True)
        others.sort(key=lambda task: kin_key(_known(jobs[task.uid])))
    return orphans + others


def _known(job: Job | None) -> Job:
    assert job is not None
    return job
