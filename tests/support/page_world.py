"""A cluster that exists only as answers: it stands for the API server behind the live page.

Drawn from a seed, of any size. It answers what the page asks in the form of the aggregated API,
and says over the stream of changes what a test has changed.
"""

import asyncio
import random
from collections.abc import Iterable, Sequence
from typing import Any

from services.visibility.interface import LiveQueries, Queries
from shared.api.meta import ObjectMeta
from shared.api.time import format_seconds
from shared.api.visibility import (
    API_VERSION,
    Change,
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
    Timeline,
    TimelineEntry,
    UsageHistory,
    UsagePoint,
)
from shared.api.whatifs import WhatIfSpec
from tests.support.page_what_ifs import imagined

GATES = ("enqueue", "quota", "gang", "predicate")
TEAMS = 12
GPU = "nvidia.com/gpu"
BASE = f"/apis/{API_VERSION}/"
LISTS = {
    "pendingjobs": "PendingJob",
    "runningjobs": "RunningJob",
    "queuetrees": "QueueTree",
    "nodeuses": "NodeUse",
    "usagehistories": "UsageHistory",
}


def in_line(jobs: Iterable[PendingJob]) -> list[PendingJob]:
    """Return jobs by queue and place, as the service lists them."""
    return sorted(jobs, key=lambda job: (job.queue, job.position))


class World:
    """Lists that a test may change."""

    def __init__(self, *, nodes: int, waiting: int, running: int, now_s: float, seed: int) -> None:
        self._draw = random.Random(seed)
        self._now_s = now_s
        self.queues = self._queues()
        leaves = [queue.metadata.name for queue in self.queues if not queue.children]
        places = dict.fromkeys(leaves, 0)
        self.waiting = in_line(self._waiting(at, places) for at in range(waiting))
        self.running = [self._running(at, leaves) for at in range(running)]
        self.nodes = [self._node(at) for at in range(nodes)]

    def at(self, seconds: float) -> str:
        """Return the time so many seconds from now."""
        return format_seconds(self._now_s + seconds)

    def meta(self, name: str, namespace: str = "") -> ObjectMeta:
        """Return the metadata of an object."""
        return ObjectMeta(name=name, namespace=namespace)

    def _queues(self) -> list[QueueTree]:
        divisions = ("research", "production", "shared")
        teams = [(f"team-{at:02}", divisions[at % 3]) for at in range(TEAMS)]
        found = [self._queue("root", "", 0, divisions, share=1.0)]
        for division in divisions:
            own = tuple(team for team, parent in teams if parent == division)
            found.append(self._queue(division, "root", 1, own, share=0.33))
            found += [self._queue(team, division, 2, (), share=0.08) for team in own]
        return found

    def _queue(
        self, name: str, parent: str, depth: int, children: Sequence[str], *, share: float
    ) -> QueueTree:
        def of(resource: str, whole: float, unit: str) -> QueueResource:
            mine = whole * share
            used = mine * self._draw.uniform(0.4, 1.2)

            def amount(part: float) -> str:
                return f"{round(part)}{unit}"

            return QueueResource(
                resource=resource,
                deserved=amount(mine),
                guarantee=amount(mine * 0.3) if depth == 2 else "",
                capability=amount(mine * 1.5) if depth else "",
                allocated=amount(used),
                inqueue=amount(mine * self._draw.uniform(0, 0.2)),
                pending=amount(mine * self._draw.uniform(0, 0.4)),
                overused=used > mine,
            )

        return QueueTree(
            metadata=self.meta(name),
            parent=parent,
            depth=depth,
            children=tuple(children),
            state="Open",
            weight=1 + self._draw.randrange(4),
            running_jobs=self._draw.randrange(200),
            inqueue_jobs=self._draw.randrange(20),
            pending_jobs=self._draw.randrange(200),
            resources=(of("cpu", 320_000, ""), of("memory", 1_280_000, "Gi"), of(GPU, 40_000, "")),
        )

    def _waiting(self, at: int, places: dict[str, int]) -> PendingJob:
        queue = self._draw.choice(list(places))
        places[queue] += 1
        name, gate = f"train-{at:05}", self._draw.choice(GATES)
        wanted, free = 8 * (1 + self._draw.randrange(64)), self._draw.randrange(8)
        median = 600 * (1 + self._draw.randrange(60))
        return PendingJob(
            metadata=self.meta(name, queue),
            owner=ObjectRef(kind="Job", namespace=queue, name=name),
            pod_group=f"{name}-group",
            queue=queue,
            position=places[queue],
            gate=gate,
            message=f"queue {queue} is short of {GPU}: {wanted} wanted, {free} free",
            shortages=(ResourceShortage(resource=GPU, requested=str(wanted), free=str(free)),),
            waiting_since=self.at(-self._draw.randrange(80_000)),
            expected_start=ExpectedStart(
                median=self.at(median), latest=self.at(median * 3), basis="history"
            ),
        )

    def _running(self, at: int, queues: Sequence[str]) -> RunningJob:
        queue, name = self._draw.choice(queues), f"serve-{at:05}"
        pods = 1 + self._draw.randrange(64)
        return RunningJob(
            metadata=self.meta(name, queue),
            owner=ObjectRef(kind="Job", namespace=queue, name=name),
            pod_group=f"{name}-group",
            queue=queue,
            pods=pods,
            min_available=pods,
            nodes=1 + pods // 8,
            allocated={"cpu": str(8 * pods), "memory": f"{64 * pods}Gi", GPU: str(pods)},
            running_since=self.at(-self._draw.randrange(80_000)),
            expected_end=self.at(self._draw.randrange(80_000)),
        )

    def _node(self, at: int) -> NodeUse:
        gpus = 8 if at % 5 else 0
        used = min(1.0, max(0.0, self._draw.gauss(0.7, 0.35)))
        whole = {"cpu": "64", "memory": "256Gi", "pods": "110"}
        taken = {"cpu": f"{int(64_000 * used)}m", "memory": f"{int(256 * used)}Gi"}
        if gpus:
            whole[GPU], taken[GPU] = str(gpus), str(round(gpus * used))
        return NodeUse(
            metadata=self.meta(f"rack-{at // 40:03}-node-{at % 40:02}"),
            ready=at % 97 != 3,
            unschedulable=at % 61 == 7,
            pods=round(40 * used),
            allocatable=whole,
            allocated=taken,
        )

    def turn(self) -> None:
        """Change as a busy minute does: a tenth of the nodes and of the jobs that wait."""
        for at in self._draw.sample(range(len(self.nodes)), len(self.nodes) // 10):
            self.nodes[at] = self._node(at)
        gone = set(self._draw.sample(range(len(self.waiting)), len(self.waiting) // 10))
        self.waiting = [job for at, job in enumerate(self.waiting) if at not in gone]
        places = {queue.metadata.name: 900 for queue in self.queues if not queue.children}
        first = 10_000 + self._draw.randrange(80_000)
        come = [self._waiting(first + at, places) for at in range(len(gone))]
        self.waiting = in_line([*self.waiting, *come])


class WorldAnswers(Queries, LiveQueries):
    """The answers about such a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._streams: set[tuple[str, asyncio.Queue[Change | None]]] = set()
        self._recent: list[Change] = []
        self.waits_on = False  # the last wait of a life goes on
        self.gone = False
        self.decided = True
        self.pods = 0  # of the job whose life is told

    async def pending_jobs(self, namespace="", *, queue=""):
        """Return jobs that wait."""
        return _chosen(self.world.waiting, namespace, queue)

    async def running_jobs(self, namespace=""):
        """Return jobs that run."""
        return _chosen(self.world.running, namespace)

    async def queue_trees(self):
        """Return the queues."""
        return self.world.queues

    async def node_uses(self):
        """Return the nodes."""
        return self.world.nodes

    async def usage_history(self):
        """Return six hours in which the load grows."""
        points = tuple(
            UsagePoint(
                at=self.world.at(300.0 * (step - 71)),
                waiting=step,
                started=step % 7,
                waited_p50_seconds=30.0 * step if step % 7 else None,
                waited_p90_seconds=90.0 * step if step % 7 else None,
                in_use={"cpu": str(4000 * step), GPU: str(500 * step)},
            )
            for step in range(72)
        )
        total = {"cpu": "320000", "memory": "1280000Gi", GPU: "40000"}
        meta = self.world.meta("cluster")
        return UsageHistory(metadata=meta, step_seconds=300, total=total, points=points)

    async def explanation(self, namespace, name):
        """Return the answer for one job that waits or runs."""
        found = next(iter(_named(self.world.waiting, namespace, name)), None)
        if found is None:
            return None
        at = self.world.at
        holder = ObjectRef(kind="Job", namespace=found.queue, name="serve-00001")
        return Explanation(
            metadata=found.metadata,
            about=found.owner,
            owner=found.owner,
            pod_group=found.pod_group,
            queue=found.queue,
            phase="Inqueue",
            position=found.position,
            gates=(
                Gate(name="enqueue", state="Passed"),
                Gate(name="queue", state="Passed"),
                Gate(name=found.gate, state="Failed", message=found.message),
                Gate(name="bind", state="NotReached"),
            ),
            nodes=len(self.world.nodes),
            reasons=(
                NodesReason(reason="Insufficient nvidia.com/gpu", nodes=4000),
                NodesReason(reason="node(s) had untolerated taint", nodes=950),
            ),
            shortages=found.shortages,
            holders=(
                Holder(job=holder, queue=found.queue, holds={GPU: "64"}, expected_end=at(4000)),
            ),
            hidden_holders=3,
            would_help=(f"64 more {GPU} in queue {found.queue}", "the end of serve-00001"),
            next_event="the expected end of serve-00001",
            decided_at=at(-2) if self.decided else None,
            expected_start=found.expected_start,
        )

    async def timeline(self, namespace, name):
        """Return the life of a job so far."""
        found = next(iter(_named(self.world.waiting, namespace, name)), None)
        if found is None:
            return None
        begun = -3600.0
        about = found.owner
        entries = (
            TimelineEntry(at=self.world.at(begun), what="Created", about=about),
            TimelineEntry(
                at=self.world.at(begun),
                seconds=1500,
                what="Waits",
                about=about,
                message="quota: 8 wanted",
            ),
            TimelineEntry(at=self.world.at(begun + 1500), what="Admitted", about=about),
            TimelineEntry(
                at=self.world.at(begun + 1500),
                seconds=None if self.waits_on else 2100,
                goes_on=self.waits_on,
                what="Waits",
                about=about,
                message=found.message,
            ),
        )
        return Timeline(
            metadata=found.metadata,
            queue=found.queue,
            phase="Pending",
            gone=self.gone,
            entries=(*entries, *self._lives(about, begun + 3600)),
        )

    def _lives(self, job: ObjectRef, begun: float) -> Iterable[TimelineEntry]:
        """Yield for each pod a wait and a run."""
        for number in range(self.pods):
            name = f"{job.name}-worker-{number}"
            pod = ObjectRef(kind="Pod", namespace=job.namespace, name=name)
            at = begun - 1200 + 10 * number
            yield TimelineEntry(at=self.world.at(at), seconds=300, what="Waits", about=pod)
            yield TimelineEntry(at=self.world.at(at + 300), seconds=600, what="Running", about=pod)

    async def what_if(self, namespace, spec: WhatIfSpec):
        """Return what depends on the question alone."""
        world = self.world
        return imagined(world.waiting, world.running, world.nodes, world.queues, spec)

    async def changes(self, namespace=""):
        """Yield what tests tell."""
        stream = self.follow(namespace)
        try:
            while (change := await stream.get()) is not None:
                yield change
        finally:
            self.leave(namespace, stream)

    def follow(self, namespace: str) -> "asyncio.Queue[Change | None]":
        """Return a stream: the entries of the past first, and None at its end."""
        stream: asyncio.Queue[Change | None] = asyncio.Queue(1000)
        self._streams.add((namespace, stream))
        for change in self._recent:
            _tell(change, namespace, stream)
        return stream

    def leave(self, namespace: str, stream: "asyncio.Queue[Change | None]") -> None:
        """Follow no longer."""
        self._streams.discard((namespace, stream))

    @property
    def is_followed(self) -> bool:
        """Return whether a page listens."""
        return bool(self._streams)

    def cut(self) -> None:
        """End the streams that are open."""
        for _, stream in self._streams:
            stream.put_nowait(None)

    def tell(self, change: Change) -> None:
        """Send a change to the streams that may see it."""
        if change.entry:
            self._recent.append(change)
        for namespace, stream in self._streams:
            _tell(change, namespace, stream)


def _tell(change: Change, namespace: str, stream: "asyncio.Queue[Change | None]") -> None:
    """Put a change into a stream that may see it."""
    if not change.entry or namespace in ("", change.entry.about.namespace):
        stream.put_nowait(change)


def _chosen(jobs: Sequence[Any], namespace: str, queue: str = "") -> list[Any]:
    return [
        job
        for job in jobs
        if namespace in ("", job.metadata.namespace) and queue in ("", job.queue)
    ]


def _named(jobs: Sequence[Any], namespace: str, name: str) -> list[Any]:
    return [job for job in _chosen(jobs, namespace, "") if job.metadata.name == name]
