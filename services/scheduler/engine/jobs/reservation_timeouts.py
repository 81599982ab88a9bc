"""Timeouts of reservations: an Inqueue PodGroup that does not start loses its reservation.

Entering a queue reserves a group's minResources, so that its pods find room when the job controller
has created them. Where they are not created (a quota forbids it, the group has no owner), or where
no node ever takes them, Volcano keeps the reservation permanently and blocks the queue. Here a
reservation expires: when a group has been Inqueue for the timeout, its minResources no longer
count. Its phase stays. A group whose pods are created late gets a new reservation, since they may
start now.

Outside of sessions: `SchedulerState` calls `review` before it decides, with `now`. Decisions read
only `Job.reservation_expired`, so that a single session, as in the conformance cases, decides as
Volcano does. The time counts from when this process first observed the group Inqueue. A restart
begins again, in favour of the group.
"""

import math
from typing import NamedTuple

from services.scheduler.engine.jobs.jobs import Jobs
from services.scheduler.engine.jobs.records import Job


class WaitingGroup(NamedTuple):
    """Since when a PodGroup has been waiting to start."""

    uid: str
    since: float
    """Unix seconds."""
    has_pods: bool = False
    """Whether it has as many pods as it needs."""


class ReservationTimeouts:
    """Remembers the PodGroups that are Inqueue, by key."""

    def __init__(self) -> None:
        self._waiting: dict[str, WaitingGroup] = {}
        self._expired: set[str] = set()
        self._timeout_s = 0.0
        self._due = math.inf
        """When the next reservation may end (Unix seconds); the pool is not reviewed earlier."""

    @property
    def waiting_groups(self) -> dict[str, WaitingGroup]:
        """Return a copy of the waiting groups, by key."""
        return dict(self._waiting)

    def restore(self, waiting_groups: dict[str, WaitingGroup]) -> None:
        """Restore the waiting groups of another instance."""
        self._waiting = dict(waiting_groups)
        self._due = 0.0

    def review(self, jobs: Jobs, *, now: float, timeout_s: float) -> list[str]:
        """Expire reservations older than `timeout_s` seconds; 0 expires none, as in Volcano.

        Returns the keys of the groups whose reservation expired in this call, in order.
        """
        for job in jobs.active():
            self._note(jobs, job, now)
        self._forget_started(jobs)
        if timeout_s != self._timeout_s:
            self._timeout_s, self._due = timeout_s, now
        return [] if now < self._due else self._expire(jobs, now, timeout_s)

    def _note(self, jobs: Jobs, job: Job, now: float) -> None:
        waiting = self._waiting.get(job.key)
        if not _reserves(job):
            if waiting is not None:
                del self._waiting[job.key]
                _mark(jobs, job, reservation_expired=False)
            return
        has_pods = job.task_count >= job.min_available
        if waiting is None or (waiting.uid, waiting.has_pods) != (job.uid, has_pods):
            self._waiting[job.key] = WaitingGroup(job.uid, now, has_pods)
            self._due = min(self._due, now)
            _mark(jobs, job, reservation_expired=False)

    def _forget_started(self, jobs: Jobs) -> None:
        """Forget groups that have started, were deleted, or have no reservation."""
        for key in list(self._expired):
            job = jobs.get(key)
            if job is None or not _reserves(job):
                self._expired.discard(key)
                self._waiting.pop(key, None)
                if job is not None:
                    _mark(jobs, job, reservation_expired=False)

    def _expire(self, jobs: Jobs, now: float, timeout_s: float) -> list[str]:
        """Expire the reservations that are due, and note when the next one is."""
        self._due, fresh = math.inf, []
        for key, waiting in list(self._waiting.items()):
            job = jobs.get(key)
            if job is None or job.uid != waiting.uid or not _reserves(job):
                del self._waiting[key]
                if job is not None:
                    _mark(jobs, job, reservation_expired=False)
                continue
            due = 0 < timeout_s <= now - waiting.since
            if due:
                self._expired.add(key)
                fresh += [] if job.reservation_expired else [key]
            elif timeout_s:
                self._due = min(self._due, waiting.since + timeout_s)
            _mark(jobs, job, reservation_expired=due)
        return sorted(fresh)


def _reserves(job: Job) -> bool:
    return job.phase == "Inqueue" and job.min_resources is not None


def _mark(jobs: Jobs, job: Job, *, reservation_expired: bool) -> None:
    if job.reservation_expired != reservation_expired:
        job.reservation_expired = reservation_expired
        jobs.changed(job)
