"""preempt (A05, A06): starving jobs evict pods of less important jobs in the same queue.

First between jobs: the evictions for a job are kept or undone together, and kept when the job is
then pipelined. Afterwards within each starving job, by the priority of its tasks, one task at a
time. Victims are Releasing from then on, and the preemptor waits on their node (Pipelined).

With `enableTopologyAwarePreemption` victims and node are chosen as in kube-scheduler (A06): on each
candidate node, victims are evicted until the task fits; then each is reprieved, most important
first, if the task still fits. Of the nodes with victims the one with the smallest loss is taken.
"""

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple, Self

from pumice.plugins import Arguments, BoolArray
from services.scheduler.engine.jobs.holders import MAY_GO
from services.scheduler.engine.jobs.records import Job, Queue
from services.scheduler.engine.jobs.unschedulable import AllocateDemand, Demand, Preempting
from services.scheduler.engine.placement.candidates import Candidates
from services.scheduler.engine.session.evictions import Evicted
from services.scheduler.engine.session.ordering import Orders
from services.scheduler.engine.session.session import Session
from services.scheduler.engine.tasks.task import Task, TaskClass
from services.scheduler.policy.actions.evictions import (
    Exchange,
    UnschedulableCache,
    allows_preemption,
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
from services.scheduler.policy.actions.victims import Hosts, Preemptable
from services.scheduler.policy.arguments import boolean, integer
from services.scheduler.policy.eviction_hints import EvictionHints
from shared.model.status import PREEMPTABLE

_REASON = "preempt"
_LIFT = 2**31
"""Added to each priority before summing, so that fewer victims are cheaper even at negative
priorities.
"""


class PreemptArguments(NamedTuple):
    """Arguments of the action (K07)."""

    spare: bool
    """Pumice's own `spareVictims` (default false): victims that are not needed are reprieved, and
    no pod is evicted for less than a whole gang."""
    enabled: bool
    minimum_percent: int
    minimum: int
    maximum: int

    @classmethod
    def read(cls, arguments: Arguments) -> Self:
        """Return the options. `topologyAwarePreemptWorkerNum` has no effect: one thread."""
        return cls(
            spare=boolean(arguments, "spareVictims", default=False),
            enabled=boolean(arguments, "enableTopologyAwarePreemption", default=False),
            minimum_percent=integer(arguments, "minCandidateNodesPercentage", 10),
            minimum=integer(arguments, "minCandidateNodesAbsolute", 1),
            maximum=integer(arguments, "maxCandidateNodesAbsolute", 100),
        )

    def number(self, nodes: int) -> int:
        """Return how many nodes with victims are compared, out of so many reachable ones."""
        desired = max(nodes * self.minimum_percent // 100, self.minimum)
        return min(desired, self.maximum, nodes)


def execute(session: Session, arguments: Arguments) -> None:
    """Evict for starving jobs, best queue and job first.

    `predicateErrorCacheEnable` (K07) changes no decision: permanent refusals stay refusals.
    """
    options = PreemptArguments.read(arguments)
    if not session.volcano_evictions:
        options = options._replace(spare=True)
    orders = Orders(session)
    elsewhere, at_home = UnschedulableCache(session), UnschedulableCache(session)
    preemptable = Preemptable(session)
    room = _SingleRoom(session)
    # ⚠ Jobs that state a topology are left out: nodes cleared for them would not be near each
    # other (A05).
    starving = [
        job
        for job in starving_jobs(session)
        if job.sub_jobs is None or not job.sub_jobs.states_topology()
    ]
    for queue, queue_jobs in turns(session, orders, starving, EvictionHints(session, _REASON)):
        jobs = orders.jobs(queue_jobs)
        while jobs:
            job = jobs.pop()
            with session.isolate(_REASON, job):
                preemptor = _Preemptor(session, orders, queue, job, preemptable, options=options)
                preemptor.from_other_jobs(elsewhere)
        for job in _one_by_one(session, queue, queue_jobs, room):
            with session.isolate(_REASON, job):
                preemptor = _Preemptor(session, orders, queue, job, preemptable, options=options)
                preemptor.from_own_tasks(at_home)


class _SingleRoom:
    """Caches whether pods of unschedulable gangs fit without evictions, per ledger version."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._version = -1
        self._known: dict[int, bool] = {}

    def has_any(self, demand: Demand) -> bool:
        """Tell whether a pod of an unschedulable gang that may preempt has room on a node."""
        if not isinstance(demand, AllocateDemand) or demand.preempting is Preempting.NONE:
            return False
        if self._version != self._session.ledger.version:
            self._version = self._session.ledger.version
            self._known.clear()
        return any(self._has_one(task_class) for task_class, _ in demand.classes)

    def _has_one(self, task_class: TaskClass) -> bool:
        found = self._known.get(task_class.id)
        if found is None:
            reachable = self._session.candidates(task_class).reachable()
            found = bool((reachable & has_room(self._session, task_class)).any())
            self._known[task_class.id] = found
        return found


def _one_by_one(
    session: Session, queue: Queue, starving: Sequence[Job], room: _SingleRoom
) -> Iterator[Job]:
    """Yield jobs of a queue by key; unschedulable ones only while one of their pods has room."""
    found: list[tuple[str, Job, Demand | None]] = [
        (job.key, job, group.demand)
        for group in session.cluster_state.jobs.unschedulable.at_allocate.groups(queue.name)
        if room.has_any(group.demand)
        for _, job in group.members
    ]
    if not found:
        yield from starving
        return
    found += [(job.key, job, None) for job in starving]
    for _, job, demand in sorted(found, key=itemgetter(0)):
        if demand is None or room.has_any(demand):
            yield job


class _Preemptor:
    """One starving job."""

    def __init__(
        self,
        session: Session,
        orders: Orders,
        queue: Queue,
        job: Job,
        preemptable: Preemptable,
        *,
        options: PreemptArguments,
    ) -> None:
        self._preemptable = preemptable
        self._session = session
        self._orders = orders
        self._queue = queue
        self._job = job
        self._options = options
        self._exchange = Exchange(session, job, may_take=self._may_preempt, gets=self._gets_back)

    def from_other_jobs(self, unschedulable: UnschedulableCache) -> None:
        """Evict pods of other jobs of the queue; undone unless the job is then pipelined."""
        attempt_each_task(
            self._session,
            self._job,
            unschedulable,
            lambda task: self._preempt(task, self._is_elsewhere),
            whole_gang=self._options.spare,
        )

    def from_own_tasks(self, unschedulable: UnschedulableCache) -> None:
        """Evict less important tasks of the same job, until one task finds no node.

        A job without a task on a node uses free resources, or fails like an equal job before it.
        """
        for task in placeable_tasks(self._session, self._job):
            position = self._session.journal.position
            if unschedulable.knows(self._job, task):
                return
            if not self._preempt(task, self._is_own):
                unschedulable.learn(self._job, task)
                return
            self._session.commit_evictions(position)

    def _is_own(self, other: Task) -> bool:
        return other.job_key == self._job.key

    def _is_elsewhere(self, other: Task) -> bool:
        owner = self._session.job_of(other)
        return owner is not None and owner is not self._job and owner.queue == self._job.queue

    def _preempt(self, task: Task, concerns: Callable[[Task], bool]) -> bool:
        """Evict for a task; return whether it is Pipelined on a node now."""
        session = self._session
        if not allows_preemption(session, task):
            return False
        if pipeline_without_victims(session, self._queue, self._job, task):
            return True

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
            with_victims = self._with_victims(own=concerns == self._is_own)
            reachable &= with_victims | has_room(session, task.task_class)
        found = any(
            self._preempt_on(task, candidates.best_first(mask, session.first), may_go)
            for mask in session.by_shard(reachable)
        )
        self._preemptable.last_search_succeeded = found
        return found

    def _with_victims(self, *, own: bool) -> BoolArray:
        if not own:
            return self._preemptable.nodes(self._job)
        return Hosts(self._session, *MAY_GO).of([self._job])

    def _preempt_on(self, task: Task, columns: list[int], may_go: Callable[[Task], bool]) -> bool:
        """Evict on the first of these nodes that can be cleared, or on the best of all (A06)."""
        session = self._session
        if self._options.enabled:
            search = Search(session, self._orders, self._queue, task, may_go)
            best = search.best(columns, self._options)
            if best is not None:
                session.preemption_attempts += 1
                for victim in best.victims:
                    session.evict(victim, reason=_REASON, preemptor=task)
                session.place(self._job, [task], [best.column], waiting=True)
            return best is not None
        candidates = session.candidates(task.task_class)
        return any(self._clear(task, candidates, column, may_go) for column in columns)

    def _clear(
        self, task: Task, nodes: Candidates, column: int, may_go: Callable[[Task], bool]
    ) -> bool:
        """Evict on one node, least important first, until the task fits; undone if it does not."""
        session = self._session
        candidates = tasks_on_node(session, column, may_go)
        victims = session.hooks.preemptable(task, candidates)
        if not room_after(session, task.task_class, column, victims):
            return False
        session.preemption_attempts += 1
        with session.trial() as keep:
            heap = self._orders.victims(victims, task)
            evicted = []
            while not (fits := fits_waiting(session, self._queue, nodes, column)) and heap:
                evicted.append(session.evict(heap.pop(), reason=_REASON, preemptor=task))
            if fits:
                if self._options.spare:
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
        return fits

    def _may_preempt(self, victim: Task) -> bool:
        """Tell whether a victim is of another job, which starves without it."""
        owner = self._session.job_of(victim)
        if owner is None or owner is self._job:
            return False
        return self._session.hooks.job_starving(owner)

    def _gets_back(self, victim: Task, taken: list[Task]) -> bool:
        """Tell whether a victim's job could preempt in turn.

        Plugins may allow both, one by priorities and one by shares.
        """
        return bool(self._session.hooks.preemptable(victim, taken))


class VictimChoice(NamedTuple):
    """A node and its victims, most important first."""

    column: int
    victims: Sequence[Task]

    def loss(self) -> tuple[int, int, int, float]:
        """Return what kube-scheduler compares; the smaller the better.

        Compared in order: the highest priority, the sum of priorities, the number of victims, and
        the start of the longest running victim of the highest priority (later is better).
        """
        priorities = [task.pod_priority for task in self.victims]
        highest = max(priorities)
        begun = min(task.started for task in self.victims if task.pod_priority == highest)
        first = priorities[0]
        return first, sum(priorities) + _LIFT * len(priorities), len(priorities), -begun


class Search(NamedTuple):
    """The search for a node for one preemptor, with the rule for its candidates."""

    session: Session
    orders: Orders
    queue: Queue
    task: Task
    may_go: Callable[[Task], bool]

    def best(self, columns: Sequence[int], options: PreemptArguments) -> VictimChoice | None:
        """Return the best of the nodes that can be cleared; changes nothing."""
        choices: list[VictimChoice] = []
        limit = options.number(len(columns))
        for column in sorted(columns):
            if len(choices) == limit:
                break
            victims = self._on_node(column)
            if victims:
                choices.append(VictimChoice(column, victims))
        return min(choices, key=lambda choice: (*choice.loss(), choice.column), default=None)

    def _on_node(self, column: int) -> list[Task]:
        """Return the smallest set of victims on a node, none if it cannot be cleared.

        ⚠ At least one must be evicted: a node that has room without evictions is no candidate.
        """
        session, task = self.session, self.task
        candidates = tasks_on_node(session, column, self.may_go)
        proposed = session.hooks.preemptable(task, candidates)
        if not room_after(session, task.task_class, column, proposed):
            return []
        with session.trial():  # never kept: a dry run
            evicted: list[Evicted] = []
            heap = self.orders.victims(proposed, task)
            while heap:
                evicted.append(session.evict(heap.pop(), reason="trial", preemptor=task))
                if self._fits(column):
                    break
            if not evicted or not session.candidates(task.task_class).admits(column):
                return []
            return [e.task for e in reprieve(session, evicted, lambda: self._fits(column))]

    def _fits(self, column: int) -> bool:
        nodes = self.session.candidates(self.task.task_class)
        return fits_waiting(self.session, self.queue, nodes, column)
