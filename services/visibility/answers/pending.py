"""Jobs that wait, by queue and place in line, as one session found them."""

from collections.abc import Iterable

from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.plan import Explanation, Plan
from services.scheduler.engine.session.session import Session
from services.visibility.answers.wording import meta_of, owner_of, shortages
from shared.api.scheduling import PodGroupConditionType, PodGroupPhase
from shared.api.visibility import PendingJob


def pending_jobs(session: Session, plan: Plan) -> tuple[PendingJob, ...]:
    """Return the jobs that a session whose actions have run leaves waiting."""
    jobs = session.cluster_state.jobs
    found = [
        _pending(job, why)
        for why in plan.explanations
        if (job := jobs.get(why.job)) is not None and waits(job)
    ]
    return in_line(found)


def waits(job: Job) -> bool:
    """Tell whether a gang has not got what it needs at least; extra pods of one may wait."""
    return job.has_group and not job.is_ready and job.phase != PodGroupPhase.COMPLETED.value


def in_line(found: Iterable[PendingJob]) -> tuple[PendingJob, ...]:
    """Return jobs by queue and place; those that had no turn come behind."""
    return tuple(sorted(found, key=_place))


def _place(job: PendingJob) -> tuple[str, bool, int, str, str]:
    meta = job.metadata
    return job.queue, not job.position, job.position, meta.namespace, meta.name


def _pending(job: Job, why: Explanation) -> PendingJob:
    return PendingJob(
        metadata=meta_of(job),
        owner=owner_of(job),
        pod_group=job.name,
        queue=why.queue,
        position=why.position,
        priority=job.priority,
        gate=why.gate,
        message=why.message + why.details,
        shortages=shortages(why.shortages),
        waiting_since=waiting_since(job),
    )


def waiting_since(job: Job) -> str | None:
    """Return since when a job waits: its creation, or the end of the time that it was placed."""
    stamps = {condition.type: stamp.time for condition, stamp in job.seen.stamps.items()}
    waits_since = stamps.get(PodGroupConditionType.UNSCHEDULABLE.value, "")
    placed = stamps.get(PodGroupConditionType.SCHEDULED.value, "")
    return (waits_since if placed and waits_since > placed else job.created) or None
