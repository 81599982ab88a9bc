"""defrag: moves pods to other nodes so that a gang starts which no node has room for.

It runs when its schedule is due, and for moves that the queue `root` approves by annotation. No job
loses its place: each pod that moves fits on another node beside the gang, keeps its gang above the
minimum, and has a controller. See docs/defragmentation.md. Not in Volcano.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple, Self

from pumice.plugins import Arguments
from services.scheduler.engine.jobs.records import Job, Queue
from services.scheduler.engine.session.moves import arrive
from services.scheduler.engine.session.ordering import Orders
from services.scheduler.engine.session.session import Session
from services.scheduler.engine.tasks.task import Task
from services.scheduler.policy.actions.claimants import nominated
from services.scheduler.policy.actions.evictions import starving_jobs
from services.scheduler.policy.actions.gang_evictions import commit_exchange
from services.scheduler.policy.arguments import BadArgument, integer, number, seconds, text
from services.scheduler.policy.rearranging import (
    Movable,
    MoveBudget,
    Rearrangement,
    Rearranger,
    movable_tasks,
)
from shared.api import keys
from shared.api.scheduling import ROOT_QUEUE
from shared.jobs.defrag import approval_of
from shared.model import schedules
from shared.model.schedules import Schedule

REASON: Final = "defrag"
_APPROVED: Final = "defrag approved"
"""When approved moves were last looked for."""
_PAUSE_S: Final = 30.0
"""Between two rounds of approved moves: PodDisruptionBudgets have to count the first ones."""
_JOBS: Final = 20
"""Gangs for which moves are searched in one round."""
_MOVES: Final = 10
_RAN_S: Final = 600.0


class DefragOptions(NamedTuple):
    """Arguments of the action (K07)."""

    schedule: Schedule | None
    budget: MoveBudget
    """Of one round."""
    ran_s: float
    """A pod moves only if it has run for so many seconds."""

    @classmethod
    def read(cls, arguments: Arguments) -> Self:
        """Return the options. Raises `BadArgument`."""
        stated = text(arguments, "schedule")
        try:
            schedule = schedules.parse(stated) if stated else None
        except ValueError as error:
            raise BadArgument(f"schedule: {error}") from error
        moves = integer(arguments, "maxMoves", _MOVES)
        if moves < 1:
            raise BadArgument(f"maxMoves: {moves} is less than 1")
        cost = number(arguments, "maxCost", float("inf"))
        return cls(schedule, MoveBudget(moves, cost), seconds(arguments, "minRunningTime", _RAN_S))

    def is_due(self, session: Session) -> bool:
        """Tell whether the schedule is due; its clock starts with the first cycle."""
        if self.schedule is None:
            return False
        last = session.memory.setdefault(REASON, session.now)
        return self.schedule.latest(int(last), int(session.now)) is not None


def execute(session: Session, arguments: Arguments) -> None:
    """Move pods for gangs that wait, best queue and job first."""
    options = DefragOptions.read(arguments)
    approved = _approved(session)
    is_due = options.is_due(session)
    if not (approved or is_due):
        return
    pool = session.cluster_state.jobs.unschedulable.at_allocate
    session.contenders += [group for name in pool.queues() for group in pool.groups(name)]
    if session.contenders:
        return  # the cycle runs again, with these jobs
    if approved:
        session.memory[_APPROVED] = session.now
        movable = movable_tasks(session, ran_s=0.0)
        movable = {uid: movable[uid] for uid in approved if uid in movable}
        _Round(session, movable, MoveBudget(len(movable))).run()
    if is_due:
        session.memory[REASON] = session.now
        movable = movable_tasks(session, ran_s=options.ran_s)
        _Round(session, movable, options.budget).run()


def _approved(session: Session) -> tuple[str, ...]:
    """Return the uids of pods that may be moved now by the annotation of the root queue."""
    root = session.queue(ROOT_QUEUE)
    if root is None or keys.DEFRAG not in root.annotations:
        return ()
    approved = approval_of(root.annotations[keys.DEFRAG], now=session.now)
    last = session.memory.get(_APPROVED, float("-inf"))
    if not approved or session.now - last < _PAUSE_S:
        return ()
    return approved


class _Round:
    """One round: the waiting gangs in order, until the budget is used up."""

    def __init__(self, session: Session, movable: Movable, budget: MoveBudget) -> None:
        self._session = session
        self._movable = dict(movable)
        self._budget = budget
        self._gone: list[Task] = []

    def run(self) -> None:
        """Evict for as many gangs as the budget has moves for."""
        for left, (queue, job) in zip(range(_JOBS, 0, -1), self._waiting(), strict=False):
            if not (left and self._movable and self._budget.moves > 0):
                return
            with self._session.isolate(REASON, job):
                search = Rearranger(
                    self._session,
                    queue,
                    job,
                    self._movable,
                    budget=self._budget,
                    gone=self._gone,
                )
                found = search.find()
                if found is not None and found.moves:
                    self._carry_out(job, found)

    def _waiting(self) -> Iterator[tuple[Queue, Job]]:
        """Yield the gangs that wait for nodes, and for nothing else, by queue and job order.

        Gangs with subgroups or a network topology are left out: room on single nodes does not help
        them.
        """
        session, orders = self._session, Orders(self._session)
        by_queue: dict[str, list[Job]] = {}
        for job in starving_jobs(session):
            why = session.explanations.get(job.key)
            waits = why is not None and why.gate == "predicate" and not job.is_ready
            if waits and job.sub_jobs is None and not nominated(job):
                by_queue.setdefault(job.queue, []).append(job)
        queues = orders.queues(q for name in sorted(by_queue) if (q := session.queue(name)))
        while queues:
            queue = queues.pop()
            jobs = orders.jobs(by_queue[queue.name])
            while jobs:
                yield queue, jobs.pop()

    def _carry_out(self, job: Job, found: Rearrangement) -> None:
        """Evict, nominate the gang, and keep the room of the pods that move for this session."""
        session, position = self._session, self._session.journal.position
        evicted = [session.evict(move.task, reason=REASON) for move in found.moves]
        commit_exchange(session, job, evicted, found.places, position)
        for move in found.moves:
            arrive(session, move.job, move.task, move.column)
            del self._movable[move.task.uid]
            self._gone.append(move.task)
        spent = sum(move.cost for move in found.moves)
        self._budget = MoveBudget(self._budget.moves - len(found.moves), self._budget.cost - spent)
