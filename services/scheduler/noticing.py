"""What a cycle has to tell in numbers beside its plan; the worker's, and pure (ME1 to ME4).

Figures of queues and jobs are taken at most every `EVERY_S`, and only when something changed since:
a cycle that finds all as it was costs nothing more. Of jobs the `MOST_JOBS` that changed last are
kept, so that neither a cycle nor a scrape grows with the cluster.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from services.scheduler.engine.asides import Aside
from services.scheduler.engine.figures import Figures, JobFigures
from services.scheduler.engine.plan import Plan
from services.scheduler.engine.records import Job
from services.scheduler.engine.replica import Replica
from services.scheduler.engine.session import Session
from services.scheduler.engine.tasks import Task
from shared.api import time as times

EVERY_S: Final = 2.0
"""Dashboards are refreshed every ten seconds or so."""
MOST_JOBS: Final = 1_000
_MOST_PODS: Final = 20_000
"""Pods that are remembered from one cycle to the next; a standby has no cycles."""


class Placement(Struct, frozen=True, kw_only=True):
    """A job that was given nodes in this cycle."""

    job: str
    """Key of the PodGroup."""
    since_s: float | None
    """Seconds since the PodGroup was created; None when it does not say."""
    tasks_since_s: tuple[float, ...]
    """The same of each of the pods."""


class Noticed(Struct, frozen=True, kw_only=True):
    """What was noticed in one cycle."""

    preemption_attempts: int = 0
    eviction_transactions: Mapping[str, int] = {}
    watched_s: tuple[float, ...] = ()
    """Age of pods that wait for a node, when a cycle first knew them."""
    bound_s: tuple[float, ...] = ()
    """Age of pods when the binder had bound them."""
    figures: Figures | None = None
    """None when they are not due, or as before."""


class Noticing:
    """Looks at sessions; remembers which jobs it has told of."""

    def __init__(self) -> None:
        self._is_stale = True
        self._taken_at = float("-inf")
        self._jobs: dict[str, JobFigures] = {}
        self._new: deque[str] = deque(maxlen=_MOST_PODS)
        self._bound_s: deque[float] = deque(maxlen=_MOST_PODS)
        self.noticed = Noticed()
        self.asides: tuple[Aside, ...] = ()

    def disturb(self) -> None:
        """Take note that figures may not be what they were."""
        self._is_stale = True

    def begin(self) -> None:
        """Tell all from now on: what a standby has heard of was the leader's to tell."""
        self._new.clear()
        self._bound_s.clear()
        self.disturb()

    def new_pod(self, task: Task) -> None:
        """Take note of a pod that a fact has told of for the first time."""
        if task.ours and not task.fact_node:
            self._new.append(task.created)

    def bound(self, task: Task, at: float) -> None:
        """Take note of a pod that was bound at a time (Unix seconds)."""
        self._bound_s.extend(_ages([task.created], at))

    def look(self, session: Session) -> None:
        """Notice what a session shows once its actions have run."""
        is_due = not 0 <= session.now - self._taken_at < EVERY_S
        self.asides = tuple(session.asides.found.values())
        figures = self._take(session) if self._is_stale and is_due else None
        self.noticed = Noticed(
            preemption_attempts=session.preemption_attempts,
            eviction_transactions=dict(session.eviction_transactions),
            watched_s=tuple(_ages(self._new, session.now)),
            bound_s=tuple(self._bound_s),
            figures=figures,
        )
        self._new.clear()
        self._bound_s.clear()

    def _take(self, session: Session) -> Figures:
        self._is_stale = False
        self._taken_at = session.now
        self._renew(session)
        told = {told.name: told for account in session.hooks.queue_figures for told in account()}
        return Figures(
            resources=tuple(session.resources),
            present=session.total > 0,
            queues=tuple(figures for _, figures in sorted(told.items())),
            jobs=dict(self._jobs),
        )

    def _renew(self, session: Session) -> None:
        """Take the figures of jobs that changed; forget those that are gone or changed long ago."""
        jobs = session.replica.jobs
        changed, jobs.untold = list(jobs.untold.values()), {}
        kept = {key: told for key, told in self._jobs.items() if jobs.knows(key)}
        for job in changed[-MOST_JOBS:]:
            kept.pop(job.key, None)
            if jobs.takes_part(job):
                kept[job.key] = _figures_of(session, job)
        self._jobs = dict(list(kept.items())[-MOST_JOBS:])


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


def placements(plan: Plan, replica: Replica, *, now: float) -> Iterator[Placement]:
    """Yield how long the jobs and pods of a plan's binds have waited, in Unix seconds `now`."""
    for gang in plan.binds:
        job = replica.jobs.get(gang.job)
        tasks = (replica.task(bind.uid) for bind in gang.binds)
        yield Placement(
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
