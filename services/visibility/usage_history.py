"""The use of the cluster and the waits of jobs over the last hours. Pure.

Events tell when a gang was created, placed and over. Jobs that wait or run now come from the
cluster state, which is exact. A gang that no Job owns has no event for its end: what it held counts
for as long as it runs, and no longer once it is gone.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from pumice.events import CloudEvent
from pumice.events.types import GangAdmitted, GangPlaced, JobPhaseChanged
from services.scheduler.engine.resources.dimensions import counted, quantity
from shared.api import time as times
from shared.api.batch import ENDED
from shared.api.meta import ObjectMeta
from shared.api.visibility import PendingJob, RunningJob, UsageHistory, UsagePoint
from shared.model.quantity import is_quantity, milli
from shared.model.resources import MEMORY, PODS

HOURS: Final = 6
STEP_S: Final = 300
GANGS_MAX: Final = 20_000
"""Gangs that are remembered; with more, the oldest are dropped and the history is partial."""
_RESTARTING: Final = "Restarting"


class GangRun(msgspec.Struct):
    """One gang from its creation to its end; times are Unix seconds, None while they lie ahead."""

    job: str
    created_s: float | None = None
    placed_s: float | None = None
    ended_s: float | None = None
    amounts: dict[str, int] = {}
    """Resource name → amount of its minimum, in the unit of its dimension."""


class GangRuns:
    """Gangs of the last hours, folded from events in their order."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, GangRun] = OrderedDict()
        self._of_job: dict[str, str] = {}
        self.dropped = False

    def fold(self, event: CloudEvent) -> None:
        """Take one event into account; a repeated one changes nothing."""
        at_s, data = event.time.timestamp(), event.data
        if isinstance(data, GangAdmitted):
            run = self._run(data.gang, data.uid, data.job)
            run.created_s = times.read(data.created or None) or at_s
            run.amounts = _amounts(data.min_resources)
        elif isinstance(data, GangPlaced):
            run = self._run(data.gang, data.uid, data.job)
            run.placed_s = at_s if run.placed_s is None else min(run.placed_s, at_s)
            run.ended_s = None  # A job that restarts keeps its PodGroup and is placed again.
        elif isinstance(data, JobPhaseChanged) and (
            data.phase in ENDED or data.phase == _RESTARTING
        ):
            run_of_job = self._runs.get(self._of_job.get(data.job, ""))
            if run_of_job is not None and run_of_job.ended_s is None:
                run_of_job.ended_s = at_s

    def forget_before(self, unix_s: float) -> None:
        """Drop gangs that were over before a moment."""
        for key in [key for key, run in self._runs.items() if (run.ended_s or unix_s) < unix_s]:
            self._drop(key)

    def all(self) -> Iterable[tuple[str, GangRun]]:
        """Return each gang's key with its run."""
        return ((key.partition(" ")[0], run) for key, run in self._runs.items())

    def _run(self, gang: str, uid: str, job: str) -> GangRun:
        key = f"{gang} {uid}"
        run = self._runs.get(key)
        if run is None:
            run = self._runs[key] = GangRun(job=job)
            if job:
                self._of_job[job] = key
            while len(self._runs) > GANGS_MAX:
                self._drop(next(iter(self._runs)))
                self.dropped = True
        return run

    def _drop(self, key: str) -> None:
        job = self._runs.pop(key).job
        if self._of_job.get(job) == key:
            del self._of_job[job]


class _Span(msgspec.Struct, frozen=True):
    begin_s: float
    end_s: float
    amounts: dict[str, int]


def usage_history(
    runs: GangRuns,
    *,
    waiting: Sequence[PendingJob],
    running: Sequence[RunningJob],
    total: Mapping[str, str],
    now_s: float,
    is_partial: bool = False,
) -> UsageHistory:
    """Return the steps of the last `HOURS` hours, the last of which ends now."""
    open_waits = {_key(job.metadata.namespace, job.pod_group): job for job in waiting}
    open_runs = {_key(job.metadata.namespace, job.pod_group): job for job in running}
    waits: list[_Span] = []
    uses: list[_Span] = []
    starts: list[tuple[float, float]] = []
    for gang, run in runs.all():
        if run.placed_s is not None and run.created_s is not None:
            waits.append(_Span(run.created_s, run.placed_s, {}))
            starts.append((run.placed_s, max(0.0, run.placed_s - run.created_s)))
        if run.placed_s is not None and run.ended_s is not None and gang not in open_runs:
            uses.append(_Span(run.placed_s, run.ended_s, run.amounts))
    waits += [
        _Span(times.read(job.waiting_since) or now_s, now_s + 1.0, {})
        for job in open_waits.values()
    ]
    uses += [
        _Span(times.read(job.running_since) or now_s, now_s + 1.0, _amounts(job.allocated))
        for job in open_runs.values()
    ]
    first_s = now_s - HOURS * 3600 + STEP_S
    ends = [first_s + STEP_S * at for at in range(HOURS * 3600 // STEP_S)]
    points = tuple(_point(end_s, waits, uses, starts) for end_s in ends)
    return UsageHistory(
        metadata=ObjectMeta(name="cluster"),
        step_seconds=STEP_S,
        total=dict(total),
        points=points,
        is_partial=is_partial or runs.dropped,
    )


def _point(
    end_s: float,
    waits: Sequence[_Span],
    uses: Sequence[_Span],
    starts: Sequence[tuple[float, float]],
) -> UsagePoint:
    lasted = sorted(wait_s for at_s, wait_s in starts if end_s - STEP_S < at_s <= end_s)
    in_use: dict[str, int] = {}
    for span in uses:
        if span.begin_s <= end_s < span.end_s:
            for name, amount in span.amounts.items():
                in_use[name] = in_use.get(name, 0) + amount
    return UsagePoint(
        at=times.format_seconds(end_s),
        waiting=sum(span.begin_s <= end_s < span.end_s for span in waits),
        started=len(lasted),
        waited_p50_seconds=_quantile(lasted, 0.5),
        waited_p90_seconds=_quantile(lasted, 0.9),
        in_use={name: quantity(name, amount) for name, amount in sorted(in_use.items())},
    )


def _quantile(ordered: Sequence[float], share: float) -> float | None:
    """Return the smallest value that at least this share of values does not exceed."""
    if not ordered:
        return None
    return round(ordered[max(0, -int(-share * len(ordered) // 1) - 1)], 3)


def _amounts(listed: Mapping[str, str]) -> dict[str, int]:
    return {
        name: _units(name, text)
        for name, text in listed.items()
        if name != PODS and is_quantity(text)
    }


def _units(name: str, text: str) -> int:
    """Return a quantity in the unit of its dimension."""
    thousandths = milli(text)
    return -(-thousandths // 1000) if name == MEMORY else counted(name, thousandths)


def _key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}"
