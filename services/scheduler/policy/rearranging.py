"""Moves that make room for one waiting gang: which pods leave their nodes, and where they go.

The pods of the gang are placed one after the other. One that fits nowhere gets the node that the
fewest and cheapest pods have to leave, and each of these has to fit on another node at once, beside
the gang. Moves that turn out not to be needed are left out. Nothing is changed: the session is as
before.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

import numpy as np

from pumice.plugins import EvictionContext, EvictionKind
from pumice.plugins.points import Points
from services.scheduler.engine.jobs.records import Job, Queue
from services.scheduler.engine.placement.choice import PlacementTarget
from services.scheduler.engine.session.moves import arrive, depart
from services.scheduler.engine.session.session import Session
from services.scheduler.engine.tasks.task import Task, TaskClass
from services.scheduler.policy.actions.evictions import (
    clearable,
    has_minimum,
    placeable_tasks,
    room_after,
)
from services.scheduler.policy.actions.gang_evictions import PipelinedTask
from services.scheduler.policy.bundles import are_surplus
from services.scheduler.policy.plugins.pdb import within_budgets
from services.scheduler.policy.states.namespace_limits import Budgets
from shared.model.status import TaskStatus

_NODES: Final = 64
"""Nodes on which victims are searched for one pod: those that lack least."""
_TRIES: Final = 8
"""Of these, so many are tried, the cheapest first."""
_EFFORT: Final = 3_000
"""Searches of all nodes, and looks at single ones, for one gang; then it is given up."""


class MoveBudget(NamedTuple):
    """What the moves of one round may amount to."""

    moves: int
    cost: float = float("inf")
    """Sum of the eviction costs; negative ones count as 0."""


class PodMove(NamedTuple):
    """A task that leaves its node, and the column where its replacement fits."""

    job: Job
    task: Task
    column: int

    @property
    def cost(self) -> int:
        """Return what evicting the task costs, 0 at least."""
        return max(0, self.job.eviction_cost(self.task))


class Rearrangement(NamedTuple):
    """Moves, and where the tasks of the gang go then."""

    moves: tuple[PodMove, ...]
    places: tuple[PipelinedTask, ...]


Movable = Mapping[str, tuple[Job, Task]]
"""Tasks that may move, by uid, with their jobs."""


def movable_tasks(session: Session, *, ran_s: float) -> Movable:
    """Return the running tasks that may be moved at all.

    They have a controller that makes up for them, have run for `ran_s` seconds, and need nothing of
    their node but amounts: no volume, no device, no port.
    """
    found = {}
    for job in session.cluster_state.jobs.all():
        if job.non_preemptable or job.disrupted_together:
            continue
        for uid, task in job.by_status[TaskStatus.RUNNING].items():
            if (
                task.owned
                and task.ours
                and task.preemptable
                and not (task.deleting or task.backoff_reason)
                and not (task.task_class.demands or task.task_class.host_ports)
                and (not ran_s or session.now - task.started >= ran_s)
                and not session.cluster_state.is_being_evicted(uid)
            ):
                found[uid] = (job, task)
    return found


class Rearranger:
    """The search for moves for one gang."""

    def __init__(
        self,
        session: Session,
        queue: Queue,
        job: Job,
        movable: Movable,
        *,
        budget: MoveBudget,
        gone: Sequence[Task],
    ) -> None:
        """`gone` are tasks that move for other gangs in this session."""
        self._session = session
        self._queue = queue
        self._job = job
        self._budget = budget
        self._gone = gone
        self._effort = _EFFORT
        self._budgets = session.store(Budgets)
        self._movable = self._permitted(movable)

    def find(self) -> Rearrangement | None:
        """Return moves of which none can be left out, None where there are none."""
        failures = self._session.failures(self._job).undone_placements
        before = dict(failures)
        found = self._search(self._movable)
        while found is not None:
            smaller = self._smaller(found)
            if smaller is None:
                break
            found = smaller
        if self._effort <= 0:
            found = None  # it is not known whether each move is needed
        failures.clear()
        failures.update(before)  # trials say nothing about why the job waits
        return found

    def _permitted(self, movable: Movable) -> Movable:
        """Return the tasks of other jobs that all plugins let go."""
        tasks = [task for job, task in movable.values() if job is not self._job]
        context = EvictionContext(EvictionKind.DEFRAGMENT, self._job)
        for choose in self._session.hooks.of(Points.evictable):
            proposed = choose(context, tasks)
            if proposed is not None:
                allowed = {task.uid for task in proposed}
                tasks = [task for task in tasks if task.uid in allowed]
        return {task.uid: movable[task.uid] for task in tasks}

    def _smaller(self, found: Rearrangement) -> Rearrangement | None:
        """Return a rearrangement with one of the moves less, the costliest first."""
        ordered = sorted(found.moves, key=lambda move: (-move.cost, move.task.uid))
        for left_out in ordered:
            rest = {move.task.uid for move in found.moves if move is not left_out}
            smaller = self._search({uid: self._movable[uid] for uid in rest})
            if smaller is not None:
                return smaller
        return None

    def _search(self, movable: Movable) -> Rearrangement | None:
        moves: list[PodMove] = []
        places: list[PipelinedTask] = []
        with self._session.trial():
            tasks = placeable_tasks(self._session, self._job)
            for _, equals in groupby(tasks, key=lambda task: (task.task_class.id, task.role)):
                left = list(equals)
                while left and not self._is_whole() and self._effort > 0:
                    placed = self._place(left, places) or self._clear(
                        left[0], movable, moves, places
                    )
                    if not placed:
                        break
                    left = left[placed:]
            found = self._is_whole() and self._effort > 0
        return Rearrangement(tuple(moves), tuple(places)) if found else None

    def _is_whole(self) -> bool:
        return has_minimum(self._job) and bool(self._session.hooks.job_pipelined(self._job))

    def _place(self, tasks: Sequence[Task], places: list[PipelinedTask]) -> int:
        """Place some of these equal tasks where there is room; return how many."""
        session, job, task_class = self._session, self._job, tasks[0].task_class
        if task_class.best_effort:
            return 0
        lacking = max(1, job.min_available - job.ready_count - job.waiting_count)
        count = min(len(tasks), lacking)
        count = session.hooks.allocatable(self._queue, task_class, count)
        for waiting in (False, True) if count else ():
            self._effort -= 1
            target = PlacementTarget(job)
            columns = session.choose(task_class, count, waiting=waiting, target=target)
            if columns:
                placed = list(tasks[: len(columns)])
                session.place(job, placed, columns, waiting=True)
                places += map(PipelinedTask, placed, columns)
                return len(columns)
        return 0

    def _clear(
        self,
        task: Task,
        movable: Movable,
        moves: list[PodMove],
        places: list[PipelinedTask],
    ) -> int:
        """Place a task of the gang where the cheapest pods leave; return 1, or 0 for nowhere."""
        task_class = task.task_class
        if task_class.best_effort or not self._session.hooks.allocatable(
            self._queue, task_class, 1
        ):
            return 0
        gone = {move.task.uid for move in moves}
        left = {uid: each for uid, each in movable.items() if uid not in gone}
        for column, leaving in self._options(task_class, left, moves) if left else ():
            made = self._try(task, column, leaving)
            if made is not None:
                moves += made
                places.append(PipelinedTask(task, column))
                return 1
        return 0

    def _try(
        self, task: Task, column: int, leaving: Sequence[tuple[Job, Task]]
    ) -> list[PodMove] | None:
        """Place a task on a node that others leave; None, and no change, unless all fit."""
        session = self._session
        with session.trial() as keep:
            for job, other in leaving:
                depart(session, job, other)
            if not session.candidates(task.task_class).future[column]:
                return None
            session.place(self._job, [task], [column], waiting=True)
            moves = []
            for job, other in sorted(leaving, key=lambda each: session.hooks.job_order(each[0])):
                target = PlacementTarget(job)
                found = session.choose(other.task_class, 1, waiting=False, target=target)
                if not found:
                    return None
                arrive(session, job, other, found[0])
                moves.append(PodMove(job, other, found[0]))
            keep()
        return moves

    # --- the cheapest node -------------------------------------------------------------------

    def _options(
        self, task_class: TaskClass, movable: Movable, moves: Sequence[PodMove]
    ) -> list[tuple[int, list[tuple[Job, Task]]]]:
        """Return nodes and the tasks that would leave them, fewest and cheapest first."""
        found = []
        for rank, column in enumerate(self._nearly_free(task_class)):
            name = self._session.cluster_state.nodes.name(column)
            tasks = self._session.cluster_state.nodes.tasks_on(name)
            there = [movable[task.uid] for task in tasks if task.uid in movable]
            self._effort -= bool(there)
            leaving = self._fewest(task_class, column, there, moves) if there else None
            if leaving:
                cost = sum(max(0, job.eviction_cost(task)) for job, task in leaving)
                found.append(((len(leaving), cost, rank), (column, leaving)))
        found.sort(key=lambda option: option[0])
        return [option for _, option in found[:_TRIES]]

    def _nearly_free(self, task_class: TaskClass) -> Iterator[int]:
        """Yield the columns that could be cleared for a task, those that lack least first."""
        session = self._session
        mask = clearable(session, task_class) & session.candidates(task_class).reachable()
        columns = np.flatnonzero(mask)
        lacks = np.zeros(len(columns))
        for dim in task_class.dims:
            request = int(task_class.request[dim])
            if request:
                room = session.ledger.future_idle(dim)[columns]
                lacks = np.maximum(lacks, (request - room) / request)
        yield from columns[np.lexsort((columns, lacks))][:_NODES].tolist()

    def _fewest(
        self,
        task_class: TaskClass,
        column: int,
        there: Sequence[tuple[Job, Task]],
        moves: Sequence[PodMove],
    ) -> list[tuple[Job, Task]] | None:
        """Return the fewest of the tasks on a node that make room, the cheapest of equals."""

        def suffice(tasks: Sequence[tuple[Job, Task]]) -> bool:
            return room_after(self._session, task_class, column, [task for _, task in tasks])

        def cost(each: tuple[Job, Task]) -> tuple[int, str]:
            return each[0].eviction_cost(each[1]), each[1].uid

        alone = [each for each in there if suffice([each]) and self._may_go([each], moves)]
        if alone:
            return [min(alone, key=cost)]
        picked: list[tuple[Job, Task]] = []
        for each in sorted(there, key=lambda each: (-self._gain(task_class, each[1]), cost(each))):
            if self._may_go([*picked, each], moves):
                picked.append(each)
                if suffice(picked):
                    break
        if not suffice(picked):
            return None
        for each in sorted(picked, key=cost, reverse=True):
            rest = [other for other in picked if other is not each]
            if suffice(rest):
                picked = rest
        return picked

    def _gain(self, task_class: TaskClass, task: Task) -> float:
        """Return the largest part of a request that a task holds."""
        request = task_class.request
        parts = (
            min(1.0, task.task_class.request[dim] / request[dim])
            for dim in task_class.dims
            if request[dim]
        )
        return float(max(parts, default=0.0))

    def _may_go(self, leaving: Sequence[tuple[Job, Task]], moves: Sequence[PodMove]) -> bool:
        """Tell whether budgets and the minima of gangs allow moves beside those made before."""
        all_moves = [(move.job, move.task) for move in moves] + list(leaving)
        cost = sum(max(0, job.eviction_cost(task)) for job, task in all_moves)
        if len(all_moves) > self._budget.moves or cost > self._budget.cost:
            return False
        by_job: dict[str, list[Task]] = {}
        for job, task in all_moves:
            by_job.setdefault(job.key, []).append(task)
        jobs = {job.key: job for job, _ in leaving}
        if not all(_keeps_minimum(job, by_job[key]) for key, job in jobs.items()):
            return False
        return self._within_budgets([task for _, task in all_moves])

    def _within_budgets(self, tasks: Collection[Task]) -> bool:
        """Tell whether PodDisruptionBudgets allow all these moves; unlabelled pods have none."""
        counted = [task for task in (*self._gone, *tasks) if task.labels]
        return len(within_budgets(self._budgets, counted)) == len(counted)


def _keeps_minimum(job: Job, leaving: Sequence[Task]) -> bool:
    """Tell whether a gang keeps its minimum; a job of one pod has none to keep."""
    is_single = job.task_count == 1 and job.min_available <= 1
    return is_single or are_surplus(job, leaving)
