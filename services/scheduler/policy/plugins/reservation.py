"""reservation: queues in strict order, or with room reserved for the gangs that wait longest.

Without it a waiting gang blocks nothing, so that smaller jobs can keep it waiting forever.
A queue states its order in the annotation `pumice.dev/order`: `best-effort` is that, `strict` lets
nothing of the queue pass a job that waits, and `backfill` lets jobs pass that do not delay the
start of the first that wait, as far as expected ends tell. docs/reservations.md is its page.
"""

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from pumice.plugins import (
    ABSTAIN,
    PERMIT,
    Arguments,
    Cluster,
    Hooks,
    IntArray,
    Job,
    Opinion,
    StartBlock,
    TaskClass,
)
from services.scheduler.policy.arguments import BadArgument, integer, seconds, text
from services.scheduler.policy.reserved import Forecast, Move, Moves, Plans, Reserved
from services.scheduler.policy.shadow import UNKNOWN
from shared.api import keys
from shared.api.scheduling import QueueOrder as Order
from shared.api.time import format_seconds
from shared.model.status import TaskStatus

RESERVATION: Final = "reservation"
ORDER: Final = "order"
_SINCE: Final = "reservation.since/"
_PROMISE: Final = "reservation.promise/"
_PATIENCE_S: Final = 3600
_DEPTH: Final = 100


class Reservation:
    """Orders of queues, and reservations."""

    name = "reservation"

    def __init__(self, arguments: Arguments) -> None:
        """Take the order of queues that state none, and the figures of backfilling."""
        order = text(arguments, "reservation.order", "best-effort")
        if order not in set(Order):
            raise BadArgument(f"reservation.order: {order!r} is none of {', '.join(Order)}")
        self._order = Order(order)
        self._most = integer(arguments, "reservation.jobs", 1)
        if self._most < 1:
            raise BadArgument("reservation.jobs: at least one job has a reservation")
        self._depth = integer(arguments, "reservation.depth", _DEPTH)
        self._patience_s = seconds(arguments, "reservation.patience", _PATIENCE_S)
        default_s = seconds(arguments, "reservation.defaultDuration", 0)
        self._default_s = default_s or None

    def contribute(self, hooks: Hooks, cluster: Cluster) -> None:
        """Add the rules, if any queue goes by them."""
        self._cluster = cluster
        self._orders = {name: self.order_of(q.annotations) for name, q in cluster.queues.items()}
        if all(order is Order.BEST_EFFORT for order in self._orders.values()):
            self._remember(())
            return
        self._moves = Moves()
        self._forecast = Forecast(cluster, self._default_s, self._moves)
        self._plans = Plans(self._forecast, self._moves)
        self._recalled = False
        self._heads: dict[str, Job] = {}
        """Queue in strict order → its job that waits."""
        self._inside: dict[str, list[tuple[object, ...]]] | None = None
        self._reserved_jobs: dict[str, Reserved] | None = None
        """Reservations that this cycle ends with, by job."""
        hooks.job_enqueueable(self._may_enter)
        hooks.job_enqueued(self._entered)
        hooks.job_watched(lambda job: self._of(job) is not Order.BEST_EFFORT)
        hooks.moved(self._moved)
        hooks.job_turn(self._turn)
        hooks.job_start(self._start)
        hooks.job_waits(self._waits)
        hooks.job_outlook(self._outlook)
        hooks.closed(lambda: self._remember(self._plans.reserved))

    def order_of(self, annotations: Mapping[str, str]) -> Order:
        """Return the order that a queue's annotations state, the default for none that is known."""
        stated = annotations.get(keys.QUEUE_ORDER, "")
        return Order(stated) if stated in set(Order) else self._order

    def _of(self, job: Job) -> Order:
        return self._orders.get(job.queue, Order.BEST_EFFORT)

    # --- entering the queue ------------------------------------------------------------------

    def _may_enter(self, job: Job) -> Opinion:
        """Let the first jobs of a line have their pods made: what has none, has no reservation."""
        queue = self._cluster.queue(job.queue)
        if self._of(job) is Order.BEST_EFFORT or queue is None or not queue.is_open:
            return ABSTAIN
        if job.min_resources is None or (job.min_resources > self._cluster.total).any():
            return ABSTAIN
        ahead = bisect_left(self._waiting(job.queue), self._cluster.turn_of(job))
        return PERMIT if ahead < self._depth else ABSTAIN

    def _entered(self, job: Job) -> None:
        insort(self._waiting(job.queue), self._cluster.turn_of(job))

    def _waiting(self, queue: str) -> list[tuple[object, ...]]:
        """Return the turns of the jobs that wait in a queue, sorted."""
        if self._inside is None:
            self._inside = {}
            for job in self._cluster.jobs:
                if job.phase not in {"", "Pending"} and not job.is_ready:
                    turns = self._inside.setdefault(job.queue, [])
                    turns.append(self._cluster.turn_of(job))
            for turns in self._inside.values():
                turns.sort()
        return self._inside.setdefault(queue, [])

    # --- turns -------------------------------------------------------------------------------

    def _turn(self, job: Job) -> StartBlock | None:
        order = self._of(job)
        if order is Order.STRICT and (head := self._heads.get(job.queue)) is not None:
            return StartBlock(
                ORDER, f"waits behind {_named(head, job)}, which comes first in queue {job.queue}"
            )
        if order is Order.BACKFILL:
            self._recall()
            self._plans.make()
            for entry in self._ahead_of(job):
                due = entry.due(self._patience_s)
                if self._cluster.now > due:
                    return StartBlock(
                        RESERVATION,
                        f"waits for {_named(entry.job, job)}, which should have started by "
                        f"{format_seconds(due)}: nothing goes ahead of it any more",
                    )
        return None

    def _start(self, job: Job) -> StartBlock | None:
        if self._of(job) is not Order.BACKFILL:
            return None
        ahead, columns = self._ahead_of(job), self._moves.columns(job)
        if not ahead or not len(columns):
            return None
        delayed = self._unforeseen(job, ahead, columns) or self._plans.delayed_by(job, ahead)
        return None if delayed is None else self._held(job, delayed, ahead)

    def _unforeseen(
        self, job: Job, ahead: Sequence[Reserved], columns: IntArray
    ) -> Reserved | None:
        """Return a reservation without a known start whose nodes a job without known end takes."""
        if self._forecast.end(job) < UNKNOWN:
            return None
        for entry in ahead:
            booking = entry.booking
            unknown = booking is not None and booking.start == UNKNOWN
            if booking is not None and unknown and np.isin(columns, booking.columns()).any():
                return entry
        return None

    def _held(self, job: Job, delayed: Reserved, ahead: Sequence[Reserved]) -> StartBlock:
        elsewhere = np.ones(len(self._cluster.node_names), dtype=np.bool_)
        for entry in ahead:
            if entry.booking is not None:
                elsewhere[entry.booking.columns()] = False
        start = UNKNOWN if delayed.booking is None else delayed.booking.start
        expected = "expected at a time that is not known"
        if start < UNKNOWN:
            expected = f"expected at {format_seconds(start)}"
        end = self._forecast.end(job)
        ending = "nothing says how long it would run"
        if end < UNKNOWN:
            ending = f"it would end at {format_seconds(end)}"
        message = f"waits for the reservation of {_named(delayed.job, job)}, {expected}; {ending}"
        return StartBlock(RESERVATION, message, elsewhere if elsewhere.any() else None)

    def _waits(self, job: Job) -> None:
        order = self._of(job)
        if order is Order.BEST_EFFORT or job.is_ready:
            return
        if order is Order.STRICT:
            if job.queue not in self._heads and self._ever_starts(job):
                self._heads[job.queue] = job
            return
        entry = self._plans.of(job) or self._reserve(job)
        self._plans.make()
        if entry is not None and self._is_foreseen(entry):
            entry.still_waits = True
        elif entry in self._plans.reserved:
            self._plans.remove(entry)

    def _is_foreseen(self, entry: Reserved) -> bool:
        """Tell whether a job that has just failed waits for what the plans know of.

        If by the plan it could start at once, it waits for something else, such as a volume. Then
        a reservation would keep nodes empty for as long.
        """
        booking = entry.booking
        if booking is None or not booking.places:
            return booking is not None
        return booking.start > self._cluster.now

    def _ever_starts(self, job: Job) -> bool:
        timeline = self._forecast.timeline([job.queue])
        return timeline.earliest(self._forecast.gang(job), ()) is not None

    def _outlook(self, job: Job) -> str | None:
        """Say when a job is expected to start that has a reservation; asked of after all turns."""
        if self._reserved_jobs is None:
            self._reserved_jobs = {
                entry.job.key: entry for entry in self._plans.reserved if entry.still_waits
            }
        entry = self._reserved_jobs.get(job.key)
        if entry is None or entry.booking is None or job.is_ready:
            return None
        start = entry.booking.start
        when = "when it starts is not known"
        if start < UNKNOWN:
            when = f"expected to start at {format_seconds(start)}"
        return f"room is reserved, {when}"

    # --- reservations ------------------------------------------------------------------------

    def _ahead_of(self, job: Job) -> list[Reserved]:
        """Return the reservations that a job may not delay.

        Those of its queue that come after it are not among them, and for a job that has one itself
        those that are younger.
        """
        found, turn = [], self._cluster.turn_of(job)
        for entry in self._plans.reserved:
            if entry.job.key == job.key:
                break
            if entry.job.queue != job.queue or entry.turn < turn:
                found.append(entry)
        return found

    def _reserve(self, job: Job) -> Reserved | None:
        """Give a job a reservation, if it is one of the first that wait in its queue."""
        last = self._last(job.queue)
        turn = self._cluster.turn_of(job)
        if last is not None and last.turn < turn:
            return None
        entry = Reserved(job, turn, since=self._cluster.now)
        self._plans.add(entry)
        self._plans.make()
        if entry.booking is None:
            return None
        if last is not None:
            self._plans.remove(last)
        return entry

    def _last(self, queue: str) -> Reserved | None:
        """Return the last reservation of a queue that has as many as it may."""
        own = [each for each in self._plans.reserved if each.job.queue == queue]
        return max(own, key=lambda each: each.turn) if len(own) >= self._most else None

    def _recall(self) -> None:
        """Take up the reservations of the cycle before, once, for jobs that still wait."""
        if self._recalled:
            return
        self._recalled = True
        memory = self._cluster.memory
        for name in sorted(name for name in memory if name.startswith(_SINCE)):
            key = name.removeprefix(_SINCE)
            job = self._cluster.job(key)
            if job is not None and self._of(job) is Order.BACKFILL and _still_waits(job):
                turn, promise = self._cluster.turn_of(job), memory.get(_PROMISE + key, UNKNOWN)
                self._plans.add(Reserved(job, turn, since=memory[name], promise=promise))
        for name in self._orders:
            while len([e for e in self._plans.reserved if e.job.queue == name]) > self._most:
                last = self._last(name)
                if last is not None:
                    self._plans.remove(last)

    def _remember(self, reserved: Sequence[Reserved]) -> None:
        """Keep what the next cycle has to know of reservations, and nothing else."""
        remembered = {}
        for entry in reserved:
            if entry.still_waits:
                remembered[_SINCE + entry.job.key] = entry.since
                remembered[_PROMISE + entry.job.key] = entry.promise
        memory = self._cluster.memory
        for name in [name for name in memory if name.startswith((_SINCE, _PROMISE))]:
            if name not in remembered:
                del memory[name]
        for name, number in remembered.items():
            if memory.get(name) != number:
                memory[name] = number

    def _moved(self, job: Job, task_class: TaskClass, columns: IntArray, counts: IntArray) -> None:
        self._moves.add(Move(job, task_class, columns, counts))


def _still_waits(job: Job) -> bool:
    return not job.is_ready and bool(job.by_status[TaskStatus.PENDING])


def _named(other: Job, reader: Job) -> str:
    """Return what the message of a job calls another: its readers may see their namespace only."""
    return other.key if other.namespace == reader.namespace else "a job of another namespace"
