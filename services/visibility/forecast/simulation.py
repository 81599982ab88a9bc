"""One simulation: the engine decides on, while running jobs end and others come, until jobs start.

Time goes from one end of a job to the next; ends and arrivals close to each other count as one
moment, and the more so the farther away they are, which bounds the number of cycles. One that is
asked to hurry continues with longer steps and without other jobs to come: it looks as far, and less
closely. The cluster state is changed as `Imagined` and is the same afterwards.

What is coarse: a gang ends as a whole; a gang that loses pods below its minimum starts again; pods
that are evicted are gone at once; plugins that go by the clock are asked at the simulated moments
only.
"""

import heapq
import math
from collections.abc import Callable, Collection, Iterable
from itertools import count
from operator import attrgetter
from typing import Final, NamedTuple

from services.scheduler.config import SchedulerConfig
from services.scheduler.decide import keep_to_shard, open_session, run_actions
from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.plan import GangBinds, JobExplanation
from services.scheduler.engine.session.activation import activate, refused_jobs
from services.scheduler.engine.session.session import Session
from services.scheduler.engine.state.cluster_state import ClusterState
from services.scheduler.engine.state.imagined import Imagined
from services.scheduler.engine.state.shards import UNSHARDED, Sharding
from services.scheduler.engine.status.messages import NEVER, Wording
from services.scheduler.engine.status.statuses import explanation_of
from services.scheduler.engine.tasks.task import Task
from services.scheduler.policy.catalog import PLUGINS, Plugins
from services.scheduler.policy.unschedulable_policy import unschedulable_policy
from services.visibility.forecast import shapes
from services.visibility.forecast.arrivals import JobArrivals
from services.visibility.forecast.durations import Durations, HistoricJob, Uniform, subject_of
from services.visibility.forecast.shapes import ArrivalShape, Templates
from shared.api.kinds import POD, PODGROUP
from shared.jobs.expected_durations import Basis, Expected
from shared.model.status import HOLDS_RESOURCES, TERMINAL, TaskStatus

_ROUNDS: Final = 3
"""So many cycles follow each other in one moment, when one lets jobs in or evicts."""
_LEAVING_S: Final = 30.0
_SERVICES: Final = frozenset({"ReplicaSet", "StatefulSet", "DaemonSet", "Deployment"})
_WAITING: Final = frozenset({"", "Pending", "Inqueue"})
_SHORT_MAX: Final = 3
_INQUEUE: Final = "Inqueue"
_RUNNING: Final = "Running"
_COMPLETED: Final = "Completed"


class SimulationBounds(NamedTuple):
    """Limits of one simulation."""

    horizon_s: float = 7 * 86_400.0
    moments: int = 600
    """So many moments at most: each takes a cycle of the engine, or a few."""
    together_s: float = 1.0
    together: float = 0.01
    """Ends within so many seconds, or within this part of the time since the beginning, are one
    moment."""
    hurried: float = 0.1
    """In place of `together` in a simulation that hurries."""
    arrivals: int = 2_000
    """So many jobs come at most; later ones are left out."""


class Allowed(NamedTuple):
    """Time limit of one simulation, checked after each moment."""

    over: Callable[[], bool] = lambda: False
    hurried: Callable[[], bool] = lambda: False
    """Whether the rest is to be simulated more coarsely."""


ALL_THE_TIME: Final = Allowed()


class SchedulerRules(NamedTuple):
    """The part of a scheduler that does not change from simulation to simulation."""

    config: SchedulerConfig
    plugins: Plugins = PLUGINS
    scheduler_name: str = "volcano"
    templates: Templates = lambda _: ()
    stated: Callable[[Job], Expected | None] = attrgetter("expected")
    """The duration that a job states, if it does."""
    sharding: Sharding = UNSHARDED


class SimulationResult(NamedTuple):
    """The starts that a simulation has shown."""

    starts: dict[str, float]
    """Job → when it started, in Unix seconds."""
    stopped_by: dict[str, str]
    """Job that did not start → what it waits for, as text."""
    never: frozenset[str]
    """Jobs of these that no node or queue is large enough for."""
    settled: bool
    """Whether nothing was left that could have changed anything: those jobs never start."""
    simulated_s: float
    """How many seconds were simulated: what has not started would start later."""
    bases: dict[Basis, int]
    """Sources of the durations of jobs that ended."""
    arrivals_end_s: float = math.inf
    """Seconds after which no more arrivals were simulated; infinity where none was."""
    uninformed: frozenset[str] = frozenset()
    """Jobs of these before whose start most ends were of jobs of which no duration is known."""


def waits(job: Job) -> bool:
    """Return whether a job of the cluster state waits to start."""
    if not job.has_group or job.phase not in _WAITING:
        return False
    return job.ready_count < max(job.min_available, 1)


def waiting(cluster_state: ClusterState) -> list[str]:
    """Return the keys of all jobs that wait to start, sorted."""
    jobs = cluster_state.jobs
    return sorted(job.key for job in jobs.all() if jobs.takes_part(job) and waits(job))


def is_service(job: Job) -> bool:
    """Return whether a job's pods are those of a service, which do not end unless stated."""
    return job.controller is not None and job.controller.kind in _SERVICES


class Simulation:
    """One simulation of a cluster state; `run` it once."""

    def __init__(
        self,
        cluster_state: ClusterState,
        rules: SchedulerRules,
        durations: Durations,
        *,
        now: float,
        uniform: Uniform,
        arrivals: JobArrivals,
        bounds: SimulationBounds,
    ) -> None:
        self._cluster_state = cluster_state
        self._rules = rules
        self._durations = durations
        self._begun = self._now = now
        self._moment = now
        """When jobs count as started: the mean of the ends that made room. A moment has a length,
        and its end would delay the jobs of a line again and again."""
        self._uniform = uniform
        self._bounds = bounds
        self._future_arrivals = arrivals.future(now, uniform)
        self._came = 0
        self._together = bounds.together
        self._arrivals_end_s = math.inf
        self._ends: list[tuple[float, int, str, Callable[[Job], None]]] = []
        self._run_of: dict[str, int] = {}
        """Job → number of its end that counts; a job that was stopped has another."""
        self._ordinal = 0
        self._subjects: dict[str, HistoricJob] = {}
        self._starts: dict[str, float] = {}
        self._arrivals: dict[str, ArrivalShape] = {}
        self._bases: dict[Basis, int] = {}
        self._unknown_runs: set[int] = set()
        """Ordinals of ends of which the duration is not known."""
        self._ended = self._ended_unknown = 0
        self._uninformed: set[str] = set()
        self._unschedulable_policy = unschedulable_policy(rules.config, rules.plugins)._asdict()
        self._imagined = Imagined(cluster_state)
        self._is_over: Callable[[], bool] = ALL_THE_TIME.over

    def run(self, targets: Collection[str], allowed: Allowed = ALL_THE_TIME) -> SimulationResult:
        """Simulate until all of these jobs have started or the bounds are reached; undo everything.

        It ends, too, when its time is up.
        """
        open_ = set(targets)
        self._is_over = allowed.over
        with self._imagined:
            self._schedule_ends()
            quiet = self._decide()
            simulated_s = self._bounds.horizon_s
            for number in count():
                open_ -= self._starts.keys()
                if not open_ or number == self._bounds.moments or allowed.over():
                    simulated_s = self._moment - self._begun
                    break
                if allowed.hurried():
                    self._hurry()
                if not self._advance():
                    break
                quiet = self._decide()
            open_ -= self._starts.keys()
            if self._is_uninformed():
                self._uninformed |= open_
            stopped_by, never = self._explain(sorted(open_)) if open_ else ({}, frozenset())
        settled = quiet and not self._ends and self._future_arrivals.at == math.inf
        return SimulationResult(
            starts={key: at for key, at in self._starts.items() if key in targets},
            stopped_by=stopped_by,
            never=never,
            settled=settled,
            simulated_s=simulated_s,
            bases=self._bases,
            arrivals_end_s=self._arrivals_end_s,
            uninformed=frozenset(self._uninformed),
        )

    # --- time --------------------------------------------------------------------------------

    def _schedule_ends(self) -> None:
        """Schedule the ends of the jobs that run."""
        for job in sorted(self._cluster_state.jobs.all(), key=lambda job: job.key):
            running = [t for t in job.tasks.values() if HOLDS_RESOURCES[t.status]]
            if job.by_status[TaskStatus.RELEASING]:
                self._schedule(self._now + _LEAVING_S, job, self._remove_terminating)
            if running and self._ends_ever(job):
                since = min((t.started for t in running), default=self._now)
                self._schedule_end(job, max(0.0, self._now - since))

    def _ends_ever(self, job: Job) -> bool:
        return not is_service(job) or self._rules.stated(job) is not None

    def _schedule_end(self, job: Job, elapsed: float | None = None) -> None:
        stated, subject = self._rules.stated(job), self._subject(job)
        if elapsed is None:
            left = self._durations.total_s(subject, stated, self._uniform)
        else:
            left = self._durations.remaining_s(subject, stated, elapsed, self._uniform)
        basis = self._durations.basis(subject, stated)
        self._bases[basis] = self._bases.get(basis, 0) + 1
        self._schedule(self._moment + left, job, self._end)
        self._run_of[job.key] = self._ordinal
        if basis is Basis.DEFAULT:
            self._unknown_runs.add(self._ordinal)

    def _schedule(self, when: float, job: Job, what: Callable[[Job], None]) -> None:
        self._ordinal += 1
        heapq.heappush(self._ends, (when, self._ordinal, job.key, what))

    def _subject(self, job: Job) -> HistoricJob:
        found = self._subjects.get(job.key)
        if found is None:
            found = self._subjects[job.key] = subject_of(job)
        return found

    def _advance(self) -> bool:
        """Advance to the next moment; return False if there is none within the bounds."""
        upcoming = min(self._next_end_at(), self._future_arrivals.at)
        if upcoming - self._begun > self._bounds.horizon_s:
            return False
        passed = upcoming - self._begun
        until = upcoming + max(self._bounds.together_s, self._together * passed)
        ends: list[float] = []
        while min(self._next_end_at(), self._future_arrivals.at) <= until:
            end = self._next_end_at()
            self._now = max(self._now, min(end, self._future_arrivals.at))
            if end <= self._future_arrivals.at:
                ends.append(end)
                self._next_end()
            else:
                self._arrive()
        self._moment = sum(ends) / len(ends) if ends else self._now
        return True

    def _next_end_at(self) -> float:
        return self._ends[0][0] if self._ends else math.inf

    def _next_end(self) -> None:
        _, ordinal, key, what = heapq.heappop(self._ends)
        job = self._cluster_state.jobs.get(key)
        if job is not None and (
            what == self._remove_terminating or self._run_of.get(key) == ordinal
        ):
            what(job)

    def _end(self, job: Job) -> None:
        """End a job as a whole, pods that wait still included."""
        self._ended += 1
        self._ended_unknown += self._run_of[job.key] in self._unknown_runs
        over = [task for task in job.tasks.values() if not TERMINAL[task.status]]
        self._imagined.settle(job, over, TaskStatus.SUCCEEDED)
        self._imagined.phase(job, _COMPLETED)
        del self._run_of[job.key]

    def _remove_terminating(self, job: Job) -> None:
        leaving = list(job.by_status[TaskStatus.RELEASING].values())
        self._imagined.settle(job, leaving, TaskStatus.SUCCEEDED)

    def _arrive(self) -> None:
        arrival = self._future_arrivals.take()
        self._came += 1
        if self._came >= self._bounds.arrivals:
            self._end_arrivals()
        key = f"{arrival.subject.namespace}/~{self._came}"
        self._imagined.fold(PODGROUP, shapes.group(key, arrival, now=self._now))
        self._subjects[key] = arrival.subject
        self._arrivals[key] = arrival

    def _hurry(self) -> None:
        """Continue with longer moments, and without more jobs to come."""
        self._together = max(self._together, self._bounds.hurried)
        self._end_arrivals()

    def _end_arrivals(self) -> None:
        if self._future_arrivals.at < math.inf:
            self._arrivals_end_s = self._now - self._begun
            self._future_arrivals.at = math.inf

    # --- decisions ---------------------------------------------------------------------------

    def _decide(self) -> bool:
        """Run cycles at this moment; return whether the last one changed nothing."""
        return any(not self._cycle() for _ in range(_ROUNDS))

    def _session(self) -> Session:
        config, plugins, sharding = self._rules.config, self._rules.plugins, self._rules.sharding
        session = open_session(self._cluster_state, config, now=self._now, plugins=plugins)
        keep_to_shard(session, sharding)
        return session

    def _cycle(self) -> bool:
        """Run one cycle; return whether it made work for another one."""
        session = self._session()
        try:
            activate(session)
            let_in = {job.key for job in session.jobs if not job.is_pending}
            run_actions(session, self._rules.config)
            entered = [j for j in session.jobs if j.key not in let_in and not j.is_pending]
            binds, evictions = session.binds, list(session.evictions)
            refused = refused_jobs(session, **self._unschedulable_policy)
        finally:
            session.close()
        for job, order, demand in refused:
            self._cluster_state.jobs.add_unschedulable(job, order, demand, now=self._now)
        for job in entered:
            self._imagined.phase(job, _INQUEUE)
        self._make_pods()
        for gang in binds:
            self._bind(gang)
        self._evict(eviction.uid for eviction in evictions)
        return bool(entered or evictions)

    def _make_pods(self) -> None:
        """Do what controllers do for groups that have entered their queue."""
        for job in self._cluster_state.jobs.active():
            if job.phase != _INQUEUE or job.tasks:
                continue
            if self._is_over():
                return
            arrival = self._arrivals.get(job.key)
            made = [] if arrival is not None else list(self._rules.templates(job))
            if not made:
                dimensions = self._cluster_state.dimensions
                shape = shapes.pods_of(job, dimensions) if arrival is None else arrival.pods
                name = self._rules.scheduler_name
                made = shapes.pods(job.key, shape, now=self._now, scheduler_name=name)
            for pod in made:
                self._imagined.fold(POD, pod)

    def _bind(self, gang: GangBinds) -> None:
        job = self._cluster_state.jobs.get(gang.job)
        if job is None:
            return
        self._imagined.bind(job, {bind.uid: bind.node for bind in gang.binds})
        if not job.is_ready:
            return
        if job.phase in _WAITING:
            self._imagined.phase(job, _RUNNING)
            if job.key not in self._starts:
                self._starts[job.key] = self._moment
                if self._is_uninformed():
                    self._uninformed.add(job.key)
        # The phase of a job that has lost all its pods is still Running.
        if job.key not in self._run_of and self._ends_ever(job):
            self._schedule_end(job)

    def _is_uninformed(self) -> bool:
        return 2 * self._ended_unknown > self._ended

    def _evict(self, uids: Iterable[str]) -> None:
        """Let evicted pods wait again, and their whole gang where too few are left."""
        found = (self._cluster_state.task(uid) for uid in uids)
        victims: dict[str, list[Task]] = {}
        for task in found:
            if task is not None and HOLDS_RESOURCES[task.status]:
                victims.setdefault(task.job_key, []).append(task)
        for key, tasks in victims.items():
            job = self._cluster_state.jobs.get(key)
            assert job is not None, f"{key} is in no session"
            self._imagined.unbind(job, tasks)
            if not job.is_ready:
                rest = [t for t in job.tasks.values() if HOLDS_RESOURCES[t.status]]
                self._imagined.unbind(job, rest)
                self._imagined.phase(job, _INQUEUE)
                self._run_of.pop(key, None)

    def _explain(self, keys: Iterable[str]) -> tuple[dict[str, str], frozenset[str]]:
        """Return what jobs wait for as things stand now, and those that never fit."""
        self._cluster_state.jobs.activate_all()
        session = self._session()
        found, never = dict[str, str](), set[str]()
        try:
            run_actions(session, self._rules.config)
            wording = Wording(session)
            for key in keys:
                job = session.job(key)
                why = None if job is None else explanation_of(session, wording, job)
                found[key] = shapes.without_names(_waits_for(why), key) if why else ""
                if why is not None and NEVER in why.details:
                    never.add(key)
        finally:
            session.close()
        return found, frozenset(never)


def _waits_for(why: JobExplanation) -> str:
    never = [part for part in why.details.strip(" ()").split("; ") if NEVER in part]
    if never:
        return never[0].replace(NEVER, "").rstrip(" ,:")
    if not why.shortages:
        return f"stopped at the gate {why.gate}: {why.message}"
    return f"waits for {', '.join(short.resource for short in why.shortages[:_SHORT_MAX])}"
