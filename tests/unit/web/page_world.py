"""A cluster that exists only as answers: it stands for the API server behind the live page.

Drawn from a seed, of any size. It answers what the page asks in the form of the aggregated API,
and says over the stream of changes what a test has changed.
"""

import random
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from shared.api.batch import Job
from shared.api.meta import ObjectMeta
from shared.api.time import format_seconds
from shared.api.usage_reports import UsageReportSpec, UsageReportStatus
from shared.api.visibility import (
    Delay,
    EvictedPod,
    ExpectedStart,
    Explanation,
    Gate,
    Holder,
    LosingJob,
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
    UsageHistory,
    UsagePoint,
    WhatIfStatus,
)
from shared.api.whatifs import WhatIfSpec
from shared.jobs.templates import read_template
from shared.model.resources import parse_list
from tests.support.answers import AnswersTransport, Json, LiveAnswers
from tests.unit.web import usage_world

GATES = ("enqueue", "quota", "gang", "predicate")
TEAMS = 12
LARGE = 100
"""Pods of a job that starts at once, at most."""
GPU = "nvidia.com/gpu"


def in_line(jobs: Iterable[PendingJob]) -> list[PendingJob]:
    """Return jobs by queue and place, as the service lists them."""
    return sorted(jobs, key=lambda job: (job.queue, job.position))


class World(LiveAnswers):
    """Drawn lists, which a test may change, and what is told of their jobs."""

    def __init__(self, *, nodes: int, waiting: int, running: int, now_s: float, seed: int) -> None:
        super().__init__()
        self._draw = random.Random(seed)
        self._now_s = now_s
        self.queues = self._tree()
        leaves = [queue.metadata.name for queue in self.queues if not queue.children]
        places = dict.fromkeys(leaves, 0)
        self.jobs = in_line(self._waiting(at, places) for at in range(waiting))
        self.running = [self._running(at, leaves) for at in range(running)]
        self.nodes = [self._node(at) for at in range(nodes)]
        self.history = self._six_hours()
        self.waits_on = False  # the last wait of a life goes on
        self.gone = False
        self.decided = True
        self.pods = 0  # of the job whose life is told

    def at(self, seconds: float) -> str:
        """Return the time so many seconds from now."""
        return format_seconds(self._now_s + seconds)

    def _tree(self) -> list[QueueTree]:
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
            metadata=ObjectMeta(name=name),
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
            metadata=ObjectMeta(name=name, namespace=queue),
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
            metadata=ObjectMeta(name=name, namespace=queue),
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
            metadata=ObjectMeta(name=f"rack-{at // 40:03}-node-{at % 40:02}"),
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
        gone = set(self._draw.sample(range(len(self.jobs)), len(self.jobs) // 10))
        self.jobs = [job for at, job in enumerate(self.jobs) if at not in gone]
        places = {queue.metadata.name: 900 for queue in self.queues if not queue.children}
        first = 10_000 + self._draw.randrange(80_000)
        come = [self._waiting(first + at, places) for at in range(len(gone))]
        self.jobs = in_line([*self.jobs, *come])

    def _six_hours(self) -> UsageHistory:
        """Return six hours in which the load grows."""
        points = tuple(
            UsagePoint(
                at=self.at(300.0 * (step - 71)),
                waiting=step,
                started=step % 7,
                waited_p50_seconds=30.0 * step if step % 7 else None,
                waited_p90_seconds=90.0 * step if step % 7 else None,
                in_use={"cpu": str(4000 * step), GPU: str(500 * step)},
            )
            for step in range(72)
        )
        total = {"cpu": "320000", "memory": "1280000Gi", GPU: "40000"}
        meta = ObjectMeta(name="cluster")
        return UsageHistory(metadata=meta, step_seconds=300, total=total, points=points)

    async def usage_report(self, spec: UsageReportSpec) -> UsageReportStatus:
        """Return a report of what accounting has recorded."""
        self.reported.append(spec)
        return usage_world.report(spec, now_s=self._now_s)

    async def explanation(self, namespace: str, name: str) -> Explanation | None:
        """Return the answer for one job that waits or runs."""
        found = self._job(namespace, name)
        if found is None:
            return None
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
            nodes=len(self.nodes),
            reasons=(
                NodesReason(reason="Insufficient nvidia.com/gpu", nodes=4000),
                NodesReason(reason="node(s) had untolerated taint", nodes=950),
            ),
            shortages=found.shortages,
            holders=(
                Holder(
                    job=holder, queue=found.queue, holds={GPU: "64"}, expected_end=self.at(4000)
                ),
            ),
            hidden_holders=3,
            would_help=(f"64 more {GPU} in queue {found.queue}", "the end of serve-00001"),
            next_event="the expected end of serve-00001",
            decided_at=self.at(-2) if self.decided else None,
            expected_start=found.expected_start,
        )

    async def timeline(self, namespace: str, name: str) -> Timeline | None:
        """Return the life of a job so far."""
        found = self._job(namespace, name)
        if found is None:
            return None
        begun, about = -3600.0, found.owner
        lasts = {"goes_on": True} if self.waits_on else {"seconds": 2100}
        entries = (
            self._entry(begun, "Created", about),
            self._entry(begun, "Waits", about, seconds=1500, message="quota: 8 wanted"),
            self._entry(begun + 1500, "Admitted", about),
            self._entry(begun + 1500, "Waits", about, message=found.message, **lasts),
        )
        return Timeline(
            metadata=found.metadata,
            queue=found.queue,
            phase="Pending",
            gone=self.gone,
            entries=(*entries, *self._lives(about, begun + 3600)),
        )

    def _entry(self, at: float, what: str, about: ObjectRef, **more: Any) -> TimelineEntry:
        return TimelineEntry(at=self.at(at), what=what, about=about, **more)

    def _lives(self, job: ObjectRef, begun: float) -> Iterable[TimelineEntry]:
        """Yield for each pod a wait and a run."""
        for number in range(self.pods):
            name = f"{job.name}-worker-{number}"
            pod = ObjectRef(kind="Pod", namespace=job.namespace, name=name)
            at = begun - 1200 + 10 * number
            yield self._entry(at, "Waits", pod, seconds=300)
            yield self._entry(at + 300, "Running", pod, seconds=600)

    async def what_if(self, namespace: str, spec: WhatIfSpec) -> WhatIfStatus:
        """Return that a small job starts, a large one waits, and a drained node costs pods.

        A job whose CPU is more than its queue may have waits for that.
        """
        self.asked.append((namespace, spec))
        gone = (EvictedPod(namespace="team-00", name="serve-1-0", job="serve-1"),)
        if spec.drain_nodes:
            first, second = (job.owner for job in self.running[:2])
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
            starting = [job.owner for job in self.jobs if job.queue == change.name]
            return WhatIfStatus(starts_now=False, starting=tuple(starting))
        if spec.job is not None and (lack := _beyond_its_queue(spec.job, self.queues, spec)):
            return WhatIfStatus(starts_now=False, gate="enqueue", shortages=(lack,))
        pods = sum(task.replicas for task in spec.job.spec.tasks) if spec.job else 0
        if pods > LARGE:
            lack = ResourceShortage(resource="cpu", requested=str(pods), free=str(LARGE))
            return WhatIfStatus(
                starts_now=False, gate="gang", message="not enough nodes", shortages=(lack,)
            )
        return WhatIfStatus(
            starts_now=True,
            placements=(TaskPlacement(task="main", node=self.nodes[0].metadata.name, pods=pods),),
            evictions=gone,
            delays=(Delay(job=self.jobs[0].owner, queue="team-00", seconds=90.0),),
            decided_in_ms=12.0,
        )

    def _job(self, namespace: str, name: str) -> PendingJob | None:
        key = (namespace, name)
        return next(
            (job for job in self.jobs if (job.metadata.namespace, job.metadata.name) == key), None
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


_RESOURCES = [
    {"name": "replicasets", "kind": "ReplicaSet", "namespaced": True},
    {"name": "deployments", "kind": "Deployment", "namespaced": True},
]


def owned_by_a_deployment(world: World, way: AnswersTransport) -> tuple[str, str]:
    """Give the first job that waits a Deployment `web`; return its namespace and name."""
    job = world.jobs[0]
    namespace, name = job.metadata.namespace, job.metadata.name
    owner = ObjectRef(
        api_version="apps/v1", kind="ReplicaSet", namespace=namespace, name="web-5d4", uid="rs"
    )
    world.jobs[0] = replace(job, pod_group=name, owner=owner)
    above = {
        "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d",
        "controller": True,
    }  # fmt: skip
    path = f"/apis/apps/v1/namespaces/{namespace}"
    objects: dict[str, Json] = {
        "/apis/apps/v1": {"resources": _RESOURCES},
        f"{path}/replicasets/web-5d4": {
            "metadata": {"name": "web-5d4", "uid": "rs", "ownerReferences": [above]}
        },
        f"{path}/deployments/web": {"metadata": {"name": "web", "uid": "d"}},
    }
    way.objects = objects
    return namespace, name
