"""Chooses explanations of waits for the bus: the last one per gang, on a change. Pure.

A gang's explanation is published when its cause has stood for a while, and again when it has
another cause. For other amounts and a place some way ahead alone it is published every `FIGURES_S`
at most, and not for what is free at the moment: that moves with every pod that comes or goes. A
gang that waits for its owner is told of later still: in a large submission every gang does so for
a moment. Jobs that are parked keep their explanation, since it is what was decided of them. What
stands is published again, as it was decided last, before it expires on the bus.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from services.scheduler.engine.jobs.jobs import Jobs
from services.scheduler.engine.plan import Explanation
from services.scheduler.engine.status.messages import settled
from services.scheduler.pacing import PATIENCE
from services.scheduler.waiting import awaits_owner, cause_of
from shared.contracts import messages as m
from shared.contracts.streams import WAITING_TTL_S

FIGURES_S: Final = 10.0
AGAIN_S: Final = WAITING_TTL_S / 2
_SHORT_MOST: Final = 20
"""Resources that one message names: a pod may ask for thousands."""


class _Wait(Struct):
    """One gang that waits, as cycles have found it."""

    why: Explanation
    cause: str
    since: float
    """When a cycle first found this cause (Unix seconds)."""
    at: float
    """When a cycle first found this very explanation."""
    cycle: int
    is_told: bool = False
    told_cause: str = ""
    told_at: float = 0.0
    is_due: bool = True
    """Whether what was decided last is worth a message."""


class WaitExplanations:
    """Remembers what was decided of gangs that wait, and what of it was published."""

    def __init__(self, settle_s: float) -> None:
        self._settle_s = settle_s
        self._open: dict[str, _Wait] = {}
        self._parked: dict[str, _Wait] = {}
        """Gangs that cycles do not look at; they go on waiting."""
        self._due: dict[str, _Wait] = {}
        self._again: deque[tuple[float, str]] = deque()

    def forget(self) -> None:
        """Publish everything anew: another leader has had a turn, or the bus has lost it."""
        for kept in (self._open, self._parked, self._due, self._again):
            kept.clear()

    def park(self, key: str) -> None:
        """Keep an explanation although the next cycles do not look at its gang."""
        known = self._open.pop(key, None)
        if known is not None:
            self._parked[key] = known

    def resume(self, keys: Iterable[str]) -> None:
        """Go on with gangs that this cycle has looked at again."""
        for key in keys:
            known = self._parked.pop(key, None)
            if known is not None:
                self._open[key] = known

    def changes(
        self, explanations: Iterable[Explanation], jobs: Jobs, *, now: float, cycle: int, term: int
    ) -> list[m.WaitExplained]:
        """Return what to publish after a cycle that has found these explanations."""
        before, self._open = self._open, {}
        for why in explanations:
            known = self._followed(before.pop(why.job, None), why, now, cycle)
            self._open[why.job] = known
            if known.is_due:
                self._due[why.job] = known
        return [
            *self._ended(before, now=now, cycle=cycle, term=term),
            *self._ready(jobs, now=now, term=term),
            *self._repeated(now=now, term=term),
        ]

    def _followed(self, known: _Wait | None, why: Explanation, now: float, cycle: int) -> _Wait:
        if known is None or known.why.job_uid != why.job_uid:
            return _Wait(why, cause_of(why), now, now, cycle)
        if known.why != why:
            if not _is_alike(known.why, why):
                known.is_due, cause = True, cause_of(why)
                if cause != known.cause:
                    known.cause, known.since = cause, now
            known.why, known.at, known.cycle = why, now, cycle
        return known

    def _ended(
        self, gone: dict[str, _Wait], *, now: float, cycle: int, term: int
    ) -> Iterator[m.WaitExplained]:
        for key, known in gone.items():
            self._due.pop(key, None)
            if known.is_told:
                yield m.WaitExplained(
                    gang=key, uid=known.why.job_uid, term=term, cycle=cycle, time=now
                )

    def _ready(self, jobs: Jobs, *, now: float, term: int) -> Iterator[m.WaitExplained]:
        for key, known in list(self._due.items()):
            if self._kept(key) is not known:
                del self._due[key]
            elif self._is_ripe(known, jobs, now):
                del self._due[key]
                yield self._tell(key, known, now, term)

    def _is_ripe(self, known: _Wait, jobs: Jobs, now: float) -> bool:
        if known.is_told and known.cause == known.told_cause:
            return now - known.told_at >= FIGURES_S
        stands_s = now - known.since
        if stands_s < self._settle_s:
            return False
        job = jobs.get(known.why.job)
        return job is None or not awaits_owner(job) or stands_s >= PATIENCE * self._settle_s

    def _repeated(self, *, now: float, term: int) -> Iterator[m.WaitExplained]:
        while self._again and self._again[0][0] <= now:
            due_at, key = self._again.popleft()
            known = self._kept(key)
            if known is not None and known.is_told and known.told_at + AGAIN_S == due_at:
                yield self._tell(key, known, now, term)

    def _tell(self, key: str, known: _Wait, now: float, term: int) -> m.WaitExplained:
        known.is_due, known.is_told = False, True
        known.told_cause, known.told_at = known.cause, now
        self._again.append((now + AGAIN_S, key))
        return _message(known, term)

    def _kept(self, key: str) -> _Wait | None:
        return self._open.get(key) or self._parked.get(key)


def _is_alike(one: Explanation, other: Explanation) -> bool:
    """Tell whether explanations say the same but for figures that move all the time."""
    if (one.gate, one.message) != (other.gate, other.message) or one.reasons != other.reasons:
        return False
    return one.details == other.details or settled(one.details) == settled(other.details)


def _message(known: _Wait, term: int) -> m.WaitExplained:
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
            for short in why.shortages[:_SHORT_MOST]
        ),
    )
