"""reclaim (A07): queues with less than they deserve take from reclaimable ones that have more.

All attempts of a job are kept if the job is then pipelined, else all are undone. A task uses the
first node where evictions suffice; nodes are not scored.

⚠ Overuse of a queue is checked once at its turn, not between its jobs (Volcano pushes the queue
back once per job, but its turn has served them all by then).
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from pumice.plugins import Arguments, BoolArray
from services.scheduler.engine.jobs.records import Job, Queue
from services.scheduler.engine.placement.candidates import Candidates
from services.scheduler.engine.session.ordering import Orders
from services.scheduler.engine.session.session import Session
from services.scheduler.engine.tasks.task import Task, TaskClass
from services.scheduler.policy.actions.evictions import (
    Exchange,
    UnschedulableCache,
    attempt_each_task,
    clearable,
    fits_waiting,
    has_room,
    pipeline_without_victims,
    placeable_tasks,
    reprieve,
    room_after,
    starving_jobs,
    tasks_on_node,
    turns,
)
from services.scheduler.policy.actions.victims import Reclaimable
from services.scheduler.policy.arguments import boolean
from services.scheduler.policy.eviction_hints import EvictionHints
from shared.model.status import TaskStatus

_REASON = "reclaim"
_FRUITLESS_NODES: Final = 32
"""Nodes searched without success before plugins narrow the search."""


def execute(session: Session, arguments: Arguments) -> None:
    """Evict from other queues for starving jobs, best queue and job first.

    With Pumice's own `spareVictims` (default false) victims that are not needed are reprieved, no
    pod is evicted on a node that predicates refuse, and none for less than a whole gang.
    `predicateErrorCacheEnable` (K07) changes no decision: permanent refusals stay refusals.
    """
    spare = spares(arguments) or not session.volcano_evictions
    orders = Orders(session)
    unschedulable = UnschedulableCache(session)
    hints = EvictionHints(session, _REASON)
    reclaimable = Reclaimable(session, hints.reclaimable_jobs)
    for queue, queue_jobs in turns(session, orders, starving_jobs(session), hints):
        if session.hooks.overused(queue):
            continue
        jobs = orders.jobs(queue_jobs)
        while jobs:
            job = jobs.pop()
            with session.isolate(_REASON, job):
                _Reclaimer(session, orders, queue, job, reclaimable, spare=spare).run(unschedulable)


def spares(arguments: Arguments) -> bool:
    """Return the argument `spareVictims`. Raises `BadArgument`."""
    return boolean(arguments, "spareVictims", default=False)


class _Reclaimer:
    """One starving job."""

    def __init__(
        self,
        session: Session,
        orders: Orders,
        queue: Queue,
        job: Job,
        reclaimable: Reclaimable,
        *,
        spare: bool,
    ) -> None:
        self._spare = spare
        self._exchange = Exchange(session, job, may_take=self._may_reclaim, gets=self._gets_back)
        self._reclaimable = reclaimable
        self._session = session
        self._orders = orders
        self._queue = queue
        self._job = job

    def run(self, unschedulable: UnschedulableCache) -> None:
        """Evict pods of other queues; undone unless the job is then pipelined."""
        if self._spare and self._asks_beyond_deserved():
            return
        attempt_each_task(
            self._session, self._job, unschedulable, self._reclaim, whole_gang=self._spare
        )

    def _asks_beyond_deserved(self) -> bool:
        """Tell cheaply whether a gang of equal pods exceeds its queue's share.

        Otherwise `_reclaim` checks each pod by itself, after evictions for the pods before it.
        """
        job = self._job
        missing = job.min_available - job.waiting_count - job.ready_count - job.pending_best_effort
        tasks = [
            task for task in placeable_tasks(self._session, job) if not task.task_class.best_effort
        ]
        if missing <= 1 or any(task.task_class is not tasks[0].task_class for task in tasks):
            return False
        return not self._session.hooks.preemptive(self._queue, tasks[:missing])

    def _reclaim(self, task: Task) -> bool:
        """Evict for a task; return whether it is Pipelined on a node now."""
        session = self._session
        if not task.preempts or not session.hooks.preemptive(self._queue, [task]):
            return False
        if pipeline_without_victims(session, self._queue, self._job, task):
            return True
        nodes = session.candidates(task.task_class)
        reachable = nodes.reachable()
        reachable &= clearable(session, task.task_class)
        return any(
            self._clear(task, nodes, column)
            for mask in session.by_shard(reachable)
            for column in self._columns(task.task_class, mask)
        )

    def _columns(self, task_class: TaskClass, mask: BoolArray) -> Iterator[int]:
        """Yield the nodes of a mask, after `_FRUITLESS_NODES` only those with candidates.

        Finding candidates costs as much as several searches, and usually one of the first nodes
        suffices, unless there are known to be no victims.
        """
        columns = mask.nonzero()[0]
        turn = int((columns < self._session.first).sum())
        ordered = np.concatenate((columns[turn:], columns[:turn]))
        fruitless = 0 if self._reclaimable.is_known_empty(self._queue.name) else _FRUITLESS_NODES
        yield from ordered[:fruitless].tolist()
        left = ordered[fruitless:]
        if len(left):
            # ⚠ Where there is room, candidates suffice, and no victim is needed (`_clear`).
            has_victims = self._reclaimable.nodes(self._queue.name)
            yield from left[(has_victims | has_room(self._session, task_class))[left]].tolist()

    def _may_go(self, other: Task) -> bool:
        if other.status is not TaskStatus.RUNNING or not other.preemptable:
            return False
        owner = self._session.job_of(other)
        if owner is None or owner.queue == self._job.queue:
            return False
        queue = self._session.queue(owner.queue)
        return queue is not None and queue.reclaimable

    def _clear(self, task: Task, nodes: Candidates, column: int) -> bool:
        """Evict on one node until the task has room; else evict none.

        ⚠ Neither the queue nor predicates are checked again, unless victims are to be spared. A
        node without candidates is skipped even if it has room.
        """
        session, task_class = self._session, task.task_class
        candidates = tasks_on_node(session, column, self._may_go)
        if not candidates:
            return False
        victims = session.hooks.reclaimable(task, candidates)
        if not room_after(session, task_class, column, victims):
            return False
        with session.trial() as keep:
            heap = self._orders.victims(victims, task)
            evicted = []
            while heap and not room_after(session, task_class, column, ()):
                evicted.append(session.evict(heap.pop(), reason=_REASON, preemptor=task))
            if self._spare:
                if not fits_waiting(session, self._queue, nodes, column):
                    return False
                evicted = reprieve(
                    session,
                    evicted,
                    lambda: fits_waiting(session, self._queue, nodes, column),
                    until_it_fitted=True,
                )
            session.place(self._job, [task], [column], waiting=True)
            if not self._exchange.is_permanent(evicted):
                return False
            keep()
        return True

    def _may_reclaim(self, victim: Task) -> bool:
        """Tell whether a victim's queue could reclaim in turn for a task like it."""
        owner = self._session.job_of(victim)
        queue = None if owner is None else self._session.queue(owner.queue)
        return queue is not None and self._session.hooks.preemptive(queue, [victim])

    def _gets_back(self, victim: Task, taken: list[Task]) -> bool:
        return bool(self._session.hooks.reclaimable(victim, taken))
