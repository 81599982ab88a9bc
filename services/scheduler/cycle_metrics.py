"""The metrics of a cycle: times of pods and jobs, figures of queues and jobs (ME1 to ME4); pure.

Figures of queues and jobs are taken at most every `EVERY_S`, and only when something changed since:
a cycle that finds all as it was costs nothing more. Of jobs the `JOBS_MAX` that changed last are
kept, so that neither a cycle nor a scrape grows with the cluster.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from pumice.plugins import BoolArray, QueueFigures
from services.scheduler.engine.jobs.jobs import Jobs
from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.plan import Plan
from services.scheduler.engine.session.exclusions import Exclusion
from services.scheduler.engine.session.session import Session
from services.scheduler.engine.state.cluster_state import ClusterState
from services.scheduler.engine.tasks.task import Task
from shared.api import time as times

EVERY_S: Final = 2.0
"""Dashboards are refreshed every ten seconds or so."""
JOBS_MAX: Final = 1_000
_PODS_MAX: Final = 20_000
"""Pods that are remembered from one cycle to the next; a standby has no cycles."""


class JobFigures(Struct, frozen=True, kw_only=True):
    """Figures of one job."""

    namespace: str
    name: str
    """Name of the PodGroup, which is what Volcano's label `job_id` says."""
    queue: str
    created: str
    """RFC 3339, empty when unknown."""
    share: float | None
    """Dominant share of the cluster; None without a plugin that goes by it."""
    missing: int
    """Tasks that the gang lacks to its minimum; 0 when it is whole."""


class Figures(Struct, frozen=True, kw_only=True):
    """All figures of one moment."""

    resources: tuple[str, ...]
    """Names in the order of amounts arrays."""
    present: BoolArray
    """Which resources the cluster's nodes have."""
    queues: tuple[QueueFigures, ...]
    jobs: Mapping[str, JobFigures]
    """By the key of the PodGroup; the ones that changed last come last."""


class PlacedJob(Struct, frozen=True, kw_only=True):
    """A job that was given nodes in this cycle."""

    job: str
    """Key of the PodGroup."""
    since_s: float | None
    """Seconds since the PodGroup was created; None when it does not say."""
    tasks_since_s: tuple[float, ...]
    """The same of each of the pods."""


class CycleSample(Struct, frozen=True, kw_only=True):
    """The metrics of one cycle."""

    preemption_attempts: int = 0
    eviction_transactions: Mapping[str, int] = {}
    watched_s: tuple[float, ...] = ()
    """Age of pods that wait for a node, when a cycle first knew them."""
    bound_s: tuple[float, ...] = ()
    """Age of pods when the binder had bound them."""
    figures: Figures | None = None
    """None when they are not due, or as before."""


class CycleMetrics:
    """Collects the metrics of cycles; keeps the figures of jobs between them."""

    def __init__(self) -> None:
        self._is_stale = True
        self._has_read_jobs = False
        self._taken_at = float("-inf")
        self._jobs: dict[str, JobFigures] = {}
        self._new: deque[str] = deque(maxlen=_PODS_MAX)
        self._bound_s: deque[float] = deque(maxlen=_PODS_MAX)
        self.sample = CycleSample()
        self.exclusions: tuple[Exclusion, ...] = ()

    def mark_stale(self) -> None:
        """Record that figures may have changed."""
        self._is_stale = True

    def begin(self) -> None:
        """Forget the times of pods that a standby has seen: the leader reported them."""
        self._new.clear()
        self._bound_s.clear()
        self.mark_stale()

    def new_pod(self, task: Task) -> None:
        """Note a pod that appears in a fact for the first time."""
        if task.ours and not task.fact_node:
            self._new.append(task.created)

    def bound(self, task: Task, at: float) -> None:
        """Note a pod that was bound at a time (Unix seconds)."""
        self._bound_s.extend(_ages([task.created], at))

    def observe(self, session: Session) -> None:
        """Read a session whose actions have run, and change nothing in it."""
        is_due = not 0 <= session.now - self._taken_at < EVERY_S
        self.exclusions = tuple(session.exclusions.found.values())
        figures = self._collect(session) if self._is_stale and is_due else None
        self.sample = CycleSample(
            preemption_attempts=session.preemption_attempts,
            eviction_transactions=dict(session.eviction_transactions),
            watched_s=tuple(_ages(self._new, session.now)),
            bound_s=tuple(self._bound_s),
            figures=figures,
        )
        self._new.clear()
        self._bound_s.clear()

    def settle(self, jobs: Jobs) -> None:
        """Take the changes of jobs as measured, if the look at the session has read them."""
        if self._has_read_jobs:
            self._has_read_jobs = False
            jobs.unmeasured.clear()

    def _collect(self, session: Session) -> Figures:
        self._is_stale = False
        self._taken_at = session.now
        self._renew(session)
        queues = {of.name: of for account in session.hooks.queue_figures for of in account()}
        return Figures(
            resources=tuple(session.resources),
            present=session.total > 0,
            queues=tuple(figures for _, figures in sorted(queues.items())),
            jobs=dict(self._jobs),
        )

    def _renew(self, session: Session) -> None:
        """Take the figures of jobs that changed; forget those that are gone or changed long ago."""
        jobs = session.cluster_state.jobs
        changed = list(jobs.unmeasured.values())
        self._has_read_jobs = True
        present = {key: known for key, known in self._jobs.items() if jobs.knows(key)}
        for job in changed[-JOBS_MAX:]:
            present.pop(job.key, None)
            if jobs.takes_part(job):
                present[job.key] = _figures_of(session, job)
        self._jobs = dict(list(present.items())[-JOBS_MAX:])


def _figures_of(session: Session, job: Job) -> JobFigures:
    lacks = 0 if job.is_ready else job.min_available - session.schedulable(job)
    return JobFigures(
        namespace=job.namespace,
        name=job.name,
        queue=job.queue,
        created=job.created,
        share=session.hooks.job_share(job),
        missing=max(0, lacks),
    )


def placements(plan: Plan, cluster_state: ClusterState, *, now: float) -> Iterator[PlacedJob]:
    """Yield how long the jobs and pods of a plan's binds have waited, in Unix seconds `now`."""
    for gang in plan.binds:
        job = cluster_state.jobs.get(gang.job)
        tasks = (cluster_state.task(bind.uid) for bind in gang.binds)
        yield PlacedJob(
            job=gang.job,
            since_s=next(_ages([job.created], now), None) if job is not None else None,
            tasks_since_s=tuple(_ages((task.created for task in tasks if task), now)),
        )


def _ages(created: Iterable[str], now: float) -> Iterator[float]:
    for text in created:
        try:
            yield max(0.0, now - times.parse(text))
        except ValueError:
            continue  # an object that does not say when it was made has no age
