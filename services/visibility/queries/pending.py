"""Jobs that wait, by queue and place in line, as one session found them, and as was decided.

What a gang waits for is what the leading scheduler has decided (`Decisions`), not what a session
here would. A session of the latest state tells what the leader says nothing of, and where it finds
another gate by now.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from msgspec.structs import replace

from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.plan import JobExplanation, Plan, Shortage
from services.scheduler.engine.session.session import Session
from services.visibility.queries.wording import controller_of, meta_of, shortages
from shared.api.scheduling import PodGroupConditionType, PodGroupPhase
from shared.api.time import format_seconds
from shared.api.visibility import ExpectedStart, PendingJob
from shared.contracts.messages import WaitExplained
from shared.contracts.streams import WAITING_TTL_S
from shared.model.status import TaskStatus

_PLACE: Final = re.compile(r"place \d+ in queue")
_AMOUNTS_LAST_S: Final = 10.0
"""How old the amounts of an explanation may be."""
_RUNS_ALREADY: Final = ExpectedStart(
    unknown="the job runs; for pods beyond its minimum there is no forecast"
)
DECISIONS_MAX: Final = 50_000
"""Gangs that are remembered: those of the latest explanations."""


def pending_jobs(session: Session, plan: Plan) -> tuple[PendingJob, ...]:
    """Return the jobs that a session whose actions have run leaves waiting.

    A gang that runs with fewer pods than it has is among them.
    """
    jobs = session.cluster_state.jobs
    found = [
        _pending(job, why)
        for why in plan.explanations
        if (job := jobs.get(why.job)) is not None and (waits(job) or has_unplaced(job))
    ]
    return in_line(found)


def waits(job: Job) -> bool:
    """Return whether a gang has not got what it needs at least; extra pods of one may wait."""
    return job.has_group and not job.is_ready and job.phase != PodGroupPhase.COMPLETED.value


def has_unplaced(job: Job) -> bool:
    """Return whether a gang runs, and pods of it beyond what it needs wait."""
    pending = len(job.by_status[TaskStatus.PENDING]) - job.pending_best_effort
    return job.has_group and job.is_ready and job.allocated_count > 0 and pending > job.gated


def in_line(found: Iterable[PendingJob]) -> tuple[PendingJob, ...]:
    """Return jobs by queue and place; those that had no turn come behind."""
    return tuple(sorted(found, key=_place))


def _place(job: PendingJob) -> tuple[str, bool, int, str, str]:
    meta = job.metadata
    return job.queue, not job.position, job.position, meta.namespace, meta.name


def _pending(job: Job, why: JobExplanation) -> PendingJob:
    return PendingJob(
        metadata=meta_of(job),
        owner=controller_of(job),
        pod_group=job.name,
        queue=why.queue,
        position=why.position,
        priority=job.priority,
        gate=why.gate,
        expected_start=None if waits(job) else _RUNS_ALREADY,
        message=_of_the_rest(job) + why.message + why.details,
        shortages=shortages(why.shortages),
        waiting_since=waiting_since(job),
    )


def _of_the_rest(job: Job) -> str:
    if waits(job):
        return ""
    has = job.allocated_count
    pods = has + len(job.by_status[TaskStatus.PENDING])
    return f"{has} of {pods} pods have a node; for the others: "


def waiting_since(job: Job) -> str | None:
    """Return since when a job waits: its creation, or that of its pods if it was placed before.

    Evicted pods are made again. The times of conditions change with every message, so that a wait
    by these would become shorter.
    """
    stamps = {condition.type: stamp.time for condition, stamp in job.last_seen.stamps.items()}
    waits_since = stamps.get(PodGroupConditionType.UNSCHEDULABLE.value, "")
    placed = stamps.get(PodGroupConditionType.SCHEDULED.value, "")
    pending = [task.created for task in job.by_status[TaskStatus.PENDING].values() if task.created]
    if pending and (placed or has_unplaced(job)):
        return max(job.created, min(pending), placed)
    return (waits_since if placed and waits_since > placed else job.created) or None


class PublishedWait(NamedTuple):
    """The explanation of a wait, as the leader has published it."""

    why: JobExplanation
    at: float
    """Unix seconds of the cycle that decided so."""


class _Published(NamedTuple):
    message: WaitExplained
    at: float


class Decisions:
    """The last published explanation of each gang that waits, by the key of its PodGroup."""

    def __init__(self, monotonic: Callable[[], float], most: int = DECISIONS_MAX) -> None:
        self._monotonic = monotonic
        self._most = most
        self._by_gang: OrderedDict[str, _Published] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_gang)

    def update(self, message: WaitExplained) -> None:
        """Take in what the leader has published; a gang without a gate waits no longer."""
        self._by_gang.pop(message.gang, None)
        if message.gate:
            self._by_gang[message.gang] = _Published(message, self._monotonic())
            if len(self._by_gang) > self._most:
                self._by_gang.popitem(last=False)

    def forget(self) -> None:
        """Start again."""
        self._by_gang.clear()

    def of(self, job: Job) -> PublishedWait | None:
        """Return the leader's explanation of a gang; None without one, or if the gang has started.

        An explanation that was not published again before it expires on the bus is of a leader that
        is gone.
        """
        published = self._by_gang.get(job.key)
        if published is None or published.message.uid != job.uid or not waits(job):
            return None
        if self._monotonic() - published.at > WAITING_TTL_S:
            return None
        return PublishedWait(_read(published.message, job), published.message.time)


def at_place(details: str, position: int) -> str:
    """Return the leader's message with the latest place: two jobs may have had one place."""
    return _PLACE.sub(f"place {position} in queue", details) if position else details


def has_old_amounts(decided: PublishedWait, gate: str, now: float) -> bool:
    """Return whether a job waits at the leader's gate still, for amounts that may have changed.

    The leader publishes no explanation again for amounts alone.
    """
    return decided.why.gate == gate and now - decided.at > _AMOUNTS_LAST_S


def as_decided(pending: PendingJob, decided: PublishedWait, *, now: float) -> PendingJob:
    """Return a job that waits with the leader's explanation; its place is the latest one."""
    if has_old_amounts(decided, pending.gate, now):
        return replace(pending, decided_at=format_seconds(decided.at))
    why = decided.why
    return replace(
        pending,
        gate=why.gate,
        message=why.message + at_place(why.details, pending.position),
        shortages=shortages(why.shortages),
        decided_at=format_seconds(decided.at),
    )


def _read(message: WaitExplained, job: Job) -> JobExplanation:
    return JobExplanation(
        job=message.gang,
        job_uid=message.uid,
        queue=job.queue,
        owner_job=job.owner_job,
        gate=message.gate,
        message=message.message,
        details=message.details,
        position=message.position,
        nodes=message.nodes,
        reasons=message.reasons,
        shortages=tuple(
            Shortage.of(short.resource, short.requested, short.largest_free)
            for short in message.shortages
        ),
    )
