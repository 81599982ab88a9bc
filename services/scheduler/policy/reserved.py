"""The reservations of one cycle: the gangs, their planned starts, and which placements delay them.

The plugin `reservation` reports every turn and every placement. Plans are made on first use, and
again after jobs that come before them were placed. Arithmetic is in `policy.shadow`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from pumice.plugins import Cluster, IntArray, Job, Task, TaskClass
from services.scheduler.engine.resources.amounts import total_of
from services.scheduler.policy.shadow import (
    UNKNOWN,
    Booking,
    Ending,
    Need,
    Releases,
    RoomTimeline,
    WaitingGang,
)
from shared.model.status import READY, TaskStatus

OVERRUN_S: Final = 1.0
"""Seconds after now at which an overdue pod is assumed to end.

With a longer time, every shorter job would pass the gang again and again.
"""


class Move(NamedTuple):
    """Tasks of one class that a cycle has placed for a job; negative counts were undone."""

    job: Job
    task_class: TaskClass
    columns: IntArray
    counts: IntArray

    def is_undone_by(self, other: "Move") -> bool:
        """Tell whether another move undoes this one."""
        return (
            self.job.key == other.job.key
            and self.task_class is other.task_class
            and np.array_equal(self.columns, other.columns)
            and np.array_equal(self.counts, -other.counts)
        )


class Moves:
    """The placements of a cycle so far, without undone ones."""

    def __init__(self) -> None:
        self._made: list[Move] = []
        self.version = object()
        """An object for each state, the same one when a trial has been undone."""
        self._versions: list[object] = [self.version]
        self.evictions = 0

    def __iter__(self) -> Iterator[Move]:
        return iter(self._made)

    def add(self, move: Move) -> None:
        """Record a move."""
        if self._made and self._made[-1].is_undone_by(move):
            self._made.pop()
            self._versions.pop()
            self.version = self._versions[-1]
            return
        if (move.counts < 0).any():
            self.evictions += 1  # the nodes' tables tell what is being released
            self._versions[-1] = object()
        else:
            self._made.append(move)
            self._versions.append(object())
        self.version = self._versions[-1]

    def columns(self, job: Job) -> IntArray:
        """Return the nodes on which a job has been placed."""
        found = [move.columns for move in self._made if move.job.key == job.key]
        return np.unique(np.concatenate(found)) if found else np.zeros(0, dtype=np.int64)


class Forecast:
    """Expected ends of jobs and pods, and the room that follows from them."""

    def __init__(self, cluster: Cluster, default_s: float | None, moves: Moves) -> None:
        self._cluster = cluster
        self._default_s = default_s
        self._moves = moves
        self._lasts: dict[str, float] = {}
        self._standing: tuple[int, Releases] | None = None

    def lasts(self, job: Job) -> float:
        """Return the expected duration of a job's pods in seconds, or `UNKNOWN`."""
        found = self._lasts.get(job.key)
        if found is None:
            stated = job.expected_s
            found = stated if stated is not None else self._default_s
            found = self._lasts[job.key] = UNKNOWN if found is None else found
        return found

    def end(self, job: Job) -> float:
        """Return the expected end of a job that starts now."""
        return self._cluster.now + self.lasts(job)

    def gang(self, job: Job) -> WaitingGang:
        """Return the gang that a job needs to start: its missing pods."""
        counts: Counter[int] = Counter()
        classes: dict[int, TaskClass] = {}
        for task in lacking(job):
            if not task.task_class.best_effort:
                classes[task.task_class.id] = task.task_class
                counts[task.task_class.id] += 1
        needs = tuple(
            Need(classes[number], counts[number], self._cluster.open_nodes(classes[number]))
            for number in sorted(counts)
        )
        empty = np.zeros(len(self._cluster.total), dtype=np.int64)
        requested = (need.number * need.task_class.request for need in needs)
        return WaitingGang(job.key, job.queue, needs, total_of(requested, empty), self.lasts(job))

    def timeline(self, queues: Sequence[str]) -> RoomTimeline:
        """Return the room now and later."""
        cluster, nodes = self._cluster, self._cluster.nodes
        known = ((name, cluster.queue(name)) for name in queues)
        free = nodes.allocatable - nodes.used + nodes.releasing - nodes.pipelined
        return RoomTimeline(
            now=cluster.now,
            allocatable=nodes.allocatable,
            free=free,
            releases=(self._of_facts(), Releases(self._placed(), len(cluster.node_names))),
            shares={name: cluster.room_of(queue) for name, queue in known if queue is not None},
        )

    def _of_facts(self) -> Releases:
        """Return the ends of what runs; looked up once, and again after evictions."""
        if self._standing is None or self._standing[0] != self._moves.evictions:
            releases = Releases(self._running(), len(self._cluster.node_names))
            self._standing = (self._moves.evictions, releases)
        return self._standing[1]

    def _running(self) -> Iterator[Ending]:
        for column, name in enumerate(self._cluster.node_names):
            for task in self._cluster.tasks_on(name) if name else ():
                if task.status is TaskStatus.RELEASING:
                    continue
                job = self._cluster.job_of(task)
                end = self._end(task, job)
                if end is not None:
                    yield Ending(end, column, task.task_class, 1, job.queue if job else "")

    def _end(self, task: Task, job: Job | None) -> float | None:
        """Return the expected end of a pod, None if it is of no job and states none."""
        lasts = task.expected_s if job is None else self.lasts(job)
        if lasts is None:
            return None
        now = self._cluster.now
        end = min(task.started, now) + lasts
        return end if end > now else now + OVERRUN_S

    def _placed(self) -> Iterator[Ending]:
        for move in self._moves:
            end = self.end(move.job)
            for column, count in zip(move.columns.tolist(), move.counts.tolist(), strict=True):
                yield Ending(end, column, move.task_class, count, move.job.queue)


class Reserved:
    """A job with a reservation."""

    def __init__(
        self, job: Job, turn: tuple[object, ...], *, since: float, promise: float = UNKNOWN
    ) -> None:
        self.job = job
        self.turn = turn
        self.since = since
        """When it first had a reservation, without a break since."""
        self.promise = promise
        """The earliest start that was ever expected of it; `since` at a time when none was."""
        self.booking: Booking | None = None
        self.still_waits = False
        """Whether it still waits after its turn in this cycle."""

    def planned(self, booking: Booking | None) -> None:
        """Set the plan."""
        self.booking = booking
        if booking is not None:
            expected = booking.start if booking.start < UNKNOWN else self.since
            self.promise = min(self.promise, expected)

    def due(self, patience_s: float) -> float:
        """Return the time from which on no other job may pass it."""
        return self.promise + patience_s


class Plans:
    """The reservations of a cycle in the order in which they are planned: the oldest first."""

    def __init__(self, forecast: Forecast, moves: Moves) -> None:
        self._forecast = forecast
        self._moves = moves
        self.reserved: list[Reserved] = []
        self._version: object = None
        """The state of the moves that the plans are for."""

    def add(self, entry: Reserved) -> None:
        """Add a reservation of a job."""
        self.reserved.append(entry)
        self.reserved.sort(key=lambda each: (each.since, each.turn))
        self._version = None

    def remove(self, entry: Reserved) -> None:
        """Remove a reservation."""
        self.reserved.remove(entry)
        self._version = None

    def of(self, job: Job) -> Reserved | None:
        """Return a job's reservation."""
        return next((each for each in self.reserved if each.job.key == job.key), None)

    def make(self) -> None:
        """Plan all reservations on the current state, unless that was done.

        A gang that could not start even after all pods have ended gets none.
        """
        if self._version is self._moves.version or not self.reserved:
            return
        for entry, booking in zip(self.reserved, self._starts(), strict=True):
            entry.planned(booking)
        self.reserved = [entry for entry in self.reserved if entry.booking is not None]
        self._version = self._moves.version

    def delayed_by(self, job: Job, ahead: Sequence[Reserved]) -> Reserved | None:
        """Return the first of some reservations that a job's placement delays.

        The plans must be current; they are updated if nothing is delayed.
        """
        if self._is_out_of_the_way(job, ahead):
            self._version = self._moves.version
            return None
        fresh = dict(zip((e.job.key for e in self.reserved), self._starts(), strict=True))
        for entry in ahead:
            planned, found = entry.booking, fresh[entry.job.key]
            if planned is not None and (found is None or found.start > planned.start):
                return entry
        for entry in self.reserved:
            entry.booking = fresh[entry.job.key] or entry.booking
        self._version = self._moves.version
        return None

    def _is_out_of_the_way(self, job: Job, ahead: Sequence[Reserved]) -> bool:
        """Tell cheaply of most jobs that they end in time, or run where nothing is planned."""
        bookings = [entry.booking for entry in ahead if entry.booking is not None]
        if len(ahead) < len(self.reserved):
            return False
        if self._forecast.end(job) <= min(booking.start for booking in bookings):
            return True
        if any(entry.job.queue == job.queue for entry in ahead):
            return False  # it may use the share that the other one needs
        columns = self._moves.columns(job)
        return not any(np.isin(columns, booking.columns()).any() for booking in bookings)

    def _starts(self) -> list[Booking | None]:
        timeline = self._forecast.timeline(sorted({e.job.queue for e in self.reserved}))
        bookings: list[Booking | None] = []
        for entry in self.reserved:
            beside = [booking for booking in bookings if booking is not None]
            bookings.append(timeline.earliest(self._forecast.gang(entry.job), beside))
        return bookings


def lacking(job: Job) -> list[Task]:
    """Return the pending tasks that a job needs to start; those of role minima come first."""
    missing = job.min_available - job.ready_count - job.pending_best_effort
    short: Mapping[str, int] = job.roles_short_of(*READY, best_effort=True)
    left = dict(short)
    chosen, others = [], []
    pending = job.by_status[TaskStatus.PENDING].values()
    for task in sorted(pending, key=lambda each: each.order()):
        if left.get(task.role, 0) > 0:
            left[task.role] -= 1
            chosen.append(task)
        else:
            others.append(task)
    return chosen + others[: max(0, missing - len(chosen))]
