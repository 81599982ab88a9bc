"""A job's next status: counts, phase, conditions (J26), compared before it is written.

The status is the controller's own field: `plan` makes the next one here, the shell writes the
difference.
"""

import msgspec

from services.controller.job.facts import Counts
from services.controller.job.phases import ALIVE
from services.controller.job.requests import DeadlineEvent
from shared.api import time
from shared.api.batch import (
    Job,
    JobCondition,
    JobPhase,
    JobState,
    JobStatus,
    TaskState,
)
from shared.api.core import PodPhase
from shared.model import durations

INVALID_SPEC = "InvalidSpec"
QUEUE_NOT_OPEN = "QueueNotOpen"
CLAIM_MISSING = "PVCError"
HELD = frozenset({INVALID_SPEC, QUEUE_NOT_OPEN, CLAIM_MISSING})
"""Reasons why a new job is not started; removed when it is."""
NAMES_IN_USE = "NamesInUse"
QUOTA_EXCEEDED = "QuotaExceeded"
REFUSED = "Refused"
KEPT = frozenset({REFUSED, DeadlineEvent.JOB_DEADLINE_EXCEEDED.value})
"""Reasons of a kill that the final phase has, too."""
WAITS_FOR_ROOM = frozenset({NAMES_IN_USE, QUOTA_EXCEEDED, REFUSED})
"""Reasons why some objects of a job are not created yet; removed when all are."""


def with_counts(status: JobStatus, counts: Counts) -> JobStatus:
    """Return `status` with fresh counts."""
    return msgspec.structs.replace(
        status,
        pending=counts.pending,
        running=counts.running,
        succeeded=counts.succeeded,
        failed=counts.failed,
        unknown=counts.unknown,
        terminating=counts.terminating,
        task_status_count={
            task: TaskState(phase=dict(sorted(phases.items())))
            for task, phases in sorted(counts.by_task.items())
        },
    )


def not_below(status: JobStatus, before: JobStatus) -> JobStatus:
    """Return `status` with at least as many succeeded and failed pods as `before`.

    The pods of a job that has ended may be deleted; its counts stay.
    """
    by_task = dict(status.task_status_count)
    for task, known in before.task_status_count.items():
        now = dict(by_task[task].phase) if task in by_task else {}
        for phase in (PodPhase.SUCCEEDED, PodPhase.FAILED):
            if known.phase.get(phase, 0) > now.get(phase, 0):
                now[phase] = known.phase[phase]
        if now:
            by_task[task] = TaskState(phase=dict(sorted(now.items())))
    return msgspec.structs.replace(
        status,
        succeeded=max(status.succeeded, before.succeeded),
        failed=max(status.failed, before.failed),
        task_status_count=dict(sorted(by_task.items())),
    )


def entered(
    job: Job, status: JobStatus, phase: JobPhase, *, now: float, reason: str = "", message: str = ""
) -> JobStatus:
    """Return `status` in `phase`: transition time, condition moved to the end, running duration.

    As in Volcano the duration is written by kills and at the end only (J21).
    """
    at = time.format_seconds(now)
    others = tuple(c for c in status.conditions if c.status != phase)
    return msgspec.structs.replace(
        status,
        state=JobState(phase=phase, reason=reason, message=message, last_transition_time=at),
        conditions=(*others, JobCondition(status=phase, last_transition_time=at)),
        running_duration="" if phase in ALIVE else _since_creation(job, now),
    )


def explained(status: JobStatus, *, reason: str, message: str) -> JobStatus:
    """Return `status` with the reason why the job makes no progress, in the same phase."""
    state = msgspec.structs.replace(status.state, reason=reason, message=message)
    return msgspec.structs.replace(status, state=state)


def _since_creation(job: Job, now: float) -> str:
    """J21: from the job's creation to its last transition."""
    if not job.metadata.creation_timestamp:
        return ""
    created = time.parse(job.metadata.creation_timestamp)
    return durations.text(max(0, int(now) - int(created)))
