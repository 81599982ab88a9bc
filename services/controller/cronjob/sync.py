"""The sync of one CronJob: account for its jobs, start the one that is due, delete old ones.

The order makes a crash harmless at any point. A job's name follows from its due time, so no job is
created twice. A process may die between making a job and writing the status: the next one finds the
job by its due time and adds it to the list of active jobs. Old jobs are deleted only after the
status has recorded their due times and ends.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from services.controller.cronjob import jobs as made
from services.controller.cronjob.steps import (
    CreateJob,
    DeleteJob,
    Failed,
    NameTaken,
    ReadJob,
    RecordCronJobEvent,
    StepGenerator,
    SyncResult,
    WriteCronJobStatus,
    failure,
)
from shared.api import time
from shared.api.batch import Job, JobPhase
from shared.api.cron import ConcurrencyPolicy, CronJob, CronJobStatus, ObjectReference
from shared.model import schedules
from shared.model.schedules import Schedule

LATE_S: Final = 0.1
"""Delay of a sync after a due time, so that no clock finds it early (X02)."""
MISSED_MAX: Final = 100
"""More missed times than this indicate a wrong clock or spec (X02)."""


class _StatusDraft:
    """The next status, as the steps of a sync change it."""

    def __init__(self, cron: CronJob) -> None:
        status = cron.status
        self._before = status
        self.active: dict[str, ObjectReference] = {ref.uid: ref for ref in status.active}
        self.scheduled = _seconds(status.last_schedule_time)
        self.succeeded = _seconds(status.last_successful_time)

    def ended(self, moment: float | None) -> None:
        """Record when a job completed."""
        if moment is not None and (self.succeeded is None or moment > self.succeeded):
            self.succeeded = moment

    def started(self, job: Job, due: float) -> None:
        """Record a running job and its due time."""
        self.active.setdefault(job.metadata.uid, made.reference(job))
        self.scheduled = max(due, self.scheduled or due)

    def remember(self, jobs: Iterable[Job]) -> None:
        """Record the due times of jobs that will be deleted, so that they are not created again."""
        for job in jobs:
            if (due := made.due_of(job)) is not None:
                self.scheduled = max(due, self.scheduled or due)

    def status(self) -> CronJobStatus:
        """Return the status as it is now."""
        return CronJobStatus(
            active=tuple(self.active.values()),
            last_schedule_time=_text(self.scheduled),
            last_successful_time=_text(self.succeeded),
        )

    @property
    def changed(self) -> bool:
        """Whether there is something to write."""
        return self.status() != self._before


def sync(cron: CronJob, jobs: Iterable[Job], *, now: float) -> StepGenerator[SyncResult]:
    """Sync a CronJob and the jobs that it controls, at Unix time `now`.

    A refusal by the API server ends the part that needed it; what was found until then is still
    written.
    """
    draft = _StatusDraft(cron)
    jobs = sorted(jobs, key=made.age_order)
    old = _old(cron, jobs)
    yield from _account(draft, jobs)
    draft.remember(old)
    outcome = yield from _find_missing(draft, jobs)
    if outcome is None:
        outcome = yield from _schedule(cron, draft, now=now)
    if draft.changed and (refused := failure((yield WriteCronJobStatus(status=draft.status())))):
        return SyncResult(failed=refused.reason)
    refusal = ""
    for job in old:
        refused = yield from _remove(job)
        refusal = refusal or (refused.reason if refused is not None else "")
    return outcome if outcome.failed or not refusal else SyncResult(failed=refusal)


def has_recorded(cron: CronJob, job: Job) -> bool:
    """Whether the status records all about a job that has ended, so that it may be deleted."""
    draft = _StatusDraft(cron)
    for _ in _account(draft, [job]):
        pass
    return not draft.changed


def _old(cron: CronJob, jobs: Sequence[Job]) -> list[Job]:
    """Return the oldest finished jobs beyond the limits; Terminated ones are in neither (X03)."""
    spec = cron.spec
    old: list[Job] = []
    for phase, limit in (
        (JobPhase.FAILED, spec.failed_jobs_history_limit),
        (JobPhase.COMPLETED, spec.successful_jobs_history_limit),
    ):
        ended = [job for job in jobs if job.status.state.phase is phase]
        old += ended[: max(0, len(ended) - limit)]
    return old


# Jobs that there are


def _account(draft: _StatusDraft, jobs: Sequence[Job]) -> StepGenerator[None]:
    """Update the list of active jobs from the existing jobs (X03)."""
    for job in jobs:
        uid, name = job.metadata.uid, job.metadata.name
        if made.is_finished(job):
            if draft.active.pop(uid, None) is not None:
                yield RecordCronJobEvent(
                    reason="SawCompletedJob",
                    message=f"Saw completed job: {name} in active, remove",
                )
            if job.status.state.phase is JobPhase.COMPLETED:
                draft.ended(_seconds(job.status.state.last_transition_time))
            if job.spec.ttl_seconds_after_finished is not None:
                draft.remember([job])
        elif uid not in draft.active and job.metadata.deletion_timestamp is None:
            due = made.due_of(job)
            if due is not None and due > (draft.scheduled or float("-inf")):
                draft.started(job, due)
            else:
                yield RecordCronJobEvent(
                    reason="OrphanedJob",
                    message=f"Saw running job {name} that is not in active",
                    warning=True,
                )


def _find_missing(draft: _StatusDraft, jobs: Sequence[Job]) -> StepGenerator[SyncResult | None]:
    """Drop active jobs that were deleted; STATE may lag, so they are read from the API server."""
    known = {job.metadata.uid for job in jobs}
    for uid, ref in list(draft.active.items()):
        if uid in known:
            continue
        # A status that another program has written may name nothing.
        found = (yield ReadJob(name=ref.name)) if ref.name else None
        if refused := failure(found):
            return SyncResult(failed=refused.reason)
        if not isinstance(found, Job) or found.metadata.uid != uid:
            del draft.active[uid]
            yield RecordCronJobEvent(
                reason="StaleReference",
                message=f"Active job {ref.name} is no more, remove",
                warning=True,
            )
    return None


# Jobs that are due


def _schedule(cron: CronJob, draft: _StatusDraft, *, now: float) -> StepGenerator[SyncResult]:
    """Start the job that is due, if one is."""
    if cron.metadata.deletion_timestamp is not None or cron.spec.suspend:
        return SyncResult()
    try:
        zone = schedules.zone(cron.spec.time_zone or "")
    except ValueError as error:
        message = f'invalid timeZone "{cron.spec.time_zone}": {error}'
        yield RecordCronJobEvent(reason="InvalidTimeZone", message=message, warning=True)
        return SyncResult(invalid=message)
    text = cron.spec.schedule
    if schedules.names_zone(text):
        yield RecordCronJobEvent(
            reason="UnsupportedSchedule",
            message=f'CRON_TZ or TZ in the schedule "{text}" is not officially supported. If set, '
            "the TimeZone field will be ignored during execution.",
            warning=True,
        )
    try:
        schedule = schedules.parse(text, within=zone)
    except ValueError as error:
        return SyncResult(invalid=str(error), unreported=True)
    return (yield from _start(cron, draft, schedule, now=now))


def _start(
    cron: CronJob, draft: _StatusDraft, schedule: Schedule, *, now: float
) -> StepGenerator[SyncResult]:
    at = int(now)
    begin = draft.scheduled if draft.scheduled is not None else _begin(cron, now)
    since = int(begin)
    following = schedule.following(since, max(since, at))
    if following is None:
        message = f"schedule {cron.spec.schedule} is never due"
        yield RecordCronJobEvent(reason="InvalidSchedule", message=message, warning=True)
        return SyncResult()
    wait = SyncResult(requeue_after_s=following + LATE_S - now)
    due = yield from _due(cron, schedule, since=since, at=at)
    if due is None or made.name_at(cron, due) in {ref.name for ref in draft.active.values()}:
        return wait
    if cron.spec.concurrency_policy is ConcurrencyPolicy.FORBID and draft.active:
        yield RecordCronJobEvent(
            reason="ForbidConcurrent",
            message="Skipping job creation because another job is already running",
            warning=True,
            occasion=str(due),
        )
        return wait
    if cron.spec.concurrency_policy is ConcurrencyPolicy.REPLACE:
        refused = yield from _replace(draft, occasion=str(due))
        if refused is not None:
            return SyncResult(failed=refused.reason)
    refused = yield from _make(cron, draft, due)
    return wait if refused is None else SyncResult(failed=refused.reason)


def _begin(cron: CronJob, now: float) -> float:
    created = _seconds(cron.metadata.creation_timestamp)
    return created if created is not None else now


def _due(cron: CronJob, schedule: Schedule, *, since: int, at: int) -> StepGenerator[int | None]:
    """Return the latest missed due time that may still be started (X02)."""
    deadline_s = cron.spec.starting_deadline_seconds
    after = since if deadline_s is None else max(since, at - deadline_s)
    due = schedule.latest(since, at)
    if due is None or due <= after:
        return None
    missed = schedules.missed(schedule, since=since, after=after, at=at, most=MISSED_MAX)
    if missed > MISSED_MAX:
        yield RecordCronJobEvent(
            reason="TooManyMissedTimes",
            message="too many missed start times. Set or decrease .spec.startingDeadlineSeconds "
            "or check clock skew",
            warning=True,
            occasion=str(due),
        )
    return due


def _replace(draft: _StatusDraft, *, occasion: str) -> StepGenerator[Failed | None]:
    """Delete the running jobs; each is read first, because it may have ended meanwhile."""
    if draft.active:
        yield RecordCronJobEvent(
            reason="ReplaceConcurrent",
            message="Replacing active job for CronJob",
            warning=True,
            occasion=occasion,
        )
    for uid, ref in list(draft.active.items()):
        found = yield ReadJob(name=ref.name)
        if refused := failure(found):
            message = f'Failed to get job "{ref.name}": {refused.reason}'
            yield RecordCronJobEvent(reason="FailedGet", message=message, warning=True)
            return refused
        same = isinstance(found, Job) and found.metadata.uid == uid
        if same and isinstance(found, Job) and not made.is_finished(found):
            gone = yield from _remove(found)
            if gone is not None:
                return gone
        del draft.active[uid]
    return None


def _remove(job: Job) -> StepGenerator[Failed | None]:
    name = job.metadata.name
    refused = failure((yield DeleteJob(job=job)))
    if refused is not None:
        message = f'Failed to delete job "{name}": {refused.reason}'
        yield RecordCronJobEvent(reason="FailedDelete", message=message, warning=True)
        return refused
    yield RecordCronJobEvent(reason="SuccessfulDelete", message=f'Deleted job "{name}"')
    return None


def _make(cron: CronJob, draft: _StatusDraft, due: int) -> StepGenerator[Failed | None]:
    """Create the job that is due, or find that it exists."""
    job = made.job_at(cron, due)
    name = job.metadata.name
    result = yield CreateJob(job=job)
    if isinstance(result, Job):
        message = f"Created job {name} for CronJob {cron.metadata.key}"
        yield RecordCronJobEvent(reason="SuccessfulCreate", message=message)
        draft.started(result, due)
        return None
    if refused := failure(result):
        reason = "NamespaceTerminating" if refused.namespace_ends else "FailedCreate"
        message = f"Error creating job {name}: {refused.reason}"
        yield RecordCronJobEvent(reason=reason, message=message, warning=True)
        return refused
    assert isinstance(result, NameTaken), f"{result!r} is no answer to a create"
    return (yield from _adopt(cron, draft, name, due))


def _adopt(cron: CronJob, draft: _StatusDraft, name: str, due: int) -> StepGenerator[Failed | None]:
    """Adopt a job of that name as the one that is due, if the CronJob owns it."""
    found = yield ReadJob(name=name)
    if refused := failure(found):
        return refused
    if not isinstance(found, Job):
        return Failed(reason=f"job {name} was there and is gone")
    if not found.metadata.is_controlled_by(cron.metadata.uid):
        owner = found.metadata.controller
        whose = f"{owner.kind}/{owner.name}" if owner is not None else "none"
        yield RecordCronJobEvent(
            reason="ForeignJob",
            message=f"Job {name} exists but is not owned by this CronJob (current owner: {whose})",
            warning=True,
        )
    elif not made.is_finished(found):
        draft.started(found, due)
    return None


# Times


def _seconds(text: str | None) -> float | None:
    return time.read(text)


def _text(moment: float | None) -> str | None:
    return None if moment is None else time.format_seconds(moment)
