"""Rollups: sums over jobs per queue that plugins keep between cycles, fed by what changed.

A plugin states how much a job contributes; the rollup remembers each job's last contribution and,
when the job changes, replaces it in the sum of its queue. Integers make this exact: a law test
shows that the sums equal those computed from scratch.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from pumice.plugins import IntArray
from services.scheduler.engine.records import Job

Measure = Callable[[Job], IntArray]
"""A job → what it contributes: an array of one fixed leading shape over amounts arrays."""


def held(job: Job) -> IntArray:
    """Return what a job's tasks hold: what queues show as allocated (SS03)."""
    return job.allocated


class _Share(NamedTuple):
    queue: str
    amounts: IntArray


class Rollup:
    """Sums of one measure per queue."""

    def __init__(self, measure: Measure) -> None:
        self._measure = measure
        self._shares: dict[str, _Share] = {}
        self._sums: dict[str, IntArray] = {}
        self._jobs: dict[str, int] = {}

    def update(self, job: Job, *, member: bool) -> None:
        """Replace a job's contribution; `member` tells whether it takes part in sessions."""
        before = self._shares.pop(job.key, None)
        if before is not None:
            self._sums[before.queue] -= before.amounts
            self._leave(before.queue)
        if member:
            amounts = np.array(self._measure(job))  # a copy: a job changes its sums in place
            self._shares[job.key] = _Share(job.queue, amounts)
            if job.queue in self._sums:
                self._sums[job.queue] += amounts
            else:
                self._sums[job.queue] = amounts.copy()
            self._jobs[job.queue] = self._jobs.get(job.queue, 0) + 1

    def _leave(self, queue: str) -> None:
        self._jobs[queue] -= 1
        if not self._jobs[queue]:
            del self._jobs[queue], self._sums[queue]

    def sums(self) -> dict[str, IntArray]:
        """Return queue → sum for the queues that own jobs; a copy that a session may change."""
        return {queue: amounts.copy() for queue, amounts in sorted(self._sums.items())}

    def total(self, empty: IntArray) -> IntArray:
        """Return the sum over all queues; `empty` gives shape and the zero to start from."""
        return sum(self._sums.values(), start=np.zeros_like(empty))

    def stretch(self, capacity: int) -> None:
        """Make room for more resources."""
        self._sums = {queue: _stretched(sums, capacity) for queue, sums in self._sums.items()}
        self._shares = {
            key: _Share(share.queue, _stretched(share.amounts, capacity))
            for key, share in self._shares.items()
        }


class Rollups:
    """All rollups, and the jobs that changed since they were brought up to date."""

    def __init__(self) -> None:
        self._by_measure: dict[Measure, Rollup] = {}

    def get(self, measure: Measure, jobs: Iterable[tuple[Job, bool]]) -> Rollup:
        """Return the rollup of a measure; the first call sums over all `jobs` (job, member)."""
        rollup = self._by_measure.get(measure)
        if rollup is None:
            rollup = self._by_measure[measure] = Rollup(measure)
            for job, member in jobs:
                rollup.update(job, member=member)
        return rollup

    def update(self, job: Job, *, member: bool) -> None:
        """Take a changed job in everywhere."""
        for rollup in self._by_measure.values():
            rollup.update(job, member=member)

    def stretch(self, capacity: int) -> None:
        """Make room for more resources."""
        for rollup in self._by_measure.values():
            rollup.stretch(capacity)


def _stretched(array: IntArray, capacity: int) -> IntArray:
    missing = capacity - array.shape[-1]
    return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, missing)]) if missing > 0 else array
