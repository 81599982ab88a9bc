"""preempt (A05, A06): starving jobs take from less important ones of the same queue.

First between jobs: a job's attempts stand or fall together, and they stand when the job is then
pipelined. Afterwards within each starving job, by the priority of its tasks, one task at a time.
Victims are Releasing from then on, and the preemptor waits on their node (Pipelined).
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from pumice.plugins import BoolArray
from services.scheduler.engine.jobs.records import Job, Queue
from services.scheduler.engine.session.ordering import Orders
from services.scheduler.engine.session.session import Session
from services.scheduler.engine.tasks.task import Task
from services.scheduler.policy.actions.evictions import (
    UnschedulableCache,
    clearable,
    fits_waiting,
    has_room,
    hosts,
    may_ask,
    reprieve,
    residents,
    room_after,
    starving_jobs,
    take_for,
    turns,
    wanting,
)
from services.scheduler.policy.actions.topology_aware import Options, Search
from shared.model.status import PREEMPTABLE, TaskStatus

_REASON = "preempt"
_MAY_GO: Final = tuple(status for status in TaskStatus if PREEMPTABLE[status])


def execute(session: Session, arguments: Mapping[str, Any]) -> None:
    """Evict for starving jobs, best queue and job first.

    `predicateErrorCacheEnable` (K07) changes no decision: refusals for good stay refusals.
    """
    options = Options.read(arguments)
    orders = Orders(session)
    unschedulable = UnschedulableCache(session)
    # ⚠ Jobs that state a topology are left out: nodes cleared for them would not be near each
    # other (A05).
    starving = [
        job
        for job in starving_jobs(session)
        if job.division is None or not job.division.states_topology()
    ]
    for queue, theirs in turns(session, orders, starving):
        # A superset throughout the turn: tasks may stop to be victims in it, and none starts to.
        inhabited = hosts(session, session.jobs_of(queue.name), *_MAY_GO)
        preemptors = {
            job.key: _Preemptor(session, orders, queue, job, options=options, inhabited=inhabited)
            for job in theirs
        }
        jobs = orders.jobs(theirs)
        while jobs:
            job = jobs.pop()
            with session.isolate(_REASON, job):
                preemptors[job.key].from_other_jobs(unschedulable)
        for job in theirs:
            with session.isolate(_REASON, job):
                preemptors[job.key].from_own_tasks()


class _Preemptor:
    """One starving job."""

    def __init__(
        self,
        session: Session,
        orders: Orders,
        queue: Queue,
        job: Job,
        *,
        options: Options,
        inhabited: BoolArray,
    ) -> None:
        """`inhabited` are the nodes with tasks of its queue that might go."""
        self._inhabited = inhabited
        self._session = session
        self._orders = orders
        self._queue = queue
        self._job = job
        self._options = options

    def from_other_jobs(self, unschedulable: UnschedulableCache) -> None:
        """Take from other jobs of the queue, all for nothing unless the job is then pipelined."""
        take_for(
            self._session,
            self._job,
            unschedulable,
            lambda task: self._preempt(task, self._is_elsewhere),
            whole=self._options.spare,
        )

    def from_own_tasks(self) -> None:
        """Take from less important tasks of the job, until one task finds no place."""
        for task in wanting(self._session, self._job):
            position = self._session.journal.position
            if not self._preempt(task, self._is_own):
                return
            self._session.commit_evictions(position)

    def _is_own(self, other: Task) -> bool:
        return other.job_key == self._job.key

    def _is_elsewhere(self, other: Task) -> bool:
        owner = self._session.job_of(other)
        return owner is not None and owner is not self._job and owner.queue == self._job.queue

    def _preempt(self, task: Task, concerns: Callable[[Task], bool]) -> bool:
        """Make a place for a task; return whether it waits on a node now."""
        session = self._session
        if not may_ask(session, task):
            return False

        def may_go(other: Task) -> bool:
            return (
                PREEMPTABLE[other.status]
                and other.preemptable
                and (other.task_class.best_effort or not task.task_class.best_effort)
                and concerns(other)
            )

        candidates = session.candidates(task.task_class)
        reachable = candidates.reachable()
        if not self._options.enabled:
            reachable &= clearable(session, task.task_class)
            is_own = concerns == self._is_own
            with_victims = hosts(session, [self._job], *_MAY_GO) if is_own else self._inhabited
            reachable &= with_victims | has_room(session, task.task_class)
        return any(
            self._preempt_on(task, candidates.best_first(mask, session.first), may_go)
            for mask in session.by_shard(reachable)
        )

    def _preempt_on(self, task: Task, columns: list[int], may_go: Callable[[Task], bool]) -> bool:
        """Clear one of these nodes, best first, or the best of them all (A06)."""
        session = self._session
        if self._options.enabled:
            search = Search(session, self._orders, self._queue, task, may_go)
            best = search.best(columns, self._options)
            if best is not None:
                session.preemption_attempts += 1
                for victim in best.victims:
                    session.evict(victim, reason=_REASON, taker=task)
                session.place(self._job, [task], [best.column], waiting=True)
            return best is not None
        return any(self._clear(task, column, may_go) for column in columns)

    def _clear(self, task: Task, column: int, may_go: Callable[[Task], bool]) -> bool:
        """Evict on one node, least important first, until the task fits; else evict none."""
        session = self._session
        candidates = residents(session, column, may_go)
        victims = session.hooks.preemptable(task, candidates)
        if not room_after(session, task.task_class, column, victims):
            return False
        session.preemption_attempts += 1
        with session.trial() as keep:
            heap = self._orders.victims(victims, task)
            evicted = []
            while not (fits := fits_waiting(session, self._queue, task, column)) and heap:
                evicted.append(session.evict(heap.pop(), reason=_REASON, taker=task))
            if fits:
                if self._options.spare:
                    reprieve(
                        session, evicted, lambda: fits_waiting(session, self._queue, task, column)
                    )
                session.place(self._job, [task], [column], waiting=True)
                keep()
        return fits
