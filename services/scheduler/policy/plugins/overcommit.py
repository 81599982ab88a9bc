"""overcommit (PL10): admits jobs while their minima fit into the enlarged cluster."""

import numpy as np

from pumice.plugins import (
    PERMIT,
    Arguments,
    Cluster,
    FloatArray,
    Hooks,
    IntArray,
    Job,
    Opinion,
    Vote,
)
from services.scheduler.engine.resources.amounts import total_of
from services.scheduler.policy.arguments import number
from services.scheduler.policy.reservations import admissible, unallocated_minimum, without_gated
from services.scheduler.policy.shares import exceeding_of, shortfalls

_DEFAULT_FACTOR = 1.2


class Overcommit:
    """A budget for entering queues."""

    name = "overcommit"

    def __init__(self, arguments: Arguments) -> None:
        """Take `overcommit-factor`; below 1 it is the default."""
        factor = number(arguments, "overcommit-factor", _DEFAULT_FACTOR)
        self._factor = factor if factor >= 1 else _DEFAULT_FACTOR

    def contribute(self, hooks: Hooks, cluster: Cluster) -> None:
        """Add the budget: total x factor - used - what Inqueue jobs reserve."""
        enlarged = np.multiply(cluster.total, self._factor, dtype=np.float64)
        budget: FloatArray = enlarged - cluster.nodes.total_used()
        reserved = _Reservations(cluster, enlarged)

        def enqueueable(job: Job) -> Opinion:
            if job.min_resources is None:
                return PERMIT
            left = np.minimum(budget - reserved.total, enlarged - reserved.of(job.queue))
            short = exceeding_of(job.min_resources, left, job.min_resources)
            if not short:
                return PERMIT
            names = ", ".join(cluster.resources[dim] for dim in short)
            return Opinion(
                Vote.REJECT,
                f"resource in cluster is overused: overused {names}",
                shortfalls(cluster.resources, short, job.min_resources, left),
                f"{self._factor * 100:g} % of the cluster",
            )

        hooks.job_enqueueable(enqueueable)
        hooks.job_enqueued(reserved.add)


class _Reservations:
    """Amounts that Inqueue groups reserve.

    The groups of a queue together reserve at most the queue's deserved amounts: more would be
    borrowed, and no resources stay idle for a borrower. ⚠ Volcano's groups reserve all of their
    minima, so that one large gang keeps every other group out until it starts.
    """

    def __init__(self, cluster: Cluster, limit: FloatArray) -> None:
        self._nothing = np.zeros_like(cluster.total)
        sums = cluster.rollup(_reserved).sums()
        everything = total_of(sums.values(), self._nothing)
        if (everything > limit).any():
            sums = {
                name: admissible(everything, _reserved, cluster, [name], limit=limit)
                for name in sums
            }
        self._sums = dict(sums)
        self._bounds: dict[str, FloatArray] = {}
        """Queue → the most that its groups reserve, for queues that state what they deserve."""
        if not cluster.volcano_evictions:
            self._bounds = {
                name: np.where(queue.deserved > 0, queue.deserved, np.inf)
                for name, queue in cluster.queues.items()
                if queue.deserved.any()
            }
        self.total: FloatArray = sum(map(self._counted, sums), self._nothing.astype(np.float64))

    def of(self, queue: str) -> IntArray:
        """Return what the groups of a queue would reserve without that limit."""
        return self._sums.get(queue, self._nothing)

    def add(self, job: Job) -> None:
        """Reserve for a group that has entered its queue."""
        if job.min_resources is not None:
            self.total = self.total - self._counted(job.queue)
            self._sums[job.queue] = self.of(job.queue) + without_gated(job, job.min_resources)
            self.total = self.total + self._counted(job.queue)

    def _counted(self, queue: str) -> FloatArray:
        found: FloatArray = np.minimum(self.of(queue), self._bounds.get(queue, np.inf))
        return found


def _reserved(job: Job) -> IntArray:
    """⚠ An Inqueue job reserves its whole minimum here, independent of its allocation (PL10)."""
    if job.phase == "Inqueue" and job.min_resources is not None and not job.reservation_expired:
        return without_gated(job, job.min_resources)
    return unallocated_minimum(job)
