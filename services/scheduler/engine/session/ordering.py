"""The order in which actions visit queues, jobs and victims (SS09), and positions of jobs in it.

Actions that evict nothing take queues and jobs from heaps of keys (`by_queue`). Evictions change
the shares of jobs and queues that have not been visited yet; for actions that evict, keys are
computed again at every comparison (`Orders`). ⚠ Volcano compares items only when they move within
its heaps, and never sorts all of them again; which item comes next after a change depends on that,
so these heaps do the same. Keys are cached per version of the ledger.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

from pumice import plugins
from pumice.plugins.combining import OrderKey
from services.scheduler.engine.jobs.records import Job, Queue
from services.scheduler.engine.jobs.unschedulable import UnschedulablePool
from services.scheduler.engine.placement.hooks import Combined
from services.scheduler.engine.session.exclusions import StageIsolation
from services.scheduler.engine.session.view import ClusterView
from shared.model.status import TaskStatus

_T = TypeVar("_T")
_V = TypeVar("_V", bound=plugins.Task)

QueueHeap = list[tuple[OrderKey, Queue]]
JobHeap = list[tuple[OrderKey, Job]]
Isolate = Callable[[str, Job | Queue], StageIsolation]
"""`Session.isolate`: stage and job or queue → the block in which that one is handled."""


class LiveHeap(Generic[_T]):
    """A binary heap that calls `first(a, b)` at every comparison, as Go's container/heap does."""

    def __init__(self, first: Callable[[_T, _T], bool], things: Iterable[_T] = ()) -> None:
        self._first = first
        self._things: list[_T] = []
        for thing in things:
            self.push(thing)

    def __bool__(self) -> bool:
        return bool(self._things)

    def push(self, thing: _T) -> None:
        """Add a thing."""
        things, at = self._things, len(self._things)
        things.append(thing)
        while at:
            parent = (at - 1) // 2
            if not self._first(things[at], things[parent]):
                break
            things[at], things[parent] = things[parent], things[at]
            at = parent

    def pop(self) -> _T:
        """Remove and return the first thing."""
        things = self._things
        last = len(things) - 1
        things[0], things[last] = things[last], things[0]
        at = 0
        while (child := 2 * at + 1) < last:
            if child + 1 < last and self._first(things[child + 1], things[child]):
                child += 1
            if not self._first(things[child], things[at]):
                break
            things[at], things[child] = things[child], things[at]
            at = child
        return things.pop()


class Orders:
    """Heaps of queues, jobs and victims that follow the session's changes."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._ledger = view.cluster_state.nodes.ledger
        self._version = -1
        self._keys: dict[tuple[str, str], OrderKey] = {}

    def queues(self, queues: Iterable[Queue]) -> LiveHeap[Queue]:
        """Return a heap of queues by QueueOrder."""
        return LiveHeap(lambda a, b: self._queue_key(a) < self._queue_key(b), queues)

    def jobs(self, jobs: Iterable[Job]) -> LiveHeap[Job]:
        """Return a heap of jobs by JobOrder."""
        return LiveHeap(lambda a, b: self._job_key(a) < self._job_key(b), jobs)

    def victims(self, victims: Iterable[_V], preemptor: plugins.Task) -> LiveHeap[_V]:
        """Return a heap of victims, the first to evict on top.

        Victims of different queues go by VictimQueueOrder, then against the order of queues; those
        of one queue against the order of jobs, as far as plugins tell jobs apart, then of tasks.
        """
        own = self._view.job_of(preemptor)
        home = self._view.queue(own.queue) if own else None

        def goes_first(left: _V, right: _V) -> bool:
            mine, theirs = self._view.job_of(left), self._view.job_of(right)
            if mine is not None and theirs is not None and mine is not theirs:
                if mine.queue != theirs.queue and home is not None:
                    return self._leaves_first(mine.queue, theirs.queue, home)
                here, there = self._plugin_key(mine), self._plugin_key(theirs)
                if here != there:
                    return here > there
            order = self._view.victim_key
            return order(left) > order(right)

        return LiveHeap(goes_first, victims)

    def _leaves_first(self, mine: str, theirs: str, home: Queue) -> bool:
        left, right = self._view.queue(mine), self._view.queue(theirs)
        if left is None or right is None:
            return left is None
        order = self._view.hooks.victim_queue_order
        here, there = order(left, home), order(right, home)
        if here != there:
            return here < there
        return self._queue_key(left) > self._queue_key(right)

    def _queue_key(self, queue: Queue) -> OrderKey:
        return self._kept("queue", queue.name, lambda: self._view.hooks.queue_order(queue))

    def _job_key(self, job: Job) -> OrderKey:
        return self._kept("job", job.key, lambda: self._view.hooks.job_order(job))

    def _plugin_key(self, job: Job) -> OrderKey:
        return self._job_key(job)[:-2]

    def _kept(self, kind: str, name: str, compute: Callable[[], OrderKey]) -> OrderKey:
        if self._version != self._ledger.version:
            self._version = self._ledger.version
            self._keys = {}
        found = self._keys.get((kind, name))
        if found is None:
            found = self._keys[kind, name] = compute()
        return found


class _Visit(NamedTuple):
    job: Job
    was_pending: bool
    ahead: int
    """Unschedulable jobs of the same queue and phase that come before it."""


class Places:
    """Positions of waiting jobs in their queues: those not admitted come behind admitted ones.

    Unschedulable jobs count as if they had been visited; jobs that were placed do not count.
    """

    def __init__(self, unschedulable: UnschedulablePool, hooks: Combined) -> None:
        self._unschedulable = unschedulable
        self._hooks = hooks
        self._visits: dict[str, _Visit] = {}
        self._places: dict[str, int] = {}

    def turn(self, job: Job) -> None:
        """Record that a job is visited; the first visit counts, and the first since admission."""
        known = self._visits.get(job.key)
        if known is None or known.was_pending > job.is_pending:
            self._visits.pop(job.key, None)
            self._visits[job.key] = _Visit(job, job.is_pending, self._ahead(job))
            self._places.clear()

    def of(self, job: Job) -> int:
        """Return a job's position in its queue, 0 when it was not visited."""
        if not self._places:
            self._count()
        return self._places.get(job.key, 0)

    def _count(self) -> None:
        turns = Counter[tuple[str, bool]]()
        waiting = {key: visit for key, visit in self._visits.items() if _waits(visit.job)}
        for key, (job, was_pending, ahead) in waiting.items():
            turns[job.queue, was_pending] += 1
            self._places[key] = turns[job.queue, was_pending] + ahead
        for key, (job, was_pending, _) in waiting.items():
            if was_pending:
                unschedulable = self._unschedulable.at_allocate.count(job.queue)
                self._places[key] += turns[job.queue, False] + unschedulable

    def _ahead(self, job: Job) -> int:
        pool = self._unschedulable
        if not len(pool):
            return 0
        order = self._hooks.job_order(job)
        jobs = pool.at_enqueue if job.is_pending else pool.at_allocate
        return jobs.ahead(job.queue, order)


def _waits(job: Job) -> bool:
    return not job.is_ready or bool(job.by_status[TaskStatus.PENDING])


def by_queue(
    view: ClusterView, jobs: Iterable[Job], isolate: Isolate
) -> tuple[QueueHeap, dict[str, JobHeap]]:
    """Return a heap of the queues that own these jobs, and a heap of jobs per queue name.

    Keys are total (they end in a unique name), so that heaps never compare records.
    """
    heaps: dict[str, JobHeap] = {}
    for job in jobs:
        with isolate("order", job):
            heaps.setdefault(job.queue, []).append((view.hooks.job_order(job), job))
    queues: QueueHeap = []
    for name, heap in heaps.items():
        heapq.heapify(heap)
        queue = view.queue(name)
        if queue is not None:
            with isolate("order", queue):
                queues.append((view.hooks.queue_order(queue), queue))
    heapq.heapify(queues)
    return queues, heaps
