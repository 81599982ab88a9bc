"""The answers to what-ifs of the cluster behind the live page (`page_world`)."""

from collections.abc import Sequence

from shared.api.visibility import (
    Delay,
    EvictedPod,
    LosingJob,
    NodeUse,
    PendingJob,
    ResourceShortage,
    RunningJob,
    TaskPlacement,
    WhatIfSpec,
    WhatIfStatus,
)

LARGE = 100


def imagined(
    waiting: Sequence[PendingJob],
    running: Sequence[RunningJob],
    nodes: Sequence[NodeUse],
    spec: WhatIfSpec,
) -> WhatIfStatus:
    """Return that a small job starts, a large one waits, and a drained node costs pods."""
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
