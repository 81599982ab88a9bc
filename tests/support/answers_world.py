"""A cluster behind the commands `pumice why`, `when` and the others: fixed answers, real refusals.

The refusals are those of the service itself; where visibility is not installed the API server's
own words stand in their place.
"""

import json
from collections.abc import Callable
from typing import Any

import msgspec

from services.visibility.api import statuses
from shared.api.meta import ObjectMeta
from shared.api.visibility import (
    API_VERSION,
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
from shared.kube.errors import Unreachable, read_status, refusal
from shared.kube.wire import Request
from shared.runtime.errors import PumiceError

ROOT = f"/apis/{API_VERSION}"
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


QUEUES = {tree.metadata.name for tree in TREES}
LISTS = {
    "queuetrees": lambda _: ("QueueTree", TREES),
    "nodeuses": lambda _: ("NodeUse", NODES),
    "runningjobs": lambda place: ("RunningJob", [j for j in RUNNING if _is_in(j, place)]),
}


Script = list[Callable[[], bytes]]


class Events:
    """A watch whose bytes a test makes when they are asked for."""

    def __init__(self, script: Script) -> None:
        self._script = script

    async def read(self, *, silence_s: float) -> bytes:
        assert silence_s > 0
        return self._script.pop(0)()

    def close(self) -> None:
        """Nothing is open."""


class AnswersTransport:
    """The transport to such a cluster; `refuses` stands for any other answer."""

    host = "https://cluster.example:6443"

    def __init__(self) -> None:
        self.refuses: PumiceError | None = None
        self.forbidden: set[str] = set()
        """Plurals whose list of all namespaces, or of the cluster, is not for this user."""
        self.served = ["pendingjobs", "queuetrees", "runningjobs", "nodeuses"]
        self.jobs = JOBS
        self.namespaces = {"default", "team"}
        self.objects: dict[str, dict[str, Any]] = {}
        """Objects of any kind by path: those that this user may get."""
        self.explained = {"train": EXPLANATION, "big": PASSED}
        self.lives = {"train": TIMELINE, "left": LEFT}
        self.asked: list[Request] = []
        self.what_if = STARTS
        self.watches: list[Script | PumiceError] = []
        """Each watch as what happens while it is read; a refusal in the place of one."""

    async def exchange(self, request: Request) -> bytes:
        self.asked.append(request)
        if self.refuses is not None:
            raise self.refuses
        try:
            answer = self._object(request) or self._answer(request)
            return json.dumps(answer, separators=(",", ":")).encode()
        except statuses.ApiFailure as failure:
            raise refused(request, failure) from failure

    async def open(self, request: Request) -> "Events":
        self.asked.append(request)
        script = self.watches.pop(0)
        if isinstance(script, PumiceError):
            raise script
        return Events(script)

    async def close(self) -> None:
        """Nothing is open."""

    def _object(self, request: Request) -> dict[str, Any]:
        """Return an owner or a namespace, nothing for a request of another kind."""
        if request.path in self.objects:
            return self.objects[request.path]
        if not request.path.startswith(("/api/v1/namespaces/", ROOT)):
            raise statuses.ApiFailure(statuses.FORBIDDEN, f"you may not get {request.path}")
        if not request.path.startswith("/api/v1/namespaces/"):
            return {}
        name = request.path.rpartition("/")[2]
        return {"kind": "Namespace"} if name in self.namespaces else _missing("namespaces", name)

    def _answer(self, request: Request) -> dict[str, Any]:
        parts = request.path.removeprefix(ROOT).strip("/").split("/")
        namespace, parts = (parts[1], parts[2:]) if parts[0] == "namespaces" else ("", parts)
        if not namespace and parts[0] in self.forbidden:
            raise statuses.ApiFailure(statuses.FORBIDDEN, f"you may not list {parts[0]}")
        match (request.method, *parts):
            case ("GET", ""):
                names = [{"name": name} for name in self.served]
                return {"kind": "APIResourceList", "resources": names}
            case ("GET", "pendingjobs"):
                return listed("PendingJob", [j for j in self.jobs if _is_in(j, namespace)])
            case ("GET", "pendingjobs", name):
                found = [j for j in self.jobs if _is_in(j, namespace) and j.metadata.name == name]
                return whole("PendingJob", found[0]) if found else _missing("pendingjobs", name)
            case ("GET", "queues", queue, "pendingjobs") if queue in QUEUES:
                return listed("PendingJob", [j for j in self.jobs if j.queue == queue])
            case ("GET", "explanations", name) if name in self.explained:
                return whole("Explanation", self.explained[name])
            case ("GET", "timelines", name) if name in self.lives:
                return whole("Timeline", self.lives[name])
            case ("GET", plural) if plural in LISTS:
                return listed(*LISTS[plural](namespace))
            case ("POST", "whatifs"):
                asked = json.loads(request.body or b"")
                return {**asked, "status": msgspec.to_builtins(self.what_if)}
            case _:
                return _missing(*parts[:2])


def refused(request: Request, failure: statuses.ApiFailure) -> PumiceError:
    """Return the error of the transport for a refusal of the service."""
    body = json.dumps(failure.status()).encode()
    return refusal(request.doing, read_status(failure.code, body))


def unreachable() -> PumiceError:
    """Return the error of the transport for a server that is away."""
    return Unreachable("GET /apis at https://cluster.example:6443: connection refused")


def whole(kind: str, answer: msgspec.Struct) -> dict[str, Any]:
    """Return an answer as the service sends it."""
    return {"kind": kind, "apiVersion": API_VERSION, **msgspec.to_builtins(answer)}


def listed(kind: str, answers: Any) -> dict[str, Any]:
    """Return a list of answers as the service sends it."""
    items = [msgspec.to_builtins(each) for each in answers]
    return {
        "kind": f"{kind}List",
        "apiVersion": API_VERSION,
        "metadata": {"resourceVersion": "7"},
        "items": items,
    }


def _is_in(job: PendingJob | RunningJob, namespace: str) -> bool:
    return namespace in ("", job.metadata.namespace)


def _missing(plural: str, name: str) -> dict[str, Any]:
    raise statuses.not_found(plural, name)
