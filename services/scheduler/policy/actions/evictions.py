"""What preempt and reclaim share: who may ask, whom to ask, in which order victims go (SS05, SS06).

Orders are asked anew at every comparison, because evictions change them; their keys are kept per
state of the ledger.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pumice.plugins import BoolArray, IntArray
from services.scheduler.engine.evicting import Evicted
from services.scheduler.engine.points import OrderKey
from services.scheduler.engine.records import NOWHERE, Job, Queue
from services.scheduler.engine.session import Session
from services.scheduler.engine.shapes import TaskClass
from services.scheduler.engine.tasks import Task
from services.scheduler.policy.actions.live_heap import LiveHeap
from shared.model.status import READY, TaskStatus


class Orders:
    """Heaps of queues, jobs and victims that follow the session's changes."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._version = -1
        self._keys: dict[tuple[str, str], OrderKey] = {}

    def queues(self, queues: Iterable[Queue]) -> LiveHeap[Queue]:
        """Return a heap of queues by QueueOrder."""
        return LiveHeap(lambda a, b: self._queue_key(a) < self._queue_key(b), queues)

    def jobs(self, jobs: Iterable[Job]) -> LiveHeap[Job]:
        """Return a heap of jobs by JobOrder."""
        return LiveHeap(lambda a, b: self._job_key(a) < self._job_key(b), jobs)

    def victims(self, victims: Iterable[Task], taker: Task) -> LiveHeap[Task]:
        """Return a heap of victims, who goes first on top.

        Victims of different queues go by VictimQueueOrder, then against the order of queues; those
        of one queue against the order of jobs, as far as plugins tell jobs apart, then of tasks.
        """
        own = self._session.job_of(taker)
        home = self._session.queue(own.queue) if own else None

        def goes_first(left: Task, right: Task) -> bool:
            mine, theirs = self._session.job_of(left), self._session.job_of(right)
            if mine is not None and theirs is not None and mine is not theirs:
                if mine.queue != theirs.queue and home is not None:
                    return self._leaves_first(mine.queue, theirs.queue, home)
                here, there = self._plugin_key(mine), self._plugin_key(theirs)
                if here != there:
                    return here > there
            task_key = self._session.hooks.task_key
            return task_key(left) > task_key(right)

        return LiveHeap(goes_first, victims)

    def _leaves_first(self, mine: str, theirs: str, home: Queue) -> bool:
        left, right = self._session.queue(mine), self._session.queue(theirs)
        if left is None or right is None:
            return left is None
        for fn in self._session.hooks.victim_queue_order.all():
            here, there = fn(left, home), fn(right, home)
            if here != there:
                return bool(here < there)
        return self._queue_key(left) > self._queue_key(right)

    def _queue_key(self, queue: Queue) -> OrderKey:
        return self._kept("queue", queue.name, lambda: self._session.hooks.queue_key(queue))

    def _job_key(self, job: Job) -> OrderKey:
        return self._kept("job", job.key, lambda: self._session.hooks.job_key(job))

    def _plugin_key(self, job: Job) -> OrderKey:
        return self._job_key(job)[:-2]

    def _kept(self, kind: str, name: str, compute: Callable[[], OrderKey]) -> OrderKey:
        if self._version != self._session.ledger.version:
            self._version = self._session.ledger.version
            self._keys = {}
        found = self._keys.get((kind, name))
        if found is None:
            found = self._keys[kind, name] = compute()
        return found


class Likeness(NamedTuple):
    """What decides a task's fate among the tasks of its job.

    As long as nothing changes, equal tasks fail alike and need not be tried one by one.
    """

    shape: int
    priority: int
    pod_priority: int
    preempts: bool
    nominated: str

    @classmethod
    def of(cls, task: Task) -> "Likeness":
        """Return what tells a task from others."""
        return cls(task.shape.id, task.priority, task.pod_priority, task.preempts, task.nominated)


def starving_jobs(session: Session) -> list[Job]:
    """Return the valid jobs outside of phase Pending that may take from others (SS07)."""
    hooks = session.hooks
    return [
        job
        for job in session.jobs
        if not job.is_pending and hooks.invalidity(job) is None and hooks.starving(job)
    ]


def turns(
    session: Session, orders: Orders, jobs: Iterable[Job]
) -> Iterator[tuple[Queue, list[Job]]]:
    """Yield queues with the jobs that are theirs, the best queue of the moment first.

    Whose turn is next is asked after the one before has been served, since that changes shares.
    """
    by_queue: dict[str, list[Job]] = {}
    for job in jobs:
        by_queue.setdefault(job.queue, []).append(job)
    queues = orders.queues(q for name in by_queue if (q := session.queue(name)) is not None)
    while queues:
        queue = queues.pop()
        yield queue, by_queue[queue.name]


def wanting(session: Session, job: Job) -> list[Task]:
    """Return the pending tasks of a job that nothing holds back, in order."""
    pending = job.by_status[TaskStatus.PENDING].values()
    return sorted((t for t in pending if not t.gated), key=session.hooks.task_key)


def residents(session: Session, column: int, wanted: Callable[[Task], bool]) -> list[Task]:
    """Return the tasks on a node that a rule admits as candidates, least important first.

    Plugins that give up only so many of a job's tasks take the first ones of this list.
    """
    name = session.replica.nodes.name(column)
    found = [task for task in session.replica.nodes.tasks_on(name) if wanted(task)]
    return sorted(found, key=session.hooks.task_key, reverse=True)


def room_after(session: Session, shape: TaskClass, column: int, victims: Sequence[Task]) -> bool:
    """Tell whether a node has room for one task of a class once these victims are gone.

    ⚠ There may be none: an earlier eviction may have freed more than its taker needed.
    """
    ledger, dims = session.ledger, list(shape.dims)
    room: IntArray = ledger.allocatable[dims, column] - ledger.used[dims, column]
    room += ledger.releasing[dims, column] - ledger.pipelined[dims, column]
    for victim in victims:
        room += victim.shape.request[dims]
    return bool((room >= shape.request[dims]).all())


def clearable(session: Session, shape: TaskClass) -> BoolArray:
    """Return the nodes that would have room for a task of a class with all who run there gone.

    The others need not be asked, whoever the victims would be: what waits there already was
    promised the rest (`room_after` is never more than this).
    """
    ledger = session.ledger
    mask = np.ones(ledger.size, dtype=np.bool_)
    for dim in shape.dims:
        most = ledger.allocatable[dim, : ledger.size] - ledger.pipelined[dim, : ledger.size]
        mask &= most >= shape.request[dim]
    return mask


def within_own(session: Session, job: Job, shape: TaskClass) -> BoolArray:
    """Return the nodes where a task finds room, or tasks of its own job that might go."""
    mask = np.ones(session.ledger.size, dtype=np.bool_)
    for dim in shape.dims:
        mask &= session.ledger.future_idle(dim) >= shape.request[dim]
    for status in (TaskStatus.BOUND, TaskStatus.RUNNING):
        for task in job.by_status[status].values():
            column = session.replica.nodes.column(task.node)
            if column != NOWHERE:
                mask[column] = True
    return mask


class Hopeless:
    """Whom all nodes refused, so that the like of other jobs need not ask them all again.

    It holds while nothing changes, and for jobs without a running task: others might have taken
    from those of the one that asked. Plugins judge a taker by what is named here (PL02 to PL16).
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._version = -1
        self._known: set[tuple[Hashable, ...]] = set()

    def _names(self, job: Job, task: Task) -> tuple[Hashable, ...] | None:
        if job.by_status[TaskStatus.RUNNING] or job.by_status[TaskStatus.BOUND]:
            return None
        if self._version != self._session.ledger.version:
            self._version = self._session.ledger.version
            self._known.clear()
        held = job.claimed.tobytes()
        return (job.queue, job.namespace, job.priority, held, task.preemptable, *Likeness.of(task))

    def learn(self, job: Job, task: Task) -> None:
        """Note that no node could be cleared for a task of a job as things are."""
        names = self._names(job, task)
        if names is not None:
            self._known.add(names)

    def knows(self, job: Job, task: Task) -> bool:
        """Tell whether it was shown already that no node can be cleared for such a task."""
        return self._names(job, task) in self._known


def fits_waiting(session: Session, queue: Queue, task: Task, column: int) -> bool:
    """Tell whether a task may wait on a node as things are: queue, room and predicates allow it.

    All three are asked because devices may lie in pieces though their sum suffices (A05).
    """
    return (
        session.hooks.allowed(queue, task.shape, 1) == 1
        and room_after(session, task.shape, column, ())
        and session.candidates(task.shape).admits(column)
    )


def reprieve(
    session: Session, evicted: Sequence[Evicted], fits: Callable[[], bool]
) -> list[Evicted]:
    """Let those stay, most important first, without whom the taker fits all the same.

    `evicted` is in the order in which they went; returns those who had to go again.
    """
    gone = []
    for change in reversed(evicted):
        session.reprieve(change)
        if not fits():
            gone.append(session.evict(change.task, reason=change.reason, taker=change.taker))
    return gone


def may_ask(session: Session, task: Task) -> bool:
    """Tell whether a task may take from others within its queue (A05).

    Not with the preemption policy Never; and not while its nominated node, whose victims are on
    their way out, is to be had, or is still being cleared for it. A node that refuses it for good
    does not hold it up.
    """
    if not task.preempts:
        return False
    if not task.nominated:
        return True
    column = session.replica.nodes.column(task.nominated)
    if column == NOWHERE:
        return False
    candidates = session.candidates(task.shape)
    if not candidates.reachable()[column]:
        return True
    if candidates.admits(column):
        return False
    leaving = session.replica.nodes.tasks_on(task.nominated)
    return not any(t.displaced and t.pod_priority < task.pod_priority for t in leaving)


def is_whole(job: Job) -> bool:
    """Tell whether a gang has its minima, counting what waits, whatever plugins are configured."""
    counted = job.waiting_count + job.ready_count + job.pending_best_effort
    statuses = (*READY, TaskStatus.PIPELINED)
    return counted >= job.min_available and not job.roles_short_of(*statuses, best_effort=True)


def take_for(
    session: Session,
    job: Job,
    hopeless: Hopeless,
    attempt: Callable[[Task], bool],
    *,
    whole: bool,
) -> None:
    """Try to make a place for each task of a starving job, as preempt and reclaim both do.

    All is for nothing unless the job is then pipelined; with `whole` its gang has to be whole even
    where no plugin asks for that. A task like one that just failed is not tried again until another
    one found a place.
    """
    position = session.journal.position
    failed: set[Likeness] = set()
    with session.trial() as keep:
        for task in wanting(session, job):
            if not session.hooks.starving(job):
                break
            likeness = Likeness.of(task)
            if likeness in failed or hopeless.knows(job, task):
                continue
            if attempt(task):
                failed.clear()
            else:
                failed.add(likeness)
                hopeless.learn(job, task)
        if session.hooks.pipelined(job) and (not whole or is_whole(job)):
            keep()
            session.commit_evictions(position)
