"""Waits of gangs: which of them events report, and which explanations are published.

An event reports a wait once per cause, when the cause has lasted for a while (`Waits`). It never
reports a wait that the gang's owner has to end (missing pods, scheduling gates): readers want
events about a cluster that is too full, a kind of node that is missing, a queue without share.

The stream WAITING holds the last explanation of each waiting gang (`WaitExplanations`). It is
published when its cause has lasted for a while, and again when the cause changes. When only amounts
or the position in the queue change, it is published every `FIGURES_S` seconds at most, and not when
only free amounts change, as they do with every pod that comes or goes. The explanation of a gang
that waits for its owner is published later: in a large submission every gang does so for a moment.
An explanation that still holds is published again before it expires on the bus.

Unschedulable jobs keep their wait and their explanation: the cycle that visited them last decided
both.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from msgspec import Struct
from typing_extensions import override

from services.scheduler.engine.jobs.jobs import Jobs
from services.scheduler.engine.plan import JobExplanation, Plan
from services.scheduler.engine.session.activation import UnschedulableJob
from services.scheduler.engine.status.messages import settled
from services.scheduler.status_writer import awaits_owner
from shared.contracts import messages as m
from shared.contracts.streams import WAITING_TTL_S
from shared.model.delayed_status import PATIENCE, DelayedStatus, DueTimes, hold

FIGURES_S: Final = 10.0
REPUBLISH_S: Final = WAITING_TTL_S / 2
_SHORT_MAX: Final = 20
"""Resources that one message names: a pod may ask for thousands."""
_W = TypeVar("_W")
_AMOUNT: Final = re.compile(r"\d[\w.]*")


class _WaitMemory(Generic[_W]):
    """Records of waiting gangs, by the key of the PodGroup; unschedulable ones apart."""

    def __init__(self) -> None:
        self._open: dict[str, _W] = {}
        self._suspended: dict[str, _W] = {}
        """Gangs that cycles do not visit."""

    def forget(self) -> None:
        """Forget all waits: another leader has reported meanwhile."""
        self._open.clear()
        self._suspended.clear()

    def suspend(self, key: str) -> None:
        """Keep the record of a gang that the next cycles do not visit."""
        known = self._open.pop(key, None)
        if known is not None:
            self._suspended[key] = known

    def resume(self, keys: Iterable[str]) -> None:
        """Go on with gangs that this cycle has visited again."""
        for key in keys:
            known = self._suspended.pop(key, None)
            if known is not None:
                self._open[key] = known

    def _find(self, key: str) -> _W | None:
        return self._open.get(key) or self._suspended.get(key)


class _Wait(NamedTuple):
    text: str
    cause: DelayedStatus
    """Its status is the cause."""
    reported: frozenset[object]
    """Causes."""


class Waits(_WaitMemory[_Wait]):
    """Remembers the waits of jobs, and which causes were reported."""

    def __init__(self, settle_s: float) -> None:
        super().__init__()
        self._settle_s = settle_s

    def is_reported(self, key: str) -> bool:
        """Tell whether an event has reported a job's wait for its present cause."""
        wait = self._find(key)
        return wait is not None and wait.cause.status in wait.reported

    def resume_all(self) -> None:
        """Go on with all waits: the next cycle visits every job."""
        self.resume(list(self._suspended))

    def lasting(
        self, explanations: Iterable[JobExplanation], jobs: Jobs, *, now: float
    ) -> list[JobExplanation]:
        """Return the waits that have now lasted long enough and whose cause is not reported yet."""
        before, self._open = self._open, {}
        due = []
        for explanation in explanations:
            job = jobs.get(explanation.job)
            if job is not None and job.tasks and awaits_owner(job):
                continue
            if job is not None and not job.tasks and explanation.gate == "gang":
                continue  # admitted, and without a pod yet
            wait = _updated(before.get(explanation.job), explanation, now)
            is_due = wait.cause.is_due(now=now, delay_s=self._settle_s)
            if is_due and wait.cause.status not in wait.reported:
                wait = wait._replace(reported=wait.reported | {wait.cause.status})
                due.append(explanation)
            self._open[explanation.job] = wait
        return due


def _updated(before: _Wait | None, explanation: JobExplanation, now: float) -> _Wait:
    text = f"{explanation.gate}: {explanation.message}"
    if before is not None and before.text == text:
        return before
    deferred = hold(before.cause if before else None, cause_of(explanation), now=now)
    return _Wait(text, deferred, before.reported if before else frozenset())


def cause_of(explanation: JobExplanation) -> str:
    """Return what keeps a job waiting, without the amounts: they change while the cause stays."""
    parts = sorted(explanation.reasons) + sorted(s.resource for s in explanation.shortages)
    reason = ", ".join(parts) or explanation.message
    return f"{explanation.gate}: {_AMOUNT.sub('#', reason)}"


class _Explained(Struct):
    """The explanation of one waiting gang, and which of it was published."""

    why: JobExplanation
    cause: DelayedStatus
    """Its status is the cause."""
    at: float
    """When a cycle first had this explanation, figures included (Unix seconds)."""
    cycle: int
    is_published: bool = False
    published_cause: object = ""
    published_at: float = 0.0
    is_due: bool = True
    """Whether `why` differs from what was published by more than free amounts."""


class WaitExplanations(_WaitMemory[_Explained]):
    """Remembers the explanations of waiting gangs, and which of them were published."""

    def __init__(self, settle_s: float) -> None:
        super().__init__()
        self._settle_s = settle_s
        self._due: dict[str, _Explained] = {}
        self._republish = DueTimes()

    @override
    def forget(self) -> None:
        """Publish everything again: another leader has published, or the bus has lost it."""
        super().forget()
        self._due.clear()
        self._republish.clear()

    def changes(
        self,
        explanations: Iterable[JobExplanation],
        jobs: Jobs,
        *,
        now: float,
        cycle: int,
        term: int,
    ) -> list[m.WaitExplained]:
        """Return the messages to publish after a cycle with these explanations."""
        before, self._open = self._open, {}
        for why in explanations:
            known = self._updated(before.pop(why.job, None), why, now, cycle)
            self._open[why.job] = known
            if known.is_due:
                self._due[why.job] = known
        return [
            *self._ended(before, now=now, cycle=cycle, term=term),
            *self._ready(jobs, now=now, term=term),
            *self._repeated(now=now, term=term),
        ]

    def _updated(
        self, known: _Explained | None, why: JobExplanation, now: float, cycle: int
    ) -> _Explained:
        if known is None or known.why.job_uid != why.job_uid:
            return _Explained(why, hold(None, cause_of(why), now=now), now, cycle)
        if known.why != why:
            if not _says_the_same(known.why, why):
                known.is_due = True
                known.cause = hold(known.cause, cause_of(why), now=now)
            known.why, known.at, known.cycle = why, now, cycle
        return known

    def _ended(
        self, gone: dict[str, _Explained], *, now: float, cycle: int, term: int
    ) -> Iterator[m.WaitExplained]:
        for key, known in gone.items():
            self._due.pop(key, None)
            if known.is_published:
                yield m.WaitExplained(
                    gang=key, uid=known.why.job_uid, term=term, cycle=cycle, time=now
                )

    def _ready(self, jobs: Jobs, *, now: float, term: int) -> Iterator[m.WaitExplained]:
        for key, known in list(self._due.items()):
            if self._find(key) is not known:
                del self._due[key]
            elif self._is_settled(known, jobs, now):
                del self._due[key]
                yield self._publish(key, known, now, term)

    def _is_settled(self, known: _Explained, jobs: Jobs, now: float) -> bool:
        if known.is_published and known.cause.status == known.published_cause:
            return now - known.published_at >= FIGURES_S
        if not known.cause.is_due(now=now, delay_s=self._settle_s):
            return False
        job = jobs.get(known.why.job)
        if job is None or not awaits_owner(job):
            return True
        return known.cause.is_due(now=now, delay_s=PATIENCE * self._settle_s)

    def _repeated(self, *, now: float, term: int) -> Iterator[m.WaitExplained]:
        for key in self._republish.take(now=now):
            known = self._find(key)
            if known is not None and known.is_published:
                yield self._publish(key, known, now, term)

    def _publish(self, key: str, known: _Explained, now: float, term: int) -> m.WaitExplained:
        known.is_due, known.is_published = False, True
        known.published_cause, known.published_at = known.cause.status, now
        self._republish.set(key, now + REPUBLISH_S)
        return _message(known, term)


def _says_the_same(one: JobExplanation, other: JobExplanation) -> bool:
    """Tell whether explanations are equal but for free amounts."""
    if (one.gate, one.message) != (other.gate, other.message) or one.reasons != other.reasons:
        return False
    return one.details == other.details or settled(one.details) == settled(other.details)


def _message(known: _Explained, term: int) -> m.WaitExplained:
    why = known.why
    return m.WaitExplained(
        gang=why.job,
        uid=why.job_uid,
        term=term,
        cycle=known.cycle,
        time=known.at,
        gate=why.gate,
        message=why.message,
        details=why.details,
        position=why.position,
        nodes=why.nodes,
        reasons=dict(why.reasons),
        shortages=tuple(
            m.Short(
                resource=short.resource,
                requested=short.requested,
                largest_free=short.largest_free,
            )
            for short in why.shortages[:_SHORT_MAX]
        ),
    )


class WaitReports:
    """`Waits` and `WaitExplanations`; a job may enter the pool once its wait is reported."""

    def __init__(self, settle_s: float, *, explains: bool = True) -> None:
        """Explain on the bus why gangs wait, unless what waits are no PodGroups."""
        self._explains = explains
        self._waits = Waits(settle_s)
        self._explained = WaitExplanations(settle_s)

    def forget(self) -> None:
        """Forget all waits: another leader has reported meanwhile."""
        self._waits.forget()
        self._explained.forget()

    def begin_resync(self) -> None:
        """Go on with all waits although STATE is replayed; the bus may have lost explanations."""
        self._waits.resume_all()
        self._explained.forget()

    def is_reported(self, key: str) -> bool:
        """Tell whether an event has reported a job's wait for its present cause."""
        return self._waits.is_reported(key)

    def review(
        self,
        plan: Plan,
        jobs: Jobs,
        may_enter: Sequence[UnschedulableJob],
        *,
        now: float,
        term: int,
    ) -> tuple[list[JobExplanation], list[m.WaitExplained]]:
        """Return waits to report and messages to publish; move reported jobs to the pool."""
        left = jobs.unschedulable.take_removed()
        self._waits.resume(left)
        self._explained.resume(left)
        lasting = self._waits.lasting(plan.explanations, jobs, now=now)
        changes = self._explained.changes(
            plan.explanations if self._explains else (),
            jobs,
            now=now,
            cycle=plan.cycle,
            term=term,
        )
        for job, order, demand in may_enter:
            if self._waits.is_reported(job.key) and jobs.add_unschedulable(
                job, order, demand, now=now
            ):
                self._waits.suspend(job.key)
                self._explained.suspend(job.key)
        return lasting, changes
