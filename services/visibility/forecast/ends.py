"""Expected ends of running jobs: as they state, else the median of what history gives. Pure.

What is found is kept for a while: lists of running jobs are requested each second.
"""

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple
from zlib import crc32

import numpy as np

from services.scheduler.engine.jobs.records import Job
from services.visibility.forecast.durations import Durations, History, subject_of
from services.visibility.forecast.simulation import is_service
from shared.jobs.expected_durations import Basis
from shared.model.status import HOLDS_RESOURCES

DRAWS: Final = 15
KEPT_S: Final = 60.0
KEPT_MAX: Final = 20_000


class _End(NamedTuple):
    started: float
    at: float | None
    found: float
    """Time of the estimate (Unix seconds)."""


def stated_end(job: Job) -> float | None:
    """Return the end that a job states, in Unix seconds; None if it does not run."""
    started = started_at(job)
    return started + job.expected.seconds if job.expected and math.isfinite(started) else None


def started_at(job: Job) -> float:
    """Return when the first pod of a job that is on a node started; infinity if none has."""
    started = (
        task.started
        for tasks, holds in zip(job.by_status, HOLDS_RESOURCES, strict=True)
        if holds
        for task in tasks.values()
    )
    return min(started, default=math.inf)


class Ends:
    """Estimates ends from a history of durations."""

    def __init__(self, history: History, now: Callable[[], float]) -> None:
        self._history = history
        self._now = now
        self._known: OrderedDict[str, _End] = OrderedDict()

    def of(self, job: Job) -> float | None:
        """Return when a job is expected to end, in Unix seconds; None while nothing is known."""
        if job.expected is not None or is_service(job):
            return stated_end(job)
        started, now = started_at(job), self._now()
        if not math.isfinite(started):
            return None
        known = self._known.get(job.key)
        if known is None or known.started != started or not self._is_fresh(known, now):
            known = self._known[job.key] = _End(started, self._find(job, started, now), now)
            self._known.move_to_end(job.key)
            if len(self._known) > KEPT_MAX:
                self._known.popitem(last=False)
        return known.at

    def _is_fresh(self, known: _End, now: float) -> bool:
        return 0 <= now - known.found < KEPT_S and (known.at is None or known.at > now)

    def _find(self, job: Job, started: float, now: float) -> float | None:
        subject = subject_of(job)
        if Durations(self._history).basis(subject, None) is not Basis.HISTORY:
            return None
        uniform = np.random.default_rng(crc32(job.key.encode())).random
        elapsed = max(0.0, now - started)
        left = sorted(
            Durations(self._history).remaining_s(subject, None, elapsed, uniform)
            for _ in range(DRAWS)
        )
        return now + left[DRAWS // 2]
