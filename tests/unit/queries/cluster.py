"""The cluster behind the commands `pumice why`, `when` and the others: fixed results."""

from shared.api.meta import ObjectMeta
from shared.api.visibility import (
    Delay,
    EvictedPod,
    ExpectedStart,
    Explanation,
    Gate,
    Holder,
    NodesReason,
    NodeUse,
    ObjectRef,
    PendingJob,
    QueueResource,
    QueueTree,
    ResourceShortage,
    RunningJob,
    TaskPlacement,
    Timeline,
    TimelineEntry,
    WhatIfStatus,
)
from shared.kube.errors import Unreachable
from tests.support.answers import FixedAnswers

NOW = "2026-01-02T03:00:00Z"
GPU = "nvidia.com/gpu"
LACK = (ResourceShortage(resource=GPU, requested="16", free="4"),)
START = ExpectedStart(median="2026-01-02T03:12:00Z", latest="2026-01-02T05:30:00Z", basis="history")
UNKNOWN = ExpectedStart(unknown="not within 7 days, because the queue is closed")


def _job(name: str, namespace: str, position: int, start: ExpectedStart | None) -> PendingJob:
    return PendingJob(
        metadata=ObjectMeta(name=name, namespace=namespace),
        owner=ObjectRef(kind="Job", namespace=namespace, name=name),
        queue="research",
        position=position,
        priority=5,
        gate="queue",
        message="queue research has 4 nvidia.com/gpu left",
        shortages=LACK,
        waiting_since="2026-01-02T02:15:00Z",
        expected_start=start,
    )


JOBS = (
    _job("train", "default", 1, START),
    _job("tune", "default", 2, UNKNOWN),
    _job("other", "team", 3, None),
)
TRAIN = ObjectRef(kind="Job", namespace="default", name="train")
EXPLANATION = Explanation(
    metadata=ObjectMeta(name="train", namespace="default"),
    about=TRAIN,
    pod_group="train-1",
    queue="research",
    phase="Pending",
    position=1,
    gates=(
        Gate(name="enqueue", state="Passed"),
        Gate(name="queue", state="Failed", message="16 asked, 4 left"),
        Gate(name="gang", state="NotReached"),
    ),
    nodes=120,
    reasons=(
        NodesReason(reason="taint gpu=only", nodes=40),
        NodesReason(reason="Insufficient nvidia.com/gpu", nodes=80),
    ),
    shortages=LACK,
    holders=(
        Holder(
            job=ObjectRef(kind="Job", namespace="team", name="big"),
            queue="research",
            holds={GPU: "96"},
            expected_end="2026-01-02T03:10:00Z",
        ),
    ),
    hidden_holders=2,
    would_help=("12 more nvidia.com/gpu in queue research",),
    next_event="the expected end of team/big",
    decided_at="2026-01-02T02:59:56Z",
    expected_start=START,
)
PASSED = Explanation(
    metadata=ObjectMeta(name="big", namespace="team"),
    about=ObjectRef(kind="Job", namespace="team", name="big"),
    queue="research",
    phase="Running",
    gates=(Gate(name="enqueue", state="Passed"), Gate(name="gang", state="Passed")),
)
TREES = (
    QueueTree(
        metadata=ObjectMeta(name="root"),
        state="Open",
        running_jobs=4,
        pending_jobs=2,
        resources=(QueueResource(resource="cpu", deserved="64", allocated="40"),),
    ),
    QueueTree(
        metadata=ObjectMeta(name="research"),
        parent="root",
        depth=1,
        state="Open",
        weight=3,
        running_jobs=3,
        inqueue_jobs=1,
        pending_jobs=2,
        resources=(
            QueueResource(
                resource="cpu", deserved="32", guarantee="8", allocated="40", overused=True
            ),
            QueueResource(resource=GPU, capability="100", allocated="96", pending="16"),
        ),
    ),
    QueueTree(metadata=ObjectMeta(name="idle"), parent="root", depth=1, state="Closed"),
)
TIMELINE = Timeline(
    metadata=ObjectMeta(name="train", namespace="default"),
    queue="research",
    phase="Pending",
    entries=(
        TimelineEntry(at="2026-01-02T02:15:00Z", approximate=True, what="Created", about=TRAIN),
        TimelineEntry(
            at="2026-01-02T02:15:00Z", seconds=2700, what="Waits", about=TRAIN, message="queue"
        ),
        TimelineEntry(
            at="2026-01-02T02:20:00Z",
            what="Evicted",
            about=ObjectRef(kind="Pod", namespace="default", name="train-0"),
            message="by team/big",
        ),
    ),
    hidden_pods=7,
)
LEFT = Timeline(
    metadata=ObjectMeta(name="left", namespace="default"),
    queue="research",
    phase="Pending",
    gone=True,
)
RUNNING = (
    RunningJob(
        metadata=ObjectMeta(name="big", namespace="team"),
        owner=ObjectRef(kind="Job", namespace="team", name="big"),
        queue="research",
        pods=96,
        nodes=12,
        allocated={GPU: "96", "cpu": "40"},
        running_since="2026-01-02T01:00:00Z",
        expected_end="2026-01-02T03:10:00Z",
    ),
)
NODES = tuple(
    NodeUse(
        metadata=ObjectMeta(name=f"node-{at}"),
        ready=at != 3,
        allocatable={"cpu": "8", GPU: "8"},
        allocated={"cpu": "2", GPU: str(gpus)},
    )
    for at, gpus in enumerate((8, 8, 4, 0))
)
STARTS = WhatIfStatus(
    starts_now=True,
    placements=(
        TaskPlacement(task="worker", node="node-1", pods=3),
        TaskPlacement(task="worker", node="node-2", pods=1),
    ),
    evictions=(EvictedPod(namespace="team", name="big-0"),),
    delays=(
        Delay(job=TRAIN, seconds=90.0),
        Delay(job=ObjectRef(kind="Job", namespace="team", name="other")),
    ),
    hidden=2,
)
WAITS = WhatIfStatus(
    starts_now=False,
    gate="queue",
    message="queue research is full",
    shortages=LACK,
    expected_start=START,
)


def fixed_answers() -> FixedAnswers:
    """Return the results that commands find."""
    return FixedAnswers(
        jobs=list(JOBS),
        queues=list(TREES),
        running=list(RUNNING),
        nodes=list(NODES),
        explanations={
            ("team", "big"): PASSED,
            **{(namespace, "train"): EXPLANATION for namespace in ("default", "team", "rayjob")},
        },
        timelines={("default", "train"): TIMELINE, ("default", "left"): LEFT},
        verdict=STARTS,
    )


def unreachable() -> Unreachable:
    """Return the error of the transport for a server that is away."""
    return Unreachable("GET /apis at https://cluster.example:6443: connection refused")
