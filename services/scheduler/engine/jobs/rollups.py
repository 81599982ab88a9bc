"""Rollups: sums over the jobs of each queue, kept between cycles and updated from changed jobs.

A plugin states how much a job contributes; the rollup remembers each job's last contribution and,
when the job changes, replaces it in the sum of its queue. Integers make this exact: a law test
shows that the sums equal those computed from scratch.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from pumice.plugins import IntArray, Job, Measure
from services.scheduler.engine.resources.amounts import Sums, stretched, total_of


def held(job: Job) -> IntArray:
    """Measure of a job's allocated amounts, which queues show as allocated (SS03)."""
    return job.allocated


class _Share(NamedTuple):
    queue: str
    amounts: IntArray
    weight: int


class Rollup:
    """Sums of one measure per queue."""

    def __init__(self, measure: Measure) -> None:
        self._measure = measure
        self._shares: dict[str, _Share] = {}
        self._sums: dict[str, Sums] = {}
        self._jobs: dict[str, int] = {}

    def update(self, job: Job, *, member: bool) -> None:
        """Replace a job's contribution; `member` is whether it takes part in sessions."""
        before = self._shares.pop(job.key, None)
        if before is not None:
            sums = self._sums[before.queue]
            sums.add_rows(-1, before.amounts)
            sums.weigh(-before.weight)
            self._leave(before.queue)
        if member:
            amounts = np.array(self._measure(job))  # a copy: a job changes its sums in place
            weight = int(amounts.max())
            self._shares[job.key] = _Share(job.queue, amounts, weight)
            if job.queue not in self._sums:
                self._sums[job.queue] = Sums(amounts.shape)
            sums = self._sums[job.queue]
            sums.weigh(weight)
            sums.add_rows(1, amounts)
            self._jobs[job.queue] = self._jobs.get(job.queue, 0) + 1

    def _leave(self, queue: str) -> None:
        self._jobs[queue] -= 1
        if not self._jobs[queue]:
            del self._jobs[queue], self._sums[queue]

    def sums(self) -> dict[str, IntArray]:
        """Return queue → sum for the queues that own jobs; a copy that a session may change."""
        return {queue: sums.value.copy() for queue, sums in sorted(self._sums.items())}

    def total(self, empty: IntArray) -> IntArray:
        """Return the sum over all queues; `empty` gives shape and the zero to start from."""
        return total_of((sums.value for sums in self._sums.values()), empty)

    def stretch(self, capacity: int) -> None:
        """Make room for more resources."""
        for sums in self._sums.values():
            sums.stretch(capacity)
        self._shares = {
            key: share._replace(amounts=stretched(share.amounts, capacity))
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
        """Update all rollups with a changed job."""
        for rollup in self._by_measure.values():
            rollup.update(job, member=member)

    def stretch(self, capacity: int) -> None:
        """Make room for more resources."""
        for rollup in self._by_measure.values():
            rollup.stretch(capacity)
