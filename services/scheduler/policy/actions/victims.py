"""Nodes that may have victims, by the plugins' rules about whole jobs.

A search of all nodes that finds no victims is expensive. So plugins state from which jobs they
allow victims at all (`among`), and only nodes with tasks of those jobs are searched.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice

import numpy as np

from pumice.plugins import BoolArray, IntArray
from pumice.plugins.points import Points
from services.scheduler.engine.jobs.holders import MAY_GO, holds
from services.scheduler.engine.jobs.records import NOWHERE, Job
from services.scheduler.engine.session.session import Session
from shared.model.status import TaskStatus

Bound = Callable[[Job], bool]
"""Whether a plugin might choose any task of a job as a victim."""


class Hosts:
    """The nodes of jobs' tasks in some statuses; within a session their number only decreases."""

    def __init__(self, session: Session, *statuses: TaskStatus) -> None:
        self._session = session
        self._statuses = statuses
        self._columns: dict[str, IntArray] = {}

    def of(self, jobs: Iterable[Job]) -> BoolArray:
        """Return the nodes with tasks of some jobs, or with tasks that have been evicted since."""
        mask = np.zeros(self._session.ledger.size, dtype=np.bool_)
        for job in jobs:
            mask[self._of_job(job)] = True
        return mask

    def _of_job(self, job: Job) -> IntArray:
        found = self._columns.get(job.key)
        if found is None:
            column = self._session.cluster_state.nodes.column
            tasks = (task for status in self._statuses for task in job.by_status[status].values())
            columns = sorted({column(task.node) for task in tasks} - {NOWHERE})
            found = self._columns[job.key] = np.array(columns, dtype=np.int64)
        return found


def are_any(tiers: Sequence[list[Bound] | None], gives: Callable[[Bound], bool]) -> bool:
    """Tell whether plugins might choose victims; `gives` says whether a bound admits any job.

    A tier chooses victims only where each of its plugins chooses some.
    """
    return any(bounds is not None and all(map(gives, bounds or [any_job])) for bounds in tiers)


def any_job(_: Job) -> bool:
    """Admit every job."""
    return True


class ReclaimableJobs:
    """Jobs that other queues might reclaim from; cached per version of the ledger."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._reclaimable = [name for name, queue in session.queues.items() if queue.reclaimable]
        self._version = -1
        self._jobs: dict[tuple[str, Bound], list[Job]] = {}
        self._queues: dict[Bound, list[str]] = {}
        self._exist_for: dict[str, bool] = {}

    def exist_for(self, queue: str) -> bool:
        """Tell whether plugins might choose victims for a queue, by their rules about jobs."""
        self._refresh()
        found = self._exist_for.get(queue)
        if found is None:
            bounds = reclaim_bounds(self._session)
            found = are_any(bounds, lambda bound: self.is_any(queue, bound))
            self._exist_for[queue] = found
        return found

    def is_known_empty(self, queue: str) -> bool:
        """Tell whether the cache knows that a queue can reclaim from no job."""
        self._refresh()
        return self._exist_for.get(queue) is False

    def is_any(self, queue: str, bound: Bound) -> bool:
        """Tell whether other queues than this one have jobs that a bound admits."""
        self._refresh()
        queues = self._queues.get(bound)
        if queues is None:
            # Two are enough, because one of them is another queue.
            having = (name for name in self._reclaimable if self._within(name, bound))
            queues = self._queues[bound] = list(islice(having, 2))
        return any(name != queue for name in queues)

    def jobs(self, queue: str, bound: Bound) -> Iterator[Job]:
        """Yield the jobs of other queues than this one that a bound admits."""
        self._refresh()
        for name in self._reclaimable:
            if name != queue:
                yield from self._within(name, bound)

    def _within(self, queue: str, bound: Bound) -> list[Job]:
        found = self._jobs.get((queue, bound))
        if found is None:
            holders = self._session.cluster_state.jobs.holders.of(queue)
            found = [j for j in holders if j.by_status[TaskStatus.RUNNING] and bound(j)]
            self._jobs[queue, bound] = found
        return found

    def _refresh(self) -> None:
        """Forget the answers for an earlier state of the ledger."""
        if self._version != self._session.ledger.version:
            self._version = self._session.ledger.version
            for known in (self._jobs, self._queues, self._exist_for):
                known.clear()


class Reclaimable:
    """The nodes with tasks that might be reclaimed from other queues."""

    def __init__(self, session: Session, jobs: ReclaimableJobs) -> None:
        self._session = session
        self._jobs = jobs
        self._hosts = Hosts(session, TaskStatus.RUNNING)
        self._version = -1
        self._known: dict[str, BoolArray] = {}

    def nodes(self, queue: str) -> BoolArray:
        """Return the nodes on which a queue might find victims in this state of the ledger."""
        if self._version != self._session.ledger.version:
            self._version = self._session.ledger.version
            self._known.clear()
        found = self._known.get(queue)
        if found is None:
            found = self._known[queue] = _where(
                self._session,
                reclaim_bounds(self._session),
                lambda bound: self._hosts.of(self._jobs.jobs(queue, bound)),
            )
        return found

    def is_known_empty(self, queue: str) -> bool:
        """Tell whether the cache knows that there is no such node for a queue."""
        return self._jobs.is_known_empty(queue)


class Preemptable:
    """The nodes with tasks of other jobs of the queue that might be preempted.

    While searches find victims, asking plugins about each job costs more than it saves, so all
    nodes with tasks of the queue are returned.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._hosts = Hosts(session, *MAY_GO)
        self._version = -1
        self._known: dict[Hashable, BoolArray] = {}
        self._all: dict[str, BoolArray] = {}
        self.last_search_succeeded = False
        """Whether the last search found victims, or room."""

    def nodes(self, job: Job) -> BoolArray:
        """Return the nodes on which a job might find victims in this state of the ledger."""
        if self.last_search_succeeded:
            return self._of_queue(job.queue)
        if self._version != self._session.ledger.version:
            self._version = self._session.ledger.version
            self._known.clear()
        alike = self._session.equal_jobs_fail_equally and not holds(job)
        key = (job.queue, job.namespace, job.priority) if alike else job.key
        found = self._known.get(key)
        if found is None:
            giving = preempted_from(self._session, job)
            found = self._known[key] = _where(
                self._session,
                preempt_bounds(self._session, job),
                lambda bound: self._hosts.of(filter(bound, giving)),
            )
        return found

    def _of_queue(self, queue: str) -> BoolArray:
        found = self._all.get(queue)
        if found is None:
            holders = self._session.cluster_state.jobs.holders
            found = self._all[queue] = self._hosts.of(holders.of(queue))
        return found


def preempted_from(session: Session, job: Job) -> list[Job]:
    """Return the other jobs of its queue that might lose tasks to a job."""
    return [other for other in session.cluster_state.jobs.holders.of(job.queue) if other is not job]


def reclaim_bounds(session: Session) -> list[list[Bound] | None]:
    """Return, tier by tier, the bounds of rules that have some; None for a tier without a rule."""
    return [
        [rule.among for rule in tier if rule.among is not None] if tier else None
        for tier in session.hooks.of(Points.reclaimable).tiers
    ]


def preempt_bounds(session: Session, job: Job) -> list[list[Bound] | None]:
    """Return the same for victims of a job within its queue."""
    return [
        [partial(rule.among, job) for rule in tier if rule.among is not None] if tier else None
        for tier in session.hooks.of(Points.preemptable).tiers
    ]


def _where(
    session: Session, tiers: Sequence[list[Bound] | None], hosts: Callable[[Bound], BoolArray]
) -> BoolArray:
    """Return the nodes on which plugins might name tasks, by the nodes of jobs within a bound.

    A tier names victims only where each of its plugins names some.
    """
    found = np.zeros(session.ledger.size, dtype=np.bool_)
    for bounds in tiers:
        if bounds is not None:
            found |= np.logical_and.reduce([hosts(bound) for bound in bounds or [any_job]])
    return found
