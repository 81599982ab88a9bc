"""Rollups: sums over jobs by queue or another group, kept and updated from changed jobs.

A plugin states how much a job contributes; the rollup remembers each job's last contribution and,
when the job changes, replaces it in the sum of its group. Integers make this exact: a law test
shows that the sums equal those computed from scratch.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from pumice.plugins import GroupOf, IntArray, Job, Measure
from services.scheduler.engine.resources.amounts import Sums, stretched, total_of


def allocated_of(job: Job) -> IntArray:
    """Measure of a job's allocated amounts, which queues show as allocated (SS03)."""
    return job.allocated


def _queue_of(job: Job) -> str:
    return job.queue


class _Share(NamedTuple):
    group: str
    amounts: IntArray
    weight: int


class Rollup:
    """Sums of one measure per queue, or per group of jobs that a function names."""

    def __init__(self, measure: Measure, group_of: GroupOf) -> None:
        self._measure = measure
        self._group_of = group_of
        self._shares: dict[str, _Share] = {}
        self._sums: dict[str, Sums] = {}
        self._jobs: dict[str, int] = {}

    def update(self, job: Job, *, member: bool) -> None:
        """Replace a job's contribution; `member` is whether it takes part in sessions."""
        before = self._shares.pop(job.key, None)
        if before is not None:
            sums = self._sums[before.group]
            sums.add_rows(-1, before.amounts)
            sums.weigh(-before.weight)
            self._leave(before.group)
        if member:
            amounts = np.array(self._measure(job))  # a copy: a job changes its sums in place
            weight = int(amounts.max())
            group = self._group_of(job)
            self._shares[job.key] = _Share(group, amounts, weight)
            if group not in self._sums:
                self._sums[group] = Sums(amounts.shape)
            sums = self._sums[group]
            sums.weigh(weight)
            sums.add_rows(1, amounts)
            self._jobs[group] = self._jobs.get(group, 0) + 1

    def _leave(self, group: str) -> None:
        self._jobs[group] -= 1
        if not self._jobs[group]:
            del self._jobs[group], self._sums[group]

    def sums(self) -> dict[str, IntArray]:
        """Return group → sum for the groups that have jobs; a copy that a session may change."""
        return {group: sums.value.copy() for group, sums in sorted(self._sums.items())}

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
        self._by_measure: dict[tuple[Measure, GroupOf], Rollup] = {}

    def get(
        self,
        measure: Measure,
        jobs: Iterable[tuple[Job, bool]],
        group_of: GroupOf | None = None,
    ) -> Rollup:
        """Return the rollup of a measure; the first call sums over all `jobs` (job, member).

        `group_of` names the group of a job; None: its queue.
        """
        key = (measure, group_of or _queue_of)
        rollup = self._by_measure.get(key)
        if rollup is None:
            rollup = self._by_measure[key] = Rollup(*key)
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
