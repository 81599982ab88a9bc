"""Timeouts of reservations: an Inqueue PodGroup whose pods never come holds nothing for ever.

Entering a queue reserves a group's minResources, so that its pods find room when the job controller
has created them. Where they are not created (a quota forbids it, the group has no owner), Volcano
keeps the reservation for good and the queue stands still. Here it is a lease: when a group has been
seen Inqueue with fewer pods than its minimum for the timeout, it stops counting. Its phase stays,
and as soon as its pods are there it counts again: they are demand that exists.

Outside of sessions: the scheduler's worker calls `review` before it decides, with `now`. What is
decided depends on `Job.reservation_expired` alone, so that a single session, as the conformance
cases run it, decides as Volcano does. The time is counted from when this process first saw the
group so; a restart begins anew, which errs on the side of the group.
"""

from typing import NamedTuple

from services.scheduler.engine.jobs.jobs import Jobs
from services.scheduler.engine.jobs.records import Job


class WaitingGroup(NamedTuple):
    """Since when a PodGroup has been waiting for its pods."""

    uid: str
    since: float
    """Unix seconds."""


class ReservationTimeouts:
    """Remembers the PodGroups that wait for pods, by key."""

    def __init__(self) -> None:
        self._waiting: dict[str, WaitingGroup] = {}

    @property
    def waiting_groups(self) -> dict[str, WaitingGroup]:
        """Return what is waited for; a copy."""
        return dict(self._waiting)

    def restore(self, waiting_groups: dict[str, WaitingGroup]) -> None:
        """Take over what another instance remembered."""
        self._waiting = dict(waiting_groups)

    def review(self, jobs: Jobs, *, now: float, timeout_s: float) -> list[str]:
        """Return reservations that have lasted too long; `timeout_s` 0 leaves all (Volcano's way).

        Returns the keys of the groups that lost theirs just now, in order.
        """
        before, self._waiting = self._waiting, {}
        fresh = []
        for job in jobs.unsettled():
            if not _waits_for_pods(job):
                continue
            waiting = before.get(job.key)
            if waiting is None or waiting.uid != job.uid:
                waiting = WaitingGroup(job.uid, now)
            self._waiting[job.key] = waiting
            due = 0 < timeout_s <= now - waiting.since
            if due and not job.reservation_expired:
                fresh.append(job.key)
            _mark(jobs, job, reservation_expired=due)
        for key in before.keys() - self._waiting.keys():
            job_then = jobs.get(key)
            if job_then is not None:
                _mark(jobs, job_then, reservation_expired=False)
        return fresh


def _waits_for_pods(job: Job) -> bool:
    return (
        job.phase == "Inqueue"
        and job.min_resources is not None
        and job.task_count < job.min_available
    )


def _mark(jobs: Jobs, job: Job, *, reservation_expired: bool) -> None:
    if job.reservation_expired != reservation_expired:
        job.reservation_expired = reservation_expired
        jobs.changed(job)
