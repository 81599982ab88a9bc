"""A session: one scheduling cycle over the cluster state.

Actions read candidates, place tasks, commit or undo trials, and record why jobs were stopped. It
changes the records of the cluster state in place through the journal; `close` puts everything back.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Final, TypeVar

import numpy as np

from pumice import plugins
from pumice.plugins import BoolArray, IntArray
from pumice.plugins.points import Points
from services.scheduler.engine.jobs.records import Job, Queue
from services.scheduler.engine.jobs.rollups import Rollup
from services.scheduler.engine.jobs.unschedulable import DemandGroup
from services.scheduler.engine.journal import Journal
from services.scheduler.engine.narrowing import engine_record
from services.scheduler.engine.placement.candidates import Candidates, FitErrors
from services.scheduler.engine.placement.choice import PlacementTarget, choose_by_batch_order, fill
from services.scheduler.engine.plan import Eviction, GangBinds, JobExplanation, Shortage
from services.scheduler.engine.progress import Progress
from services.scheduler.engine.session.binding import Room, claims_of, devices_of, lacked, needed
from services.scheduler.engine.session.changes import (
    Placed,
    PluginMemory,
    Promoted,
    Rephased,
    SessionState,
    equal_runs,
)
from services.scheduler.engine.session.evictions import Evicted, Reprieved, Withdrawn, committed
from services.scheduler.engine.session.exclusions import (
    Exclusion,
    Exclusions,
    Quarantined,
    StageIsolation,
)
from services.scheduler.engine.session.failures import JobFailures, explanation, fit_error
from services.scheduler.engine.session.network import Network
from services.scheduler.engine.session.node_waits import tasks_for_nodes
from services.scheduler.engine.session.ordering import Orders, Places
from services.scheduler.engine.session.view import ClusterView
from services.scheduler.engine.state.cluster_state import ClusterState
from services.scheduler.engine.state.shards import outside
from services.scheduler.engine.tasks.task import Task, TaskClass
from shared.contracts.messages import Bind, Preemptor
from shared.model.status import TaskStatus

QUARANTINE: Final = "quarantine"
"""Gate that stops a job whose handling exceeded its time budget."""
_S = TypeVar("_S")
_T = TypeVar("_T", bound=plugins.Task)


class Session(ClusterView):
    """One cycle. Implements `pumice.plugins.Cluster` for the plugins."""

    volcano_evictions = False
    """Whether evictions and reservations follow Volcano exactly, even where evictions gain nothing.
    """

    may_grow = False
    """Whether autoscalers may add nodes."""

    def __init__(
        self,
        cluster_state: ClusterState,
        *,
        now: float,
        seed: int = 0,
        cycle: int = 0,
        actions: Sequence[str] = (),
        without: Collection[str] = (),
        equal_jobs_fail_equally: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """Begin a cycle; jobs with keys in `without` are not visited."""
        super().__init__(cluster_state)
        self.equal_jobs_fail_equally = equal_jobs_fail_equally
        """Whether two jobs of one queue with equal requests get equal results from all plugins."""
        self.actions = actions
        """Names of the actions of this cycle; some depend on which others there are."""
        self.preemption_attempts = 0
        """How often victims were evicted from a node that had enough, kept or undone (ME2)."""
        self.eviction_transactions: Counter[str] = Counter()
        """Action → how many times it committed evictions for one preemptor (ME2)."""
        self.now = now
        self.cycle = cycle
        self.journal = Journal()
        cluster_state.begin_session(self.journal)
        self.ledger = cluster_state.nodes.ledger
        self._session_state = SessionState(cluster_state.nodes, self.hooks, self.failures)
        self.first = seed % max(1, self.ledger.size)
        """Column at which a search among equal nodes begins."""
        self._shard_masks: tuple[BoolArray, ...] = ()
        self._candidates: dict[int, Candidates] = {}
        self._failures: dict[str, JobFailures] = {}
        self._binds: dict[str, tuple[Job, list[Bind]]] = {}
        self._room = Room(cluster_state.nodes, cluster_state.dimensions, self.journal)
        self._touched: dict[str, Job] = {}
        self.evictions: list[Eviction] = []
        self.nominations: list[Preemptor] = []
        self.places = Places(cluster_state.jobs.unschedulable, self.hooks)
        """Positions of jobs in their queues, by the order in which this cycle visits them."""
        self.explanations: dict[str, JobExplanation] = {}
        self.start_blocked: set[str] = set()
        """Keys of the jobs that plugins hold back although they may have room."""
        self.exclusions = Exclusions(progress or Progress())
        """Jobs, queues and actions that were left out because of an error."""
        self.jobs: list[Job] = [j for j in cluster_state.jobs.active() if j.key not in without]
        """Jobs that may need something; settled and unschedulable ones count in sums only."""
        self.activated_groups: dict[str, DemandGroup] = {}
        """Key of a job activated as the first of its group → the group (`activate_next`)."""
        self.contenders: list[DemandGroup] = []
        """Groups of the pool for which evictions might make room; if any, the cycle runs again."""
        self.total: IntArray = self.ledger.total()  # of all nodes, or of those to come (`grow`)

    # --- pumice.plugins.Cluster --------------------------------------------------------------

    @cached_property
    def memory(self) -> PluginMemory:
        """Numbers that plugins keep from cycle to cycle."""
        return PluginMemory(self.cluster_state.memory, self.journal)

    def schedulable(self, job: plugins.Job) -> int:
        """Return how many tasks are ready, or were before a trial was undone (D01)."""
        record = engine_record(job, Job)
        return self.failures(record).schedulable(record)

    def waiting_for_nodes(self, job: plugins.Job) -> list[Task]:
        """Return the tasks that would start if there were nodes for all, as far as was tried."""
        record = engine_record(job, Job)
        return tasks_for_nodes(self, record, self.explanations, self.failures, self.network)

    def fit_error(self, job: plugins.Job) -> str:
        """Return why tasks of a job are not placed, as a message to users."""
        record = engine_record(job, Job)
        return fit_error(record, self.failures(record))

    def rollup(self, measure: plugins.Measure, group_of: plugins.GroupOf | None = None) -> Rollup:
        """Return the sums per queue or group of a measure over jobs, kept between cycles."""
        return self.cluster_state.jobs.rollup(measure, group_of)

    def in_victim_order(self, victims: Iterable[_T], preemptor: plugins.Task) -> Iterator[_T]:
        """Yield tasks in the order in which they should make room for a preemptor."""
        heap = Orders(self).victims(victims, preemptor)
        while heap:
            yield heap.pop()

    def store(self, kind: type[_S]) -> _S:
        """Return the state of policy of a type (`PolicyState`), or the `Network`."""
        return (
            engine_record(self.network, kind) if kind is Network else self.cluster_state.store(kind)
        )

    def add_traits(self) -> None:
        """Set the traits of pending tasks (`Hooks.trait`), before the first candidates."""
        if self.hooks.of(Points.trait):
            for job in self.jobs:
                with self.isolate("trait", job):
                    for task in job.by_status[TaskStatus.PENDING].values():
                        traits = {**task.task_class.traits, **self.hooks.trait(task)}
                        if traits != task.task_class.traits:
                            task.task_class = self.cluster_state.task_classes.marked(
                                task.task_class, traits
                            )

    # --- candidates --------------------------------------------------------------------------

    def candidates(self, task_class: TaskClass) -> Candidates:
        """Return which nodes a class fits on, in the present state of the session."""
        found = self._candidates.get(task_class.id)
        if found is None:
            found = self._candidates[task_class.id] = Candidates(
                self.cluster_state.nodes,
                self.cluster_state.dimensions,
                self.hooks,
                self.cluster_state.static_cache,
                task_class,
            )
        else:
            found.refresh()
        return found

    def open_nodes(self, task_class: plugins.TaskClass) -> BoolArray:
        """Return the nodes that all predicates on node objects admit for a class."""
        return self.candidates(engine_record(task_class, TaskClass)).open

    @cached_property
    def network(self) -> Network:
        """HyperNodes, and in which of them the tasks of jobs are."""
        return Network(self.cluster_state.hypernodes.layout(self.cluster_state.nodes))

    def choose(
        self,
        task_class: TaskClass,
        count: int,
        *,
        waiting: bool,
        target: PlacementTarget | None = None,
    ) -> list[int]:
        """Return the columns that up to `count` tasks of a class should go to, one per task.

        `waiting`: the tasks may wait for resources that are being released. `target` limits the
        nodes; its batch node order is applied first (`choose_by_batch_order`).
        """
        candidates = self.candidates(task_class)
        for part in self._shard_masks or (None,):
            within = _both(part, target.within if target else None)
            if target is not None:
                here = target._replace(within=within)
                found = choose_by_batch_order(
                    self.hooks, candidates, here, waiting=waiting, first=self.first
                )
                if found:
                    return found
            found = fill(candidates, count, waiting=waiting, first=self.first, within=within)
            if found:
                return found
        return []

    def join_shard(self, names: Collection[str], *, hard: bool) -> None:
        """Use these nodes only (hard), or the others after them (soft)."""
        mask = np.zeros(self.ledger.size, dtype=np.bool_)
        mask[
            [column for name in names if (column := self.cluster_state.nodes.column(name)) >= 0]
        ] = True
        if hard:
            self.hooks.of(Points.predicate).add(0, outside(mask))
        else:
            self._shard_masks = (mask, ~mask)

    def by_shard(self, mask: BoolArray) -> list[BoolArray]:
        """Split nodes into the groups in which they are to be tried: those of the shard first."""
        return [mask & part for part in self._shard_masks] or [mask]

    # --- errors ------------------------------------------------------------------------------

    def grow(self, limits: Mapping[str, str]) -> None:
        """Share out, and admit by, what autoscalers may grow the cluster to: a resource list.

        An unstated number of pods is no limit. Call it before plugins contribute.
        """
        if limits:
            self.may_grow = True
            self.total = np.maximum(self.total, self.amounts({"pods": "1M", **limits}))

    def isolate(self, stage: str, subject: Job | Queue | None = None) -> StageIsolation:
        """Return a block in which one job or queue is handled (None: a whole action).

        An exception in it excludes that job, queue or action and nothing else (ADR 19).
        """
        return StageIsolation(self.exclusions, stage, subject)

    def quarantine(self, reasons: Mapping[str, str]) -> None:
        """Exclude jobs from this session, and report why in the plan: key → reason."""
        for key, reason in sorted(reasons.items()):
            job = self.cluster_state.jobs.get(key)
            if job is not None:
                error = Quarantined(reason)
                self.exclusions.note(Exclusion("podgroups", key, QUARANTINE, error, job.uid))
                self.explain(job, QUARANTINE, reason)

    # --- placing -----------------------------------------------------------------------------

    def trial(self) -> AbstractContextManager[Callable[[], None]]:
        """Undo the changes of the block unless it calls `keep` (SS10)."""
        return self.journal.trial()

    def place(self, job: Job, tasks: list[Task], columns: list[int], *, waiting: bool) -> None:
        """Put tasks of one class and role on nodes, one column per task.

        They get resources now (Allocated), or wait for resources to be released (Pipelined).
        """
        self.journal.make(Placed(self._session_state, job, tasks, columns, waiting=waiting))
        self._touched[job.key] = job

    def commit(self, job: Job, position: int) -> None:
        """Turn what was allocated for a job since `position` into binds (SS10: Commit)."""
        tasks = [
            task
            for change in self.journal.since(position)
            if isinstance(change, Placed) and not change.waiting and change.job is job
            for task in change.tasks
        ]
        self._bind(job, tasks)

    def dispatch(self, job: Job) -> None:
        """Bind all allocated tasks of a job, whichever attempt allocated them (SS11)."""
        self._bind(job, list(job.by_status[TaskStatus.ALLOCATED].values()))

    def _bind(self, job: Job, tasks: list[Task]) -> None:
        tasks = self._with_room(job, tasks)
        if not tasks:
            return
        for run in equal_runs(tasks):
            self.journal.make(Promoted(job, run))
        failures = self.failures(job)
        for task in tasks:
            failures.undone_placements.pop(task.uid, None)
        _, binds = self._binds.setdefault(job.key, (job, []))
        annotated = self.hooks.binding
        binds += [
            Bind(
                pod=task.key,
                uid=task.uid,
                node=task.node,
                owner_job=task.owner_job,
                annotations=annotated(task),
                claims=claims_of(self.hooks, task),
                devices=devices_of(self.hooks, job, task),
            )
            for task in tasks
        ]
        self._touched[job.key] = job

    def _with_room(self, job: Job, tasks: list[Task]) -> list[Task]:
        """Return the tasks that their nodes have room for now; the others stay allocated (CA05).

        If a policy state holds one back (`PolicyState.lacking`), none is returned, so that a gang
        is not bound in part.
        """
        lacks = lacked(tasks, self.cluster_state.nodes)
        missing = {task.uid: lacks for task in tasks} if lacks else self._room.take(tasks)
        if missing:
            self.failures(job).no_room.update(missing)
            self.explain(job, "predicate", next(iter(missing.values())))
        return [task for task in tasks if task.uid not in missing]

    def evict(self, task: Task, *, reason: str, preemptor: Task | None = None) -> Evicted:
        """Evict a task of a job; it is Releasing for the rest of the session (T08)."""
        job = self.cluster_state.jobs.get(task.job_key)
        assert job is not None, f"{task.key} is in no job of this session"
        change = Evicted(self._session_state, job, task, reason=reason, preemptor=preemptor)
        self.journal.make(change)
        self._touched[job.key] = job
        return change

    def reprieve(self, evicted: Evicted) -> None:
        """Undo an eviction of the same trial."""
        self.journal.make(Reprieved(evicted))

    def withdraw(self, job: Job, task: Task) -> None:
        """Make a task pending again that is Pipelined on a node."""
        self.journal.make(Withdrawn(self._session_state, job, task))

    def commit_evictions(self, position: int) -> None:
        """Put the evictions since `position` and their nominations into the plan (SS10)."""
        evictions, nominations = committed(self.journal.since(position))
        if evictions:
            self.eviction_transactions[evictions[0].reason] += 1
        self.evictions += evictions
        self.nominations += nominations

    def rephase(self, job: Job, phase: str) -> None:
        """Give a PodGroup another phase for the rest of the session and in the plan."""
        self.journal.make(Rephased(job, phase))
        self._touched[job.key] = job

    # --- reasons -----------------------------------------------------------------------------

    def failures(self, job: Job) -> JobFailures:
        """Return the failures of a job in this session so far."""
        found = self._failures.get(job.key)
        if found is None:
            found = self._failures[job.key] = JobFailures()
        return found

    def fail(self, job: Job, tasks: Sequence[Task]) -> FitErrors:
        """Record that no node fits these tasks, which share a class; return why."""
        failure = self.candidates(tasks[0].task_class).failure()
        failures = self.failures(job)
        for task in tasks:
            failures.by_task[task.uid] = failure
            failures.roles.add(task.role)
        return failure

    def explain(
        self,
        job: Job,
        gate: str,
        message: str,
        failure: FitErrors | None = None,
        *,
        shortages: Sequence[Shortage] = (),
        budget: str = "",
    ) -> None:
        """Record the gate that stopped a job; the first one counts."""
        if job.key not in self.explanations:
            self.explanations[job.key] = explanation(
                job, gate, message, failure, shortages=shortages, budget=budget
            )

    def block_start(self, job: Job, block: plugins.StartBlock) -> None:
        """Record that a plugin holds a job back; failures of its attempt on nodes are cleared."""
        self.start_blocked.add(job.key)
        self._failures.pop(job.key, None)
        self.explanations.pop(job.key, None)
        self.explain(job, block.gate, block.message)

    def unblock_start(self, job: Job) -> None:
        """Record that a job that was held back has started in this session."""
        self.start_blocked.discard(job.key)
        self.explanations.pop(job.key, None)

    # --- end ---------------------------------------------------------------------------------

    @property
    def binds(self) -> tuple[GangBinds, ...]:
        """Committed binds, per job in the order of their first turns."""
        return tuple(
            GangBinds(
                job=job.key,
                job_uid=job.uid,
                queue=job.queue,
                owner_job=job.owner_job,
                binds=tuple(binds),
                needed=needed(job, binds),
            )
            for job, binds in self._binds.values()
        )

    def visited(self) -> list[Job]:
        """Return the jobs whose status has to be computed, by key."""
        found = {job.key: job for job in self.jobs}
        pool = (
            self.cluster_state.jobs.unschedulable
        )  # preempt places single pods of unschedulable jobs
        found.update(item for item in self._touched.items() if item[0] not in pool)
        jobs = self.cluster_state.jobs
        found.update(item for item in jobs.status_due.items() if jobs.takes_part(item[1]))
        ordered = sorted(found.items())
        return [job for _, job in ordered if not self.exclusions.is_quarantined(job)]

    def close(self) -> None:
        """Tell plugins, and undo all changes to the cluster state."""
        self.hooks.closed()
        self.journal.undo_to(0, final=True)
        self.cluster_state.nodes.pod_affinity.forget_tables()
        self.cluster_state.tidy()


def _both(one: BoolArray | None, other: BoolArray | None) -> BoolArray | None:
    return one & other if one is not None and other is not None else other if one is None else one
