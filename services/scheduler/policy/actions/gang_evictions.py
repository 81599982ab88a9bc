"""Shared by gangpreempt and gangreclaim (A08, A09): evictions for a whole gang in one HyperNode.

HyperNodes are tried one after the other, widest first. In each, bundles of victims are evicted one
after the other until all missing tasks of the job find nodes there; if they do not, all evictions
in that HyperNode are undone.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np

from pumice.plugins import Arguments, BoolArray, EvictionContext, EvictionKind, IntArray
from services.scheduler.engine.jobs.records import NOWHERE, Job, Queue
from services.scheduler.engine.jobs.subjobs import SubJob
from services.scheduler.engine.nodes.hypernodes import TOP
from services.scheduler.engine.placement.candidates import Candidates
from services.scheduler.engine.placement.choice import PlacementTarget
from services.scheduler.engine.placement.rows import Rows
from services.scheduler.engine.resources.amounts import total_of_columns
from services.scheduler.engine.resources.dimensions import CPU_DIM, MEMORY_DIM
from services.scheduler.engine.session.evictions import Evicted, nomination
from services.scheduler.engine.session.session import Session
from services.scheduler.engine.tasks.task import Task, TaskClass
from services.scheduler.policy.actions.evictions import has_minimum, reprieve
from services.scheduler.policy.actions.grouped import may_wait, missing_tasks, required_subgroups
from services.scheduler.policy.arguments import boolean, integer
from services.scheduler.policy.bundles import Bundle, bundles, permitted, total
from shared.model.status import TaskStatus

_DOMAINS = 8

Ranked = Callable[[list[Bundle], IntArray], list[Bundle]]
"""Sorts bundles into the order of eviction, given the amounts that are needed."""


class GangOptions(NamedTuple):
    """Arguments of both actions (K07)."""

    domains: int
    """Most HyperNodes that are tried for a job (`maxDomains`)."""
    whole: bool
    """Whether whole gangs may be evicted (`allowWholeBundle`); else only their surplus tasks."""
    spare: bool
    """Pumice's own `spareVictims` (default false): no pod is evicted that is not needed, and none
    for a node that predicates refuse."""

    @classmethod
    def read(cls, arguments: Arguments) -> Self:
        """Return the options; a number of domains below 1 counts as the default."""
        domains = integer(arguments, "maxDomains", _DOMAINS)
        return cls(
            domains=domains if domains > 0 else _DOMAINS,
            whole=boolean(arguments, "allowWholeBundle", default=True),
            spare=boolean(arguments, "spareVictims", default=False),
        )

    @classmethod
    def of(cls, session: Session, arguments: Arguments) -> Self:
        """Return the options of a session: without Volcano's evictions victims are spared."""
        options = cls.read(arguments)
        return options if session.volcano_evictions else options._replace(spare=True)


class SubJobPlacement(NamedTuple):
    """A subgroup and its tasks to place, in order."""

    sub: SubJob
    tasks: list[Task]


class PipelinedTask(NamedTuple):
    """A task and the node that it waits on."""

    task: Task
    column: int


class Round(NamedTuple):
    """State that all jobs of one action share."""

    session: Session
    kind: EvictionKind
    reason: str
    options: GangOptions
    preemptable: "PreemptableTasks"


class PreemptableTasks:
    """Preemptable tasks by job, cached per version of the ledger."""

    def __init__(self, session: Session, statuses: Sequence[TaskStatus]) -> None:
        self._session = session
        self._statuses = statuses
        self._version = -1
        self._known: list[tuple[Job, list[Task]]] = []

    def jobs(self) -> list[tuple[Job, list[Task]]]:
        """Return the jobs that may lose tasks, with their preemptable tasks."""
        if self._version != self._session.ledger.version:
            self._version = self._session.ledger.version
            jobs = self._session.cluster_state.jobs
            found = (
                (job, [t for s in self._statuses for t in job.by_status[s].values()])
                for job in jobs.all()
                if not job.non_preemptable and jobs.takes_part(job)
            )
            self._known = [
                (job, willing)
                for job, tasks in found
                if (
                    willing := [
                        task for task in tasks if task.preemptable and not task.backoff_reason
                    ]
                )
            ]
        return self._known


class GangEviction:
    """The search for room for one starving job."""

    def __init__(
        self,
        round_: Round,
        queue: Queue,
        job: Job,
        *,
        from_: Callable[[Job], bool],
        ranked: Ranked,
    ) -> None:
        """`from_` says which jobs it may take from, `ranked` in which order bundles go."""
        self._round = round_
        self._session = round_.session
        self._queue = queue
        self._job = job
        self._from = from_
        self._ranked = ranked
        self.works = _worksheet(self._session, job)
        self._was_ready = self._session.hooks.job_ready(job) == 0
        self.pending = _pending_tasks(self.works, ready=self._was_ready)

    def run(self) -> None:
        """Evict in the first HyperNode that can be cleared for the whole job."""
        if self.pending:
            any(self._in_domain(domain) for domain in self._domains())

    def _domains(self) -> list[str]:
        """Return the HyperNodes to search; the whole cluster for a job without limits."""
        levels = self._session.hooks.job_gradient(self._job, TOP, evict=True)
        names = dict.fromkeys(name for level in levels for name in level)
        if not names and not self._session.network.is_bound(self._job):
            return [TOP]
        return list(names)[: self._round.options.domains]

    def _in_domain(self, domain: str) -> bool:
        """Evict bundle by bundle until the job fits; else evict none."""
        session, options = self._session, self._round.options
        columns = session.network.layout.columns(domain)
        need = total(self.pending)
        waiting = self._bundles(columns, need)
        room = self._room(columns)
        position = session.journal.position
        with session.trial() as keep:
            evicted: list[Evicted] = []
            for bundle in waiting:
                room += bundle.freed
                evicted += [session.evict(t, reason=self._round.reason) for t in bundle.tasks]
                if not _covers(room, need):
                    continue
                places: dict[str, str] = {}
                taken = self._place_all(domain, places)
                if taken:
                    if options.spare:
                        evicted = reprieve(session, evicted, partial(self._holds, taken))
                    self._settle(evicted, taken, places, position)
                    keep()
                    return True
        return False

    # --- victims -----------------------------------------------------------------------------

    def _bundles(self, columns: IntArray, need: IntArray) -> list[Bundle]:
        """Return the bundles of victims below a HyperNode, the first to go in front (SS06)."""
        session = self._session
        below = set(columns.tolist())
        column = session.cluster_state.nodes.column
        found = [
            bundle
            for job, tasks in self._round.preemptable.jobs()
            if job is not self._job and self._from(job)
            for bundle in bundles(job, [t for t in tasks if column(t.node) in below])
        ]
        if not found:
            return []
        ordered = self._ranked(found, need)
        proposed = [task for bundle in ordered for task in bundle.tasks]
        context = EvictionContext(self._round.kind, self._job)
        allowed = {task.uid for task in session.hooks.evictable(context, proposed)}
        whole = self._round.options.whole
        return [bundle for bundle in permitted(ordered, allowed) if whole or not bundle.whole]

    def _room(self, columns: IntArray) -> IntArray:
        """Return idle and releasing amounts below a HyperNode, reserved ones included."""
        ledger = self._session.ledger
        room: IntArray = total_of_columns(ledger.allocatable[:, columns])
        room -= total_of_columns(ledger.used[:, columns])
        room += total_of_columns(ledger.releasing[:, columns])
        return room

    # --- placement ---------------------------------------------------------------------------

    def _place_all(self, domain: str, places: dict[str, str]) -> list[PipelinedTask]:
        """Return the node on which each task would wait, or nothing.

        Subgroup by subgroup, until that is enough; the session is as before afterwards.
        """
        session, job = self._session, self._job
        taken: list[PipelinedTask] = []
        with session.trial():
            for work in self.works:
                found = self._place_sub(work, domain)
                if found is None:
                    return []
                places[work.sub.id], part = found
                taken += part
                if session.hooks.job_pipelined(job) or self._was_ready:
                    break
            enough = session.hooks.job_pipelined(job)
            return taken if enough and (not self._round.options.spare or has_minimum(job)) else []

    def _place_sub(
        self, work: SubJobPlacement, domain: str
    ) -> tuple[str, list[PipelinedTask]] | None:
        """Place a subgroup in the first HyperNode below a domain that fits all its tasks."""
        session = self._session
        names = [domain]
        if session.network.is_bound(self._job):
            levels = session.hooks.sub_job_gradient(work.sub, domain, evict=True)
            names = [name for level in levels for name in level]
        for name in names:
            with session.trial() as keep:
                taken = self._nodes_for(work, session.network.mask(name))
                if taken is not None:
                    keep()
                    return name, taken
        return None

    def _nodes_for(self, work: SubJobPlacement, within: BoolArray) -> list[PipelinedTask] | None:
        session, job = self._session, self._job
        taken = []
        for task in work.tasks:
            if not session.hooks.allocatable(self._queue, task.task_class, 1):
                return None
            sub = work.sub if job.sub_jobs is not None else None
            strictly = self._round.options.spare
            column = _best_column(session, job, sub, task.task_class, within, strictly=strictly)
            if column == NOWHERE:
                return None
            session.place(job, [task], [column], waiting=True)
            taken.append(PipelinedTask(task, column))
        lacks = missing_tasks(session, job, work.sub)
        return None if lacks and not may_wait(session, job, work.sub) else taken

    def _holds(self, taken: Sequence[PipelinedTask]) -> bool:
        """Tell whether every task still fits on its node, one after another."""
        session = self._session
        with session.trial():
            for task, column in taken:
                if not session.hooks.allocatable(self._queue, task.task_class, 1):
                    return False
                if not session.candidates(task.task_class).future[column]:
                    return False
                session.place(self._job, [task], [column], waiting=True)
        return True

    # --- commit ------------------------------------------------------------------------------

    def _settle(
        self,
        evicted: Sequence[Evicted],
        taken: Sequence[PipelinedTask],
        places: Mapping[str, str],
        position: int,
    ) -> None:
        """Commit, and pin the subgroups to their HyperNodes."""
        commit_exchange(self._session, self._job, evicted, taken, position)
        self._session.network.nominated.update(places)


def commit_exchange(
    session: Session,
    job: Job,
    evicted: Sequence[Evicted],
    taken: Sequence[PipelinedTask],
    position: int,
) -> None:
    """Pipeline a gang's tasks, and put the evictions for them since `position` into the plan.

    ⚠ Every task is nominated when any pod was evicted, not only those on cleared nodes (SS11).
    """
    _assign(evicted, taken, session)
    for task, column in taken:
        session.place(job, [task], [column], waiting=True)
    known = len(session.nominations)
    session.commit_evictions(position)
    if evicted:
        nominated = {each.uid for each in session.nominations[known:]}
        session.nominations += [
            nomination(job, task) for task, _ in taken if task.uid not in nominated
        ]


def _worksheet(session: Session, job: Job) -> list[SubJobPlacement]:
    """Return the subgroups with tasks that request resources, required ones first (A02)."""
    wanting = [
        task
        for task in sorted(job.by_status[TaskStatus.PENDING].values(), key=session.hooks.task_order)
        if not (task.gated or task.backoff_reason or task.task_class.best_effort)
    ]
    if job.sub_jobs is None:
        alone = SubJob(job.key, job.key, min_available=job.min_available, topology=None)
        return [SubJobPlacement(alone, wanting)] if wanting else []
    work: dict[str, SubJobPlacement] = {}
    for task in wanting:
        sub = job.sub_jobs.of_task(task)
        work.setdefault(sub.id, SubJobPlacement(sub, [])).tasks.append(task)
    first = required_subgroups(session, job)
    return sorted(
        work.values(),
        key=lambda one: (one.sub.id not in first, session.hooks.sub_job_order(one.sub)),
    )


def _pending_tasks(works: Sequence[SubJobPlacement], *, ready: bool) -> list[Task]:
    """Return the tasks to make room for: one subgroup's for a running job, else all."""
    return [task for work in (works[:1] if ready else works) for task in work.tasks]


def _covers(room: IntArray, need: IntArray) -> bool:
    """Tell whether the sum of room suffices; ⚠ CPU and memory count even if not requested (T07)."""
    requested = need > 0
    requested[[CPU_DIM, MEMORY_DIM]] = True
    return bool((room[requested] >= need[requested]).all())


def _best_column(
    session: Session,
    job: Job,
    sub: SubJob | None,
    task_class: TaskClass,
    within: BoolArray,
    *,
    strictly: bool,
) -> int:
    """Return the column on which one task waits while victims terminate, NOWHERE for none (A08).

    Nodes with room come before those whose pods must be evicted first; then those of the shard,
    then those with the better score (SS08).

    ⚠ As in preempt, only permanent refusals exclude a node: predicates that an eviction could
    satisfy are not checked, except with `strictly`.
    """
    candidates = session.candidates(task_class)
    open_ = within if strictly else within & candidates.reachable()
    for waiting in (False, True):
        fits = _fits(session, candidates, task_class, waiting=waiting, strictly=strictly)
        for mask in session.by_shard(open_ & fits):
            if mask.any():
                target = PlacementTarget(job, sub, "", mask)
                columns = np.flatnonzero(mask)
                bias = session.hooks.batch_node_order(target, task_class, columns)
                return candidates.best(mask, session.first, bias)
    return NOWHERE


def _fits(
    session: Session,
    candidates: Candidates,
    task_class: TaskClass,
    *,
    waiting: bool,
    strictly: bool,
) -> BoolArray:
    if strictly:
        return candidates.future if waiting else candidates.idle
    return candidates.fits(Rows(session.cluster_state.nodes, task_class), waiting=waiting)


def _assign(evicted: Iterable[Evicted], taken: Sequence[PipelinedTask], session: Session) -> None:
    """Return the preemptor of each victim, on the victim's node if there is one."""
    by_node: dict[int, list[Task]] = {}
    for task, column in taken:
        by_node.setdefault(column, []).append(task)
    anywhere = [task for task, _ in taken]
    turns: dict[int, int] = {}
    for change in evicted:
        column = session.cluster_state.nodes.column(change.task.node)
        preemptors = by_node.get(column, anywhere)
        turn = turns[column] = turns.get(column, -1) + 1
        change.preemptor = preemptors[turn % len(preemptors)]


def ranks(keys: Mapping[str, tuple[Any, ...]], *, reverse: bool = False) -> dict[str, int]:
    """Return name → rank by its key."""
    ordered = sorted(keys, key=keys.__getitem__, reverse=reverse)
    return {name: rank for rank, name in enumerate(ordered)}


def by_worth(bundle: Bundle, need: IntArray) -> tuple[float, int, str, str, int]:
    """Return the last sort keys of bundles: most room per loss first, then by cost and names."""
    return -bundle.worth(need), bundle.cost, bundle.job.key, bundle.tasks[0].uid, len(bundle.tasks)
