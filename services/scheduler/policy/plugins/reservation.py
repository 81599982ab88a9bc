"""reservation: strict order in queues, or reservations for the gangs that wait longest.

Without it a waiting gang blocks nothing, so that smaller jobs can keep it waiting forever. The
annotation `pumice.dev/order` of a queue chooses the order: `best-effort` is the default of Volcano,
`strict` lets no job of the queue pass a waiting one, and `backfill` lets jobs pass that do not
delay the expected start of the first waiting ones. See docs/reservations.md.
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


class ReservationPlugin:
    """Orders of queues, and reservations."""

    name = "reservation"

    def __init__(self, arguments: Arguments) -> None:
        """Read the default order of queues, and the limits of backfilling."""
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
        """Add the rules, if any queue uses them."""
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
        """Return the order of a queue's annotation, the default if it is missing or unknown."""
        stated = annotations.get(keys.QUEUE_ORDER, "")
        return Order(stated) if stated in set(Order) else self._order

    def _of(self, job: Job) -> Order:
        return self._orders.get(job.queue, Order.BEST_EFFORT)

    # --- entering the queue ------------------------------------------------------------------

    def _may_enter(self, job: Job) -> Opinion:
        """Admit the first jobs of a queue, because a job without pods gets no reservation."""
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
        """Return the sort keys of the jobs that wait in a queue, sorted."""
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
        """Return a reservation of unknown start whose nodes a job of unknown end would take."""
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
        """Tell whether a failed job waits for resources that the plans include.

        If it could start at once by the plan, it waits for something else, such as a volume. A
        reservation would keep nodes empty meanwhile.
        """
        booking = entry.booking
        if booking is None or not booking.places:
            return booking is not None
        return booking.start > self._cluster.now

    def _ever_starts(self, job: Job) -> bool:
        timeline = self._forecast.timeline([job.queue])
        return timeline.earliest(self._forecast.gang(job), ()) is not None

    def _outlook(self, job: Job) -> str | None:
        """Return the expected start of a job with a reservation; called after all turns."""
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

        It may delay those of later jobs of its queue, and a job with a reservation younger ones.
        """
        found, turn = [], self._cluster.turn_of(job)
        for entry in self._plans.reserved:
            if entry.job.key == job.key:
                break
            if entry.job.queue != job.queue or entry.turn < turn:
                found.append(entry)
        return found

    def _reserve(self, job: Job) -> Reserved | None:
        """Reserve for a job, if it is one of the first that wait in its queue."""
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
        """Return the last reservation of a queue that has its maximum of reservations."""
        own = [each for each in self._plans.reserved if each.job.queue == queue]
        return max(own, key=lambda each: each.turn) if len(own) >= self._most else None

    def _recall(self) -> None:
        """Restore the reservations of the last cycle, once, for jobs that still wait."""
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
        """Store the reservations for the next cycle."""
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
    """Return the name of a job for another job's message; names of other namespaces are hidden."""
    return other.key if other.namespace == reader.namespace else "a job of another namespace"
