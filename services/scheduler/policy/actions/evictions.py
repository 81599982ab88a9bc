"""Shared by preempt and reclaim: starving jobs, victims, and the room that evictions make."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

import numpy as np

from pumice.plugins import BoolArray, IntArray
from services.scheduler.engine.jobs.holders import holds
from services.scheduler.engine.jobs.records import NOWHERE, Job, Queue
from services.scheduler.engine.placement.candidates import Candidates
from services.scheduler.engine.session.evictions import Evicted
from services.scheduler.engine.session.ordering import Orders
from services.scheduler.engine.session.session import Session
from services.scheduler.engine.tasks.task import Task, TaskClass
from services.scheduler.policy.actions.failed_attempts import (
    FailedAttempts,
    TaskSignature,
    attempt_key,
)
from services.scheduler.policy.eviction_hints import EvictionHints
from shared.model.status import READY, TaskStatus


def starving_jobs(session: Session) -> list[Job]:
    """Return the valid jobs outside of phase Pending that may preempt others (SS07).

    A job that a plugin holds back is excluded: it would evict for resources that it may not use
    yet. So are one whose PodGroup does not preempt, and one whose pods share a domain: no eviction
    keeps to it.
    """
    hooks = session.hooks
    starving = []
    for job in session.jobs:
        if (
            not job.is_pending
            and not job.domain_key
            and job.preempts
            and not session.exclusions.has(job)
            and job.key not in session.start_blocked
        ):
            with session.isolate("starving", job):
                if hooks.job_valid(job) is None and hooks.job_starving(job):
                    starving.append(job)
    return starving


def turns(
    session: Session, orders: Orders, jobs: Iterable[Job], hints: EvictionHints
) -> Iterator[tuple[Queue, list[Job]]]:
    """Yield queues with their jobs in QueueOrder.

    The next queue is chosen after the previous one was handled, because evictions change shares.
    Queues with nothing but unschedulable gangs are among them (`EvictionHints`).
    """
    by_queue: dict[str, list[Job]] = {name: [] for name in hints.queues()}
    for job in jobs:
        by_queue.setdefault(job.queue, []).append(job)
    queues = orders.queues(q for name in sorted(by_queue) if (q := session.queue(name)) is not None)
    while queues:
        queue = queues.pop()
        hints.review(queue)
        yield queue, by_queue[queue.name]


def placeable_tasks(session: Session, job: Job) -> list[Task]:
    """Return the pending tasks of a job without gates and refusals, in task order."""
    pending = job.by_status[TaskStatus.PENDING].values()
    return sorted(
        (t for t in pending if not (t.gated or t.backoff_reason)), key=session.hooks.task_order
    )


def tasks_on_node(session: Session, column: int, is_wanted: Callable[[Task], bool]) -> list[Task]:
    """Return the tasks on a node that `is_wanted` accepts, least important first.

    Without those of groups that are disrupted together: preempt and reclaim evict single tasks.
    Plugins that allow only some of a job's tasks as victims take the first ones of this list.
    """
    name = session.cluster_state.nodes.name(column)
    there = session.cluster_state.nodes.tasks_on(name)
    found = [
        task
        for task in there
        if not task.backoff_reason and is_wanted(task) and not _goes_with_its_group(session, task)
    ]
    return sorted(found, key=session.victim_key, reverse=True)


def _goes_with_its_group(session: Session, task: Task) -> bool:
    job = session.job_of(task)
    return job is not None and job.disrupted_together


def room_after(
    session: Session, task_class: TaskClass, column: int, victims: Sequence[Task]
) -> bool:
    """Tell whether a node has room for one task of a class once these victims are gone.

    `victims` may be empty: an earlier eviction may have freed more than its preemptor requested.
    """
    ledger, dims = session.ledger, list(task_class.dims)
    room: IntArray = ledger.allocatable[dims, column] - ledger.used[dims, column]
    room += ledger.releasing[dims, column] - ledger.pipelined[dims, column]
    for victim in victims:
        room += victim.task_class.request[dims]
    return bool((room >= task_class.request[dims]).all())


def clearable(session: Session, task_class: TaskClass) -> BoolArray:
    """Return the nodes that would have room for a task of a class without any pods.

    The other nodes need no search for victims, because evicting all pods would not suffice
    (`room_after` never exceeds this).
    """
    return _offering(session, task_class, session.ledger.emptied)


def has_idle(session: Session, task_class: TaskClass) -> BoolArray:
    """Return the nodes with idle room for a task of a class, even if Pipelined tasks reserve it."""
    return _offering(session, task_class, session.ledger.idle)


def has_room(session: Session, task_class: TaskClass) -> BoolArray:
    """Return the nodes with room for a task of a class without any victim (`room_after`)."""
    return _offering(session, task_class, session.ledger.future_idle)


def _offering(
    session: Session, task_class: TaskClass, amounts: Callable[[int], IntArray]
) -> BoolArray:
    """Return the nodes whose amounts (by resource index) suffice for one task."""
    mask: BoolArray | None = None
    for dim in task_class.dims:
        suffice = amounts(dim) >= task_class.request[dim]
        mask = suffice if mask is None else mask & suffice
    return np.ones(session.ledger.size, dtype=np.bool_) if mask is None else mask


class UnschedulableCache:
    """Task signatures for which no node can be cleared, and jobs whose attempts failed.

    Other jobs skip the search over all nodes at the same version of the ledger; undoing an attempt
    restores the version. Used for jobs without a task on a node only: no such task can be a victim,
    so that equal jobs have the same victims. A signature holds everything that plugins read of a
    preemptor (PL02 to PL16).
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.failed = FailedAttempts(session)
        self._known: set[tuple[Hashable, ...]] = set()

    def _signature(self, job: Job, task: Task) -> tuple[Hashable, ...] | None:
        if holds(job):
            return None
        return (
            *attempt_key(self._session, job),
            job.claimed.tobytes(),
            task.preemptable,
            *TaskSignature.of(task),
        )

    def learn(self, job: Job, task: Task) -> None:
        """Record that no node can be cleared for a task at this version of the ledger."""
        signature = self._signature(job, task)
        if signature is not None:
            self._known.add(signature)

    def knows(self, job: Job, task: Task) -> bool:
        """Tell whether no node can be cleared for a task at this version of the ledger."""
        return self._signature(job, task) in self._known


def fits_waiting(session: Session, queue: Queue, candidates: Candidates, column: int) -> bool:
    """Tell whether a task may be Pipelined on a node: by its queue's share, room and predicates.

    Predicates are asked, too, since devices may be too scattered though their sum suffices (A05).
    `candidates` of its class need not be up to date: nodes are checked directly.
    """
    task_class = candidates.task_class
    return (
        room_after(session, task_class, column, ())
        and session.hooks.allocatable(queue, task_class, 1) == 1
        and candidates.admits(column)
    )


def pipeline_without_victims(session: Session, queue: Queue, job: Job, task: Task) -> bool:
    """Pipeline a task where there is room without a victim; return whether it was.

    A gang uses idle and releasing resources first, and evicts only for the rest. ⚠ Volcano's
    actions visit nodes in order, and evict on the first that suffices.
    """
    if session.volcano_evictions or not has_room(session, task.task_class).any():
        return False
    if not session.hooks.allocatable(queue, task.task_class, 1):
        return False
    candidates = session.candidates(task.task_class)
    for mask in session.by_shard(candidates.future):
        if mask.any():
            column = candidates.best(mask, session.first, None)
            session.place(job, [task], [column], waiting=True)
            return True
    return False


def reprieve(
    session: Session,
    evicted: Sequence[Evicted],
    fits: Callable[[], bool],
    *,
    until_it_fitted: bool = False,
) -> list[Evicted]:
    """Reprieve victims, most important first, as long as the preemptor still fits.

    Tasks of a group that is disrupted together are reprieved together. `evicted` is in the order of
    evictions; returns the victims that are evicted after all. If they
    were evicted `until_it_fitted`, the last one is needed, and so is each equal one.
    """
    if until_it_fitted and len({change.task.task_class.id for change in evicted}) <= 1:
        return list(evicted)
    units: dict[str, list[Evicted]] = {}
    for change in reversed(evicted):
        task = change.task
        unit = task.job_key if _goes_with_its_group(session, task) else task.uid
        units.setdefault(unit, []).append(change)
    gone = []
    for changes in units.values():
        for change in changes:
            session.reprieve(change)
        if not fits():
            gone += [
                session.evict(change.task, reason=change.reason, preemptor=change.preemptor)
                for change in changes
            ]
    return gone


class Exchange:
    """The victims and gains of a job; prevents evictions that a victim's job could reverse.

    Otherwise eviction and reverse eviction would alternate endlessly.
    """

    def __init__(
        self,
        session: Session,
        job: Job,
        *,
        may_take: Callable[[Task], bool],
        gets: Callable[[Task, list[Task]], bool],
    ) -> None:
        """Start without victims.

        `may_take` returns whether a victim may evict at all, which depends only on the losses of
        its queue; `gets` whether it could evict any of the given tasks.
        """
        self._session, self._job, self._may_take, self._gets = session, job, may_take, gets
        self._victims: dict[tuple[str, str, int], Task] = {}
        """One victim of each queue, job and class; equal ones are entitled to the same."""
        self._entitled: set[tuple[str, str, int]] = set()

    def is_permanent(self, evicted: Sequence[Evicted]) -> bool:
        """Return whether no victim's job could reverse an eviction; if so, add these victims."""
        if self._session.volcano_evictions:
            return True
        victims = dict(self._victims)
        for each in evicted:
            victims[each.queue, each.task.job_key, each.task.task_class.id] = each.task
        losing = {each.queue for each in evicted}
        entitled = {
            key
            for key, victim in victims.items()
            if (key in self._entitled or key[0] in losing) and self._may_take(victim)
        }
        if entitled:
            waiting = self._job.by_status[TaskStatus.PIPELINED].values()
            # Plugins allow the first of equal tasks as victims before the others.
            taken = list({task.task_class.id: task for task in waiting}.values())
            if any(self._gets(victims[key], taken) for key in entitled):
                return False
        self._victims, self._entitled = victims, entitled
        return True


def allows_preemption(session: Session, task: Task) -> bool:
    """Tell whether a task may preempt others of its queue (A05).

    Not with the preemption policy Never; and not while its nominated node takes it and has room for
    it, or while victims on that node are still terminating. A nominated node that refuses it
    permanently, or was deleted, does not count; with Volcano's evictions a deleted one ends its
    claims. Where others have taken its room, it preempts again (volcano#5131).
    """
    if not task.preempts:
        return False
    if not task.nominated:
        return True
    column = session.cluster_state.nodes.column(task.nominated)
    if column == NOWHERE:
        return not session.volcano_evictions
    candidates = session.candidates(task.task_class)
    if not candidates.reachable()[column]:
        return True
    if candidates.admits(column) and room_after(session, task.task_class, column, ()):
        return False
    leaving = session.cluster_state.nodes.tasks_on(task.nominated)
    return not any(
        (other.displaced or session.cluster_state.is_being_evicted(other.uid))
        and other.pod_priority < task.pod_priority
        for other in leaving
    )


def has_minimum(job: Job) -> bool:
    """Return whether a gang has its minima, Pipelined tasks included, independent of plugins."""
    counted = job.waiting_count + job.ready_count + job.pending_best_effort
    statuses = (*READY, TaskStatus.PIPELINED)
    return counted >= job.min_available and not job.roles_short_of(*statuses, best_effort=True)


def attempt_each_task(
    session: Session,
    job: Job,
    unschedulable: UnschedulableCache,
    attempt: Callable[[Task], bool],
    *,
    whole_gang: bool,
) -> None:
    """Call `attempt` for each task of a starving job, as preempt and reclaim both do.

    Everything is undone unless the job is then pipelined. With `whole_gang` the gang must have its
    minima even if no plugin requires that. After a failure, tasks of the same signature are skipped
    until another one has succeeded.
    """
    tasks = placeable_tasks(session, job)
    if unschedulable.failed.would_fail(job, tasks):
        return
    position = session.journal.position
    failed: set[TaskSignature] = set()
    with session.trial() as keep:
        for task in tasks:
            if not session.hooks.job_starving(job):
                break
            signature = TaskSignature.of(task)
            if signature in failed or unschedulable.knows(job, task):
                continue
            if attempt(task):
                failed.clear()
            else:
                failed.add(signature)
                unschedulable.learn(job, task)
        if session.hooks.job_pipelined(job) and (not whole_gang or has_minimum(job)):
            keep()
            session.commit_evictions(position)
            return
    unschedulable.failed.learn(job, tasks)
