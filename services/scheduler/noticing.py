"""What a cycle has to tell in numbers beside its plan; the worker's, and pure (ME1 to ME4).

Figures of queues and jobs are taken at most every `EVERY_S`, and only when something changed since:
a cycle that finds all as it was costs nothing more. Of jobs the `MOST_JOBS` that changed last are
kept, so that neither a cycle nor a scrape grows with the cluster.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from services.scheduler.engine.figures import Figures, JobFigures
from services.scheduler.engine.plan import Plan
from services.scheduler.engine.records import Job
from services.scheduler.engine.replica import Replica
from services.scheduler.engine.session import Session
from shared.api import time as times

EVERY_S: Final = 2.0
"""Dashboards are refreshed every ten seconds or so."""
MOST_JOBS: Final = 1_000


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
    figures: Figures | None = None
    """None when they are not due, or as before."""


class Noticing:
    """Looks at sessions; remembers which jobs it has told of."""

    def __init__(self) -> None:
        self._is_stale = True
        self._taken_at = float("-inf")
        self._jobs: dict[str, JobFigures] = {}
        self.noticed = Noticed()

    def disturb(self) -> None:
        """Take note that figures may not be what they were."""
        self._is_stale = True

    def look(self, session: Session) -> None:
        """Notice what a session shows once its actions have run."""
        is_due = not 0 <= session.now - self._taken_at < EVERY_S
        figures = self._take(session) if self._is_stale and is_due else None
        self.noticed = Noticed(
            preemption_attempts=session.preemption_attempts,
            eviction_transactions=dict(session.eviction_transactions),
            figures=figures,
        )

    def _take(self, session: Session) -> Figures:
        self._is_stale = False
        self._taken_at = session.now
        self._renew(session)
        told = {told.name: told for account in session.accounting for told in account()}
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
        share=session.job_share(job) if session.job_share is not None else None,
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
