"""Limits on submitted jobs: how many Jobs of a user or queue may be there that have not finished.

All else that is limited waits in its queue (plugin `limits` of the scheduler). A job beyond this
limit is refused, because waiting jobs are objects that the API server stores.
"""

from services.admission.rules.review import ReviewFacts, SubmittedJob, Terms
from shared.api.batch import ENDED, Job
from shared.api.scheduling import DEFAULT_QUEUE
from shared.jobs.limits import LimitHolder, scopes_of
from shared.jobs.problems import Problem, Problems
from shared.jobs.users import user_of


def submission(job: Job) -> SubmittedJob | None:
    """Return queue, user and namespace of a job; None if it has ended."""
    if job.status.state.phase in ENDED:
        return None
    holder = LimitHolder(user_of(job.metadata.annotations), job.metadata.namespace)
    return SubmittedJob(job.spec.queue or DEFAULT_QUEUE, holder)


def submission_problems(job: Job, facts: ReviewFacts, terms: Terms) -> Problems:
    """Return which limits a new job would exceed."""
    limits = terms.submit_limits
    new = submission(job)
    if not limits or new is None:
        return

    def parent_of(queue: str) -> str:
        known = facts.queues.get(queue)
        return known.spec.parent if known is not None else ""

    counts = dict.fromkeys(scopes_of(limits, new.queue, new.holder, parent_of), 0)
    for uid, other in facts.submitted.items():
        if uid != job.metadata.uid:
            for scope in scopes_of(limits, other.queue, other.holder, parent_of):
                if scope in counts:
                    counts[scope] += 1
    for (number, holder), count in counts.items():
        limit = limits[number]
        if count >= limit.submitted:
            yield Problem(
                "spec.queue",
                f"{limit.holds(holder)} {count} of {limit.submitted} submitted jobs in queue"
                f" {limit.queue}: wait until one ends, or delete one",
            )
