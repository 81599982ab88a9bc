"""The deadline of a job: it has run for as long as it may (`shared.jobs.wall_time`).

The deadline follows from the objects alone, so that a process that starts anew finds the same one.
Once the phase has changed, the event does not occur again for this run. Used by `plan` and
`policies`.
"""

from services.controller.job.effects import RecordEvent
from services.controller.job.facts import JobFacts
from services.controller.job.phases import ALIVE
from services.controller.job.requests import DeadlineEvent, JobRequest
from shared.api import keys
from shared.jobs.wall_time import max_runtime_s
from shared.model import durations


def deadline_of(facts: JobFacts) -> float | None:
    """Return until when a job may run, in Unix seconds; None if it does not run or has no limit."""
    limit_s = max_runtime_s(facts.job.metadata.annotations)
    if limit_s is None or facts.job.status.state.phase not in ALIVE:
        return None
    version = facts.job.status.version
    started = (p.started for p in facts.pods.values() if p.version >= version and p.started)
    begun = min(started, default=None)
    return None if begun is None else begun + limit_s


def exceeded(facts: JobFacts, *, now: float) -> tuple[JobRequest, ...]:
    """Return the request of a job whose deadline has passed."""
    due = deadline_of(facts)
    if due is None or now < due:
        return ()
    job = facts.job
    limit_s = max_runtime_s(job.metadata.annotations) or 0.0
    return (
        JobRequest(
            event=DeadlineEvent.JOB_DEADLINE_EXCEEDED,
            job_uid=job.metadata.uid,
            version=job.status.version,
            why=f"the job has run for {durations.text(round(limit_s))}, the most that"
            f" metadata.annotations[{keys.MAX_RUNTIME}] allows",
        ),
    )


def events_of(request: JobRequest) -> tuple[RecordEvent, ...]:
    """Return the Event of a deadline that has passed; nothing for another request."""
    if request.event != DeadlineEvent.JOB_DEADLINE_EXCEEDED:
        return ()
    occasion = f"{request.event}/{request.version}"
    return (
        RecordEvent(
            reason=request.event.value, message=request.why, warning=True, occasion=occasion
        ),
    )
