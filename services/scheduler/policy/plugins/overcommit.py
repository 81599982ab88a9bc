"""overcommit (PL10): jobs enter queues while their minima fit into an enlarged cluster."""

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
        reserved = admissible(
            cluster.rollup(_reserved).total(cluster.total),
            _reserved,
            cluster,
            cluster.queues,
            limit=enlarged,
        )

        def enqueueable(job: Job) -> Opinion:
            if job.min_resources is None:
                return PERMIT
            short = exceeding_of(reserved + job.min_resources, budget, job.min_resources)
            if not short:
                return PERMIT
            names = ", ".join(cluster.resources[dim] for dim in short)
            return Opinion(
                Vote.REJECT,
                f"resource in cluster is overused: overused {names}",
                shortfalls(cluster.resources, short, job.min_resources, budget - reserved),
                f"{self._factor * 100:g} % of the cluster",
            )

        def enqueued(job: Job) -> None:
            if job.min_resources is not None:
                np.add(reserved, without_gated(job, job.min_resources), out=reserved)

        hooks.job_enqueueable(enqueueable)
        hooks.job_enqueued(enqueued)


def _reserved(job: Job) -> IntArray:
    """⚠ An Inqueue job reserves all of its minimum here, whatever it holds already (PL10)."""
    if job.phase == "Inqueue" and job.min_resources is not None and not job.reservation_expired:
        return without_gated(job, job.min_resources)
    return unallocated_minimum(job)
