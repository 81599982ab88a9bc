"""allocate for jobs with a network topology or subgroups (A02).

If a plugin names HyperNodes to try, each is tried and undone; the best solution of the first level
with solutions is placed again and kept. Each try of a job tries every subgroup, so that the job
gets the HyperNode whose subgroups have the best scores.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from pumice.plugins import BoolArray, StartBlock
from services.scheduler.engine.jobs.records import Job, Queue
from services.scheduler.engine.jobs.subjobs import SubJob, SubJobs
from services.scheduler.engine.nodes.hypernodes import TOP
from services.scheduler.engine.placement.choice import PlacementTarget
from services.scheduler.engine.plan import JobExplanation
from services.scheduler.engine.session.changes import Placed
from services.scheduler.engine.session.failures import need_continue
from services.scheduler.engine.session.session import Session
from services.scheduler.engine.tasks.task import Task
from services.scheduler.policy.actions.job_attempt import JobAttempt, Worklist, admit

_TURNS: Final = 32
"""Most turns for the subgroups, or tasks, of a job that is ready already: each turn checks all
tasks of the job.
"""


class Placement(NamedTuple):
    """Tasks that were put on nodes together."""

    tasks: list[Task]
    nodes: list[str]
    waiting: bool


class Solution(NamedTuple):
    """The result of one try."""

    place: str
    score: float
    placements: list[Placement]
    left: dict[str, Worklist]
    """Subgroup → tasks that are still to be placed."""
    places: dict[str, str]
    """Subgroup → HyperNode that it is placed in."""


def waits_for_network(session: Session, job: Job) -> bool:
    """Tell whether a job needs HyperNodes while these do not form a tree."""
    stated = job.sub_jobs is not None and job.sub_jobs.states_topology()
    return stated and not session.network.ready


def missing_tasks(session: Session, job: Job, sub: SubJob) -> int:
    """Return the number of missing tasks of a subgroup, or of a job without others."""
    has_policies = job.sub_jobs is not None and bool(job.sub_jobs.policies)
    return session.hooks.sub_job_ready(sub) if has_policies else session.hooks.job_ready(job)


def may_wait(session: Session, job: Job, sub: SubJob) -> bool:
    """Tell whether a subgroup, or the job if it is its only one, may stay Pipelined."""
    has_policies = job.sub_jobs is not None and bool(job.sub_jobs.policies)
    return (
        session.hooks.sub_job_pipelined(sub) if has_policies else session.hooks.job_pipelined(job)
    )


def required_subgroups(session: Session, job: Job) -> set[str]:
    """Return the subgroups that complete the minima of their policies; they come first (A02)."""
    if job.sub_jobs is None:
        return set()
    minima = job.sub_jobs.minima()
    incomplete = []
    for sub in job.sub_jobs.by_id().values():
        if missing_tasks(session, job, sub):
            incomplete.append(sub)
        elif sub.policy in minima:
            minima[sub.policy] -= 1
    desired = set()
    for sub in sorted(incomplete, key=session.hooks.sub_job_order):
        if minima.get(sub.policy, 0) > 0:
            minima[sub.policy] -= 1
            desired.add(sub.id)
    return desired


class GroupedJobAttempt:
    """One attempt at one job."""

    def __init__(self, session: Session, queue: Queue, job: Job, tasks: Worklist) -> None:
        assert job.sub_jobs is not None, f"{job.key} is not grouped"
        self._session = session
        self._queue = queue
        self._job = job
        self._sub_jobs: SubJobs = job.sub_jobs
        self._tasks = tasks
        self._subs = job.sub_jobs.by_id()
        self._hold: StartBlock | None = None
        """Why it may not keep the places that one of the tries found."""

    def run(self) -> bool:
        """Place tasks until the job is ready; return whether it was committed."""
        before = self._session.explanations.pop(self._job.key, None)
        committed = self._solve()
        self._explain(before, solved=committed is not None)
        if committed is None and self._hold is not None:
            self._session.block_start(self._job, self._hold)
        return bool(committed)

    def _solve(self) -> bool | None:
        """Return whether the best solution was committed, None if there is none."""
        session, job = self._session, self._job
        work = self._worksheet()
        required = required_subgroups(session, job)
        before = {name: session.network.allocated(job, self._subs[name]) for name in work}
        for level in session.hooks.job_gradient(job, TOP):
            tries = [self._try(place, work, required, before) for place in level]
            solutions = [found for found in tries if found is not None]
            if solutions:
                return self._take(max(solutions, key=lambda found: found.score))
        return None

    def _explain(self, before: JobExplanation | None, *, solved: bool) -> None:
        """Record why the job fits nowhere; reasons of single HyperNodes do not count."""
        session, job = self._session, self._job
        found = session.explanations.pop(job.key, None)
        if before is not None:
            session.explanations[job.key] = before
            return
        if solved:
            return
        if found is not None and not session.network.is_bound(job):
            session.explanations[job.key] = found
            return
        limit = session.network.limit_of_job(job)
        where = "its subgroups may span" if limit is None else f"of tier {limit} or lower"
        session.explain(job, "topology", f"no HyperNode {where} has room for the job")
        if found is not None:
            stood = session.explanations[job.key]
            message = f"{stood.message}; in one that was tried: {found.message}"
            session.explanations[job.key] = replace(found, gate="topology", message=message)

    # --- the whole job -----------------------------------------------------------------------

    def _worksheet(self) -> dict[str, Worklist]:
        """Return subgroup → tasks, in their order; external gates keep a task out (A02)."""
        work: dict[str, Worklist] = {}
        for task in self._tasks:
            if task.backoff_reason:
                self._session.explain(
                    self._job, "binder", f"pod {task.name}: {task.backoff_reason}"
                )
            elif task.gated:
                admit(self._session, self._queue, self._job, [task])
            else:
                work.setdefault(self._sub_jobs.of_task(task).id, deque()).append(task)
        return work

    def _try(
        self,
        place: str,
        work: dict[str, Worklist],
        required: set[str],
        before: dict[str, str],
    ) -> Solution | None:
        """Try to place the subgroups within a HyperNode; return the solution and undo it."""
        session, job = self._session, self._job
        _clear_failures(session, job, job.tasks)
        left = {name: deque(tasks) for name, tasks in work.items()}
        places: dict[str, str] = {}
        position = session.journal.position
        with session.trial():
            score = self._place_subs(place, left, required, places)
            placements = _placements(session, position)
            done = session.hooks.job_ready(job) == 0 or session.hooks.job_pipelined(job)
            hold = session.hooks.job_start(job) if placements and done else None
            self._hold = self._hold or hold
            done = done and hold is None
        for name, allocated in before.items():
            session.network.occupy(job, allocated, self._subs[name])
        return Solution(place, score, placements, left, places) if placements and done else None

    def _place_subs(
        self, place: str, left: dict[str, Worklist], required: set[str], places: dict[str, str]
    ) -> float:
        session = self._session

        def order(name: str) -> tuple[bool, Any, str]:
            return name not in required, session.hooks.sub_job_order(self._subs[name]), name

        waiting = [order(name) for name in left]
        heapify(waiting)
        least = len(waiting) // _TURNS
        total = 0.0
        while waiting:
            *_, name = heappop(waiting)
            sub = self._subs[name]
            score = _SubTry(session, self._queue, self._job, sub).run(place, left[name])
            if score is None:
                del left[name]  # it is not visited again in this session
                continue
            total += score
            places[name] = session.network.allocated(self._job, sub)
            if left[name]:
                heappush(waiting, order(name))
            if len(places) > least and session.hooks.job_ready(self._job) == 0:
                break
        return total

    def _take(self, best: Solution) -> bool:
        """Place a solution and keep it; return whether the job is ready with it."""
        session, job = self._session, self._job
        position = session.journal.position
        _replay(session, job, best.placements)
        placed = {task.uid for one in best.placements for task in one.tasks}
        tried = {task.uid for tasks in best.left.values() for task in tasks}
        remaining = [task for task in self._tasks if task.uid in tried - placed]
        self._tasks.clear()
        self._tasks.extend(remaining)
        if session.hooks.job_ready(job):
            return False  # keeps its place for the rest of the session, as a plain job does
        session.commit(job, position)
        network = session.network
        if self._sub_jobs.policies or network.is_bound(job):
            network.occupy(job, network.widened(network.allocated(job), best.place))
            for name, place in best.places.items():
                network.occupy(job, place, self._subs[name])
                network.nominated.pop(name, None)
        return True


class _SubTry:
    """One subgroup within one HyperNode of its job."""

    def __init__(self, session: Session, queue: Queue, job: Job, sub: SubJob) -> None:
        self._session = session
        self._queue = queue
        self._job = job
        self._sub = sub

    def run(self, root: str, tasks: Worklist) -> float | None:
        """Place the subgroup below `root` and return the score of its place, None when it fails."""
        if self._sub.id in self._session.network.nominated and self._as_nominated(tasks):
            return 0.0
        for level in self._session.hooks.sub_job_gradient(self._sub, root):
            tries = [self._try(place, tasks) for place in level]
            solutions = [found for found in tries if found is not None]
            if solutions:
                return self._take(solutions, tasks)
        return None

    def _try(self, place: str, tasks: Worklist) -> Solution | None:
        session, sub = self._session, self._sub
        _clear_failures(session, self._job, sub.tasks)
        left = deque(tasks)
        position = session.journal.position
        with session.trial():
            goal = _SubGoal(session, self._job, sub, place)
            JobAttempt(session, self._queue, self._job, left, goal=goal).place()
            done = goal.missing() == 0 or goal.pipelined()
            placements = _placements(session, position) if done else []
        return Solution(place, 0.0, placements, {sub.id: left}, {}) if placements else None

    def _take(self, solutions: list[Solution], tasks: Worklist) -> float:
        session, sub = self._session, self._sub
        scores = session.hooks.hypernode_score(sub, [found.place for found in solutions])
        score, first = max((score, -number) for number, score in enumerate(scores))
        best = solutions[-first]
        _replay(session, self._job, best.placements)
        self._settle(best.place)
        tasks.clear()
        tasks.extend(best.left[sub.id])
        return score

    def _settle(self, place: str) -> None:
        network = self._session.network
        so_far = network.allocated(self._job, self._sub)
        network.occupy(self._job, network.widened(so_far, place), self._sub)

    def _as_nominated(self, tasks: Worklist) -> bool:
        """Place every task on its nominated node, or ignore the nominations."""
        session, job = self._session, self._job
        place = session.network.nominated[self._sub.id]
        within = session.network.mask(place)
        with session.trial() as keep:
            if all(self._on_nominated(task, within) for task in tasks):
                keep()
                tasks.clear()
                self._settle(place)
                return True
        del session.network.nominated[self._sub.id]
        for task in tasks:
            session.failures(job).undone_placements.pop(task.uid, None)
        return False

    def _on_nominated(self, task: Task, within: BoolArray) -> bool:
        session = self._session
        column = session.cluster_state.nodes.column(task.nominated) if task.nominated else -1
        if column < 0 or not within[column]:
            return False
        candidates = session.candidates(task.task_class)
        allowed = session.hooks.allocatable(self._queue, task.task_class, 1)
        if not allowed or not candidates.future[column]:
            return False
        session.place(self._job, [task], [column], waiting=not candidates.idle[column])
        return True


class _SubGoal:
    """A turn for one subgroup on the nodes of one HyperNode (A03)."""

    def __init__(self, session: Session, job: Job, sub: SubJob, place: str) -> None:
        self._session = session
        self._job = job
        self._sub = sub
        self._failed = session.failures(job)
        self._has_policies = job.sub_jobs is not None and bool(job.sub_jobs.policies)
        self._within = session.network.mask(place)
        self._so_far = session.network.allocated(job, sub)
        self.turn = 1 + len(sub.pending()) // _TURNS
        network = session.network
        leaves = network.layout.at_tier(network.tiers[0])[network.layout.columns(place)]
        self.singly = sub.topology is not None and bool((leaves != leaves[:1]).any())

    def missing(self) -> int:
        """Return the number of missing tasks of the subgroup, or of a job without others."""
        return missing_tasks(self._session, self._job, self._sub)

    def pipelined(self) -> bool:
        """Tell whether the subgroup may stay Pipelined."""
        return may_wait(self._session, self._job, self._sub)

    def failed_roles(self) -> set[str]:
        """Return the roles of the subgroup's tasks that failed."""
        tasks = self._sub.tasks
        return {tasks[uid].role for uid in self._failed.by_task if uid in tasks}

    def may_continue(self) -> bool:
        """Tell whether the subgroup reaches its minimum without a task that failed."""
        sub, job = self._sub, self._job
        if job.min_available == job.task_count or sub.min_available >= len(sub.tasks):
            return False
        return self._has_policies or need_continue(job, self.failed_roles())

    def target(self) -> PlacementTarget:
        """Return the subgroup, and the nodes within the HyperNode that it has so far."""
        return PlacementTarget(self._job, self._sub, self._so_far, self._within)

    def placed(self, columns: Sequence[int]) -> None:
        """Widen the HyperNode that the subgroup is in."""
        if self._sub.topology is None:
            return
        network = self._session.network
        for leaf in sorted({network.leaf(column) for column in columns} - {""}):
            self._so_far = network.widened(leaf, self._so_far)


def _clear_failures(session: Session, job: Job, uids: Iterable[str]) -> None:
    """Clear failures, because tasks may fit in another HyperNode."""
    failures = session.failures(job)
    for uid in uids:
        failures.by_task.pop(uid, None)
    failures.roles = {job.tasks[uid].role for uid in failures.by_task if uid in job.tasks}


def _placements(session: Session, position: int) -> list[Placement]:
    """Return what was placed since a position of the journal."""
    return [
        Placement(change.tasks, [task.node for task in change.tasks], change.waiting)
        for change in session.journal.since(position)
        if isinstance(change, Placed)
    ]


def _replay(session: Session, job: Job, placements: list[Placement]) -> None:
    """Place once more what was placed in a try."""
    column = session.cluster_state.nodes.column
    for one in placements:
        session.place(job, one.tasks, [column(name) for name in one.nodes], waiting=one.waiting)
