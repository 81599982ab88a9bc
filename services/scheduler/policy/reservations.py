"""Reservations of jobs that entered a queue: pure measures over jobs, summed by rollups.

A reservation counts for pods that do not exist yet; it shrinks as they are allocated.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import numpy as np

from pumice.plugins import Cluster, FloatArray, IntArray, Job
from services.scheduler.engine.resources.amounts import total_of
from shared.model.status import TaskStatus

_INQUEUE: Final = 2
"""Row of reserved amounts in `sharing`."""


def unallocated_minimum(job: Job) -> IntArray:
    """Return a job's minResources minus its allocation and its scheduling-gated pods.

    Counts for Inqueue jobs and for running ones whose minimum is allocated (a job that lost pods
    permanently does not reserve again). An expired reservation counts nothing
    (`engine.jobs.reservation_timeouts`).
    """
    if job.min_resources is None or job.reservation_expired:
        return np.zeros_like(job.allocated)
    running = job.phase == "Running" and job.allocated_count >= job.min_available
    if job.phase != "Inqueue" and not running:
        return np.zeros_like(job.allocated)
    unallocated: IntArray = np.maximum(job.min_resources - job.allocated, 0)
    return without_gated(job, unallocated)


def without_gated(job: Job, amounts: IntArray) -> IntArray:
    """Return amounts minus the requests of the job's gated pods: these may start much later."""
    if not job.gated:
        return amounts
    gated = total_of(
        (task.task_class.request for task in job.tasks.values() if task.gated), amounts
    )
    left: IntArray = np.maximum(amounts - gated, 0)
    return left


def leaving(job: Job) -> IntArray:
    """Measure of a job's releasing amounts, which are not part of its queue's allocation."""
    going = job.by_status[TaskStatus.RELEASING].values()
    return total_of((task.task_class.request for task in going if task.node), job.allocated)


def elastic(job: Job) -> IntArray:
    """Return a job's allocation above its minResources."""
    if job.min_resources is None:
        return job.allocated
    beyond: IntArray = np.maximum(job.allocated - job.min_resources, 0)
    return beyond


def sharing(job: Job) -> IntArray:
    """Measure of a job in its queue's sums: allocated, request, inqueue, elastic."""
    return np.stack([job.allocated, job.requested, unallocated_minimum(job), elastic(job)])


def sharing_by_queue(cluster: Cluster) -> Mapping[str, IntArray]:
    """Return the sums of `sharing` per queue, reserved amounts as `admissible` has them."""
    found = cluster.rollup(sharing).sums()
    for queue, sums in found.items():
        sums[_INQUEUE] = admissible(
            sums[_INQUEUE], unallocated_minimum, cluster, [queue], limit=cluster.total
        )
    return found


def admissible(
    reserved: IntArray,
    measure: Callable[[Job], IntArray],
    cluster: Cluster,
    queues: Iterable[str],
    *,
    limit: IntArray | FloatArray,
) -> IntArray:
    """Return the reservations of jobs, without jobs whose minResources exceed the limit.

    `reserved` is the sum of `measure` over the jobs of `queues`, which are read only if it exceeds
    `limit`. A group enters its queue only within the limit. A group whose pods name their nodes
    runs without entering, and may state any minResources.
    """
    if not (reserved > limit).any():
        return reserved
    return total_of(
        (
            measure(job)
            for queue in queues
            for job in cluster.jobs_of(queue)
            if job.min_resources is None or not (job.min_resources > limit).any()
        ),
        reserved,
    )
