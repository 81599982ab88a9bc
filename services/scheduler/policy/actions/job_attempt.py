"""One attempt at a job or subgroup: tasks in order until it is ready or nothing fits (A03).

A gated task is never placed. The gate of a task that waits only for its queue is removed when the
queue's share has room for it, even if no node has (CA14).
"""

from collections import deque
from collections.abc import Sequence
from itertools import islice, takewhile
from typing import Protocol

from pumice.plugins import BoolArray, StartBlock
from services.scheduler.engine.jobs.records import Job, Queue
from services.scheduler.engine.placement.choice import PlacementTarget
from services.scheduler.engine.plan import Shortage
from services.scheduler.engine.session.failures import OverQuota, need_continue
from services.scheduler.engine.session.session import Session
from services.scheduler.engine.tasks.task import Task
from services.scheduler.policy.states.queue_gates import QueueGates

Worklist = deque[Task]


class Goal(Protocol):
    """The goal of an attempt: a whole job, or a subgroup of one."""

    singly: bool
    """Whether tasks are placed one at a time, because the node of each matters for the next one."""
    turn: int
    """Number of tasks that an attempt places if none is missing."""

    def missing(self) -> int:
        """Return the minimum number of tasks still to place; 0 ends the attempt."""

    def failed_roles(self) -> set[str]:
        """Return the roles of which no further task is tried."""

    def may_continue(self) -> bool:
        """Tell whether the tasks of other roles can still form a gang."""

    def target(self) -> PlacementTarget:
        """Return the job, and the nodes that its pods may use."""

    def placed(self, columns: Sequence[int]) -> None:
        """Record the columns of placed tasks."""


class WholeJob:
    """The goal of a job without subgroups, on all nodes or some."""

    singly = False
    turn = 1

    def __init__(self, session: Session, job: Job, within: BoolArray | None = None) -> None:
        self._session = session
        self._job = job
        self._target = PlacementTarget(job, within=within)
        self._failed = session.failures(job)

    def missing(self) -> int:
        """Return the number of tasks missing to the job's minimum."""
        return self._session.hooks.job_ready(self._job)

    def failed_roles(self) -> set[str]:
        """Return the roles that failed in this session."""
        return self._failed.roles

    def may_continue(self) -> bool:
        """Tell whether the other roles suffice."""
        return need_continue(self._job, self._failed.roles)

    def target(self) -> PlacementTarget:
        """Return the job, and the nodes that its pods may use."""
        return self._target

    def placed(self, columns: Sequence[int]) -> None:
        """Do nothing: the nodes of tasks do not matter for others."""


class JobAttempt:
    """One attempt at one job."""

    def __init__(
        self,
        session: Session,
        queue: Queue,
        job: Job,
        tasks: Worklist,
        *,
        goal: Goal | None = None,
        at_once: bool = False,
    ) -> None:
        """`at_once`: use idle resources only, and place nominated pods on any node."""
        self._session = session
        self._queue = queue
        self._job = job
        self._tasks = tasks
        self._goal: Goal = goal or WholeJob(session, job)
        self._at_once = at_once

    def run(self) -> bool:
        """Place tasks until the job is ready; return whether it was committed.

        A job that a plugin holds back is tried once more on the nodes that the plugin names.
        """
        session, job = self._session, self._job
        tasks = tuple(self._tasks)
        found = self._attempt()
        if not isinstance(found, StartBlock):
            return found
        session.block_start(job, found)
        if found.elsewhere is None:
            return False
        self._tasks.clear()
        self._tasks.extend(task for task in tasks if not task.gated)  # gates were handled above
        within = self._goal.target().within
        elsewhere = found.elsewhere if within is None else found.elsewhere & within
        self._goal = WholeJob(session, job, elsewhere)
        committed = self._attempt() is True
        if committed:
            session.unblock_start(job)
        else:
            session.block_start(job, found)
        return committed

    def _attempt(self) -> bool | StartBlock:
        session, job = self._session, self._job
        position = session.journal.position
        with session.trial() as keep:
            self.place()
            ready = session.hooks.job_ready(job) == 0
            if not ready and (self._at_once or not session.hooks.job_pipelined(job)):
                return False
            hold = session.hooks.job_start(job)
            if hold is not None:
                return hold
            keep()
            if ready:
                session.commit(job, position)
        return ready

    def place(self) -> None:
        """Place tasks until the goal is reached or nothing more fits; the caller may undo it."""
        session, job, tasks = self._session, self._job, self._tasks
        turn = self._goal.turn
        while tasks:
            run = self._next_run(turn)
            head = run[0]
            if head.gated:
                self._wait_at_gates(self._equals())
                continue
            allowed = session.hooks.allocatable(self._queue, head.task_class, len(run))
            if allowed == 0:
                self._refuse_share(self._equals())
                continue
            if head.backoff_reason:
                session.explain(job, "binder", f"pod {head.name}: {head.backoff_reason}")
                self._skip(self._equals())
                continue
            if head.role and head.role in self._goal.failed_roles():
                self._skip(self._equals())
                continue
            waited = len(tasks)
            if not self._place_run(run[:allowed]):
                failure = session.fail(job, self._equals())
                text = f"{failure.text()}{self._subgroup(head)}"
                session.explain(job, "predicate", text, failure)
                self._skip(self._equals())
                if not self._goal.may_continue():
                    break
                continue
            turn -= waited - len(tasks)
            if turn <= 0 and self._goal.missing() == 0:
                break

    def _wait_at_gates(self, tasks: list[Task]) -> None:
        """Remove the gates of as many equal tasks as their queue has room for (CA14)."""
        refused = admit(self._session, self._queue, self._job, tasks)
        self._skip(tasks[: len(tasks) - refused])
        if refused:
            self._refuse_share(tasks[-refused:])

    def _refuse_share(self, tasks: list[Task]) -> None:
        """Record that the queue has no share left for equal tasks, and skip them."""
        session, head = self._session, tasks[0]
        left = session.total - session.ledger.total_used()
        short = (
            name
            for name, requested, free in zip(
                session.resources, head.task_class.request, left, strict=False
            )
            if requested > free and name != "pods"
        )
        why = OverQuota(self._queue.name, tuple(short), tuple(self._beyond_share(head)))
        text = f"{why.text(head.name)}{self._subgroup(head)}"
        session.explain(self._job, "quota", text, shortages=why.shortages)
        session.failures(self._job).over_quota.update((task.uid, why) for task in tasks)
        self._skip(tasks)

    def _subgroup(self, task: Task) -> str:
        """Return the end of a message that names the subgroup of a task, "" for none."""
        sub_jobs = self._job.sub_jobs
        policy = sub_jobs.of_task(task).policy if sub_jobs is not None else ""
        return f" (subgroup {policy})" if policy else ""

    def _beyond_share(self, task: Task) -> list[Shortage]:
        """Return the resources of which the queue's share is too small for one more task."""
        request, names = task.task_class.request, self._session.resources
        return [
            Shortage.of(name, int(requested), max(0, int(left)))
            for room in (left(self._queue) for left in self._session.hooks.queue_room)
            for name, requested, left in zip(names, request, room, strict=False)
            if requested > left and requested and name != "pods"
        ]

    def _equals(self, limit: int | None = None) -> list[Task]:
        """Return the tasks at the head that are equal, so that one is tried for all."""
        head = self._tasks[0]
        alike = takewhile(
            lambda task: (
                task.task_class is head.task_class
                and task.role == head.role
                and task.nominated == head.nominated
                and task.gated == head.gated
                and task.queue_gated == head.queue_gated
                and task.lifting == head.lifting
                and task.backoff_reason == head.backoff_reason
            ),
            self._tasks,
        )
        return list(islice(alike, limit))

    def _next_run(self, turn: int) -> list[Task]:
        """Return as many equal tasks as the job needs, or may place in its turn; at least one."""
        return self._equals(1 if self._goal.singly else max(1, turn, self._goal.missing()))

    def _skip(self, tasks: list[Task]) -> None:
        for _ in tasks:
            self._tasks.popleft()

    def _place_run(self, run: list[Task]) -> bool:
        """Place some of these equal tasks; return whether any could be."""
        session = self._session
        for waiting in (False,) if self._at_once else (False, True):
            columns = self._columns(run, waiting=waiting)
            if columns:
                placed = run[: len(columns)]
                self._skip(placed)
                session.place(self._job, placed, columns, waiting=waiting)
                self._goal.placed(columns)
                return True
        return False

    def _columns(self, run: list[Task], *, waiting: bool) -> list[int]:
        session, head = self._session, run[0]
        if head.nominated and not self._at_once:
            column = session.cluster_state.nodes.column(head.nominated)
            candidates = session.candidates(head.task_class)
            within = self._goal.target().within
            open_ = column >= 0 and (within is None or bool(within[column]))
            if open_ and candidates.future[column]:
                # Try the nominated node, which was cleared for this task, and no other one.
                fits = candidates.future if waiting else candidates.idle
                return [column] if fits[column] else []
            run = run[:1]
        return session.choose(
            head.task_class, len(run), waiting=waiting, target=self._goal.target()
        )


def admit(session: Session, queue: Queue, job: Job, tasks: Sequence[Task]) -> int:
    """Remove the gates of as many tasks of one class as their queue has room for.

    Returns how many at the end still wait for their queue; 0 if they wait for something else.
    """
    head, gates = tasks[0], session.store(QueueGates)
    if not gates.may_lift(head):
        session.explain(job, "gang", f"pod {head.name} has scheduling gates")
        return 0
    allowed = session.hooks.allocatable(queue, head.task_class, len(tasks))
    gates.lift(queue.name, tasks[:allowed])
    if allowed:
        session.explain(job, "gang", f"pod {head.name} is admitted, its gate is being lifted")
    return len(tasks) - allowed
