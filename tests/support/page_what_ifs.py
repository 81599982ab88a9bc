"""The answers to what-ifs of the cluster behind the live page (`page_world`)."""

from collections.abc import Sequence

from shared.api.batch import Job
from shared.api.visibility import (
    Delay,
    EvictedPod,
    LosingJob,
    NodeUse,
    PendingJob,
    QueueTree,
    ResourceShortage,
    RunningJob,
    TaskPlacement,
    WhatIfStatus,
)
from shared.api.whatifs import WhatIfSpec
from shared.jobs.templates import read_template
from shared.model.resources import parse_list

LARGE = 100


def imagined(
    waiting: Sequence[PendingJob],
    running: Sequence[RunningJob],
    nodes: Sequence[NodeUse],
    queues: Sequence[QueueTree],
    spec: WhatIfSpec,
) -> WhatIfStatus:
    """Return that a small job starts, a large one waits, and a drained node costs pods.

    A job whose CPU is more than its queue may have waits for that.
    """
    gone = (EvictedPod(namespace="team-00", name="serve-1-0", job="serve-1"),)
    if spec.drain_nodes:
        first, second = (job.owner for job in running[:2])
        losing = (LosingJob(job=first, pods=8, stops=True), LosingJob(job=second, pods=1))
        return WhatIfStatus(
            starts_now=False,
            evictions=gone,
            drained_pods=1500,
            unplaced_pods=9,
            losing=losing,
            remaining={"evictions": 1000},
        )
    change = spec.change_queue
    if change is not None and spec.job is None:
        starting = [job.owner for job in waiting if job.queue == change.name]
        return WhatIfStatus(starts_now=False, starting=tuple(starting))
    if spec.job is not None and (lack := _beyond_its_queue(spec.job, queues, spec)):
        return WhatIfStatus(starts_now=False, gate="enqueue", shortages=(lack,))
    pods = sum(task.replicas for task in spec.job.spec.tasks) if spec.job else 0
    if pods > LARGE:
        lack = ResourceShortage(resource="cpu", requested=str(pods), free=str(LARGE))
        return WhatIfStatus(
            starts_now=False, gate="gang", message="not enough nodes", shortages=(lack,)
        )
    return WhatIfStatus(
        starts_now=True,
        placements=(TaskPlacement(task="main", node=nodes[0].metadata.name, pods=pods),),
        evictions=gone,
        delays=(Delay(job=waiting[0].owner, queue="team-00", seconds=90.0),),
        decided_in_ms=12.0,
    )


def _beyond_its_queue(
    job: Job, queues: Sequence[QueueTree], spec: WhatIfSpec
) -> ResourceShortage | None:
    """Return what a job is short of when it asks for more CPU than its queue may have."""
    amounts = {
        queue.metadata.name: {each.resource: each.capability for each in queue.resources}
        for queue in queues
    }
    has = amounts.get(job.spec.queue, {}).get("cpu")
    if spec.change_queue is not None and spec.change_queue.name == job.spec.queue:
        changed = spec.change_queue.capability.get("cpu")
        has = has if changed is None else str(changed)
    if not has:
        return None
    wanted = sum(
        task.replicas * parse_list(container.resources.requests).cpu_milli
        for task in job.spec.tasks
        for container in read_template(task).spec.containers
    )
    if wanted <= parse_list({"cpu": has}).cpu_milli:
        return None
    return ResourceShortage(resource="cpu", requested=f"{wanted}m", free=has)
