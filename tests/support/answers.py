"""Results of visibility that a test gives, and the transport to an API server that has them."""

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from services.visibility.adapters.authorization import Authorization
from services.visibility.adapters.sources import Sources
from services.visibility.adapters.watching import versioned
from services.visibility.api import requests, rights, statuses
from services.visibility.api.tables import whole
from services.visibility.api.users import MASTERS, User
from services.visibility.interface import LiveQueries, Queries
from services.visibility.metrics import VisibilityMetrics
from shared.api.base import View
from shared.api.meta import ObjectMeta
from shared.api.usage_reports import UsageReport, UsageReportSpec, UsageReportStatus
from shared.api.visibility import (
    API_VERSION,
    Change,
    Delay,
    EvictedPod,
    Explanation,
    Gate,
    Holder,
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
    WhatIfStatus,
)
from shared.api.whatifs import WhatIf, WhatIfSpec
from shared.kube.client import Kube
from shared.kube.errors import read_status, refusal
from shared.kube.wire import Request
from shared.runtime.clock import SystemClock
from shared.runtime.errors import PumiceError
from shared.runtime.metrics import Metrics

Json = dict[str, Any]
ROOT: Final = f"/apis/{API_VERSION}"
USER: Final = User(name="ann", groups=(MASTERS,))


@dataclass
class FixedAnswers(Queries, LiveQueries):
    """Results that a test wrote down; an error in `failure` takes the place of each."""

    jobs: list[PendingJob] = field(default_factory=list)
    queues: list[QueueTree] = field(default_factory=list)
    explanations: dict[tuple[str, str], Explanation] = field(default_factory=dict)
    timelines: dict[tuple[str, str], Timeline] = field(default_factory=dict)
    verdict: WhatIfStatus = field(default_factory=lambda: WhatIfStatus(starts_now=True))
    running: list[RunningJob] = field(default_factory=list)
    nodes: list[NodeUse] = field(default_factory=list)
    history: UsageHistory = field(
        default_factory=lambda: UsageHistory(metadata=ObjectMeta(name="cluster"))
    )
    report: UsageReportStatus = field(default_factory=UsageReportStatus)
    reported: list[UsageReportSpec] = field(default_factory=list)
    failure: Exception | None = None
    asked: list[tuple[str, WhatIfSpec]] = field(default_factory=list)

    async def pending_jobs(self, namespace: str = "", *, queue: str = "") -> Sequence[PendingJob]:
        self._fail()
        return [
            job
            for job in self.jobs
            if namespace in ("", job.metadata.namespace) and queue in ("", job.queue)
        ]

    async def explanation(self, namespace: str, name: str) -> Explanation | None:
        self._fail()
        return self.explanations.get((namespace, name))

    async def queue_trees(self) -> Sequence[QueueTree]:
        self._fail()
        return self.queues

    async def what_if(self, namespace: str, spec: WhatIfSpec) -> WhatIfStatus:
        self._fail()
        self.asked.append((namespace, spec))
        return self.verdict

    async def timeline(self, namespace: str, name: str) -> Timeline | None:
        self._fail()
        return self.timelines.get((namespace, name))

    async def usage_history(self) -> UsageHistory:
        self._fail()
        return self.history

    async def usage_report(self, spec: UsageReportSpec) -> UsageReportStatus:
        self._fail()
        self.reported.append(spec)
        return self.report

    async def running_jobs(self, namespace: str = "") -> Sequence[RunningJob]:
        self._fail()
        return [job for job in self.running if namespace in ("", job.metadata.namespace)]

    async def node_uses(self) -> Sequence[NodeUse]:
        self._fail()
        return self.nodes

    async def changes(self, namespace: str = "") -> AsyncGenerator[Change, None]:
        """Yield once that all lists are new."""
        del namespace
        yield Change(resources=("pendingjobs",))

    def _fail(self) -> None:
        if self.failure is not None:
            raise self.failure


class LiveAnswers(FixedAnswers):
    """Results that change, and streams over which a test sends the changes."""

    def __init__(self) -> None:
        super().__init__()
        self._streams: set[tuple[str, asyncio.Queue[Change | None]]] = set()
        self._recent: list[Change] = []

    async def changes(self, namespace: str = "") -> AsyncGenerator[Change, None]:
        """Yield the changes that a test sends."""
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


Script = list[Callable[[], bytes]]


class Events:
    """A watch whose bytes a test makes when they are requested."""

    def __init__(self, script: Script) -> None:
        self._script = script

    async def read(self, *, silence_s: float) -> bytes:
        assert silence_s > 0
        return self._script.pop(0)()

    def close(self) -> None:
        """Nothing is open."""


class ChangeStream:
    """The stream of changes as the service writes it."""

    def __init__(self, answers: LiveAnswers, namespace: str) -> None:
        self._answers, self._namespace = answers, namespace
        # From now on: the page says that it is live before it has read anything.
        self._changes = answers.follow(namespace)
        self._begun = False

    async def read(self, *, silence_s: float) -> bytes:
        """Return the next event."""
        if not self._begun:
            self._begun = True
            return b": follows\n\n"
        async with asyncio.timeout(silence_s):
            change = await self._changes.get()
        if change is None:
            return b""
        name = "happened" if change.entry else "changed"
        return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(change))

    def close(self) -> None:
        """Follow no longer."""
        self._answers.leave(self._namespace, self._changes)


class AnswersTransport:
    """The transport to an API server with such results: the service reads requests and refuses."""

    host = "https://cluster.example:6443"

    def __init__(
        self, answers: FixedAnswers, *, may: Callable[[str], bool] = lambda _: True
    ) -> None:
        """`may` tells whether the user may list objects of a namespace, or all ("")."""
        self.answers = answers
        self._may = may
        self._versions = itertools.count(1)
        clock = SystemClock()
        authorization = Authorization(
            Kube(transport=self), clock=clock, metrics=VisibilityMetrics(Metrics())
        )
        self._sources = Sources(answers, answers, authorization, clock=clock)
        self.refuses: Exception | None = None
        """Takes the place of each result."""
        self.forbidden: set[str] = set()
        """Plurals whose list of all namespaces, or of the cluster, is not for this user."""
        self.sees_own_usage_only = False
        self.served = ["pendingjobs", "queuetrees", "runningjobs", "nodeuses"]
        self.namespaces = {"default", "team"}
        self.objects: dict[str, Json] = {}
        """Objects of any kind by path: those that this user may get."""
        self.asked: list[Request] = []
        self.watches: list[Script | Exception] = []
        """Each watch as what happens while it is read; a refusal in the place of one."""

    async def exchange(self, request: Request) -> bytes:
        """Return the response to a request."""
        self.asked.append(request)
        if self.refuses is not None:
            raise self.refuses
        try:
            found = self._object(request) or await self._answer(request)
            return json.dumps(found, separators=(",", ":")).encode()
        except msgspec.ValidationError as error:
            raise refused(request, statuses.invalid("WhatIf", "spec", str(error))) from error
        except statuses.ApiFailure as failure:
            raise refused(request, failure) from failure

    async def open(self, request: Request) -> Events | ChangeStream:
        """Return the stream of changes, or the next watch of the script."""
        self.asked.append(request)
        if isinstance(self.answers, LiveAnswers):
            target = requests.read("GET", request.path, dict(request.query))
            try:
                self._check(target)
            except statuses.ApiFailure as failure:
                raise refused(request, failure) from failure
            return ChangeStream(self.answers, target.namespace)
        script = self.watches.pop(0)
        if isinstance(script, Exception):
            raise script
        return Events(script)

    async def close(self) -> None:
        """Nothing is open."""

    def _object(self, request: Request) -> Json:
        """Return an owner or a namespace, nothing for a request of another kind."""
        if request.path in self.objects:
            return self.objects[request.path]
        if request.path == ROOT:
            names = [{"name": name} for name in self.served]
            return {"kind": "APIResourceList", "resources": names}
        if request.path.startswith(f"{ROOT}/"):
            return {}
        root, _, name = request.path.rpartition("/")
        if root != "/api/v1/namespaces":
            raise statuses.ApiFailure(statuses.FORBIDDEN, f"you may not get {request.path}")
        if name not in self.namespaces:
            raise statuses.not_found("namespaces", name)
        return {"kind": "Namespace"}

    def _check(self, target: requests.ServedTarget) -> None:
        plural, namespace = target.resource.plural, target.namespace
        if not self._may(namespace) or (plural in self.forbidden and not namespace):
            raise statuses.ApiFailure(statuses.FORBIDDEN, f"{plural} is forbidden")

    async def _answer(self, request: Request) -> Json:
        target = requests.read(request.method, request.path, dict(request.query))
        self._check(target)
        if target.resource.plural == "usagereports":
            query = msgspec.json.decode(request.body or b"", type=UsageReport).spec
            if self.sees_own_usage_only and not query.mine:
                raise rights.forbidden(USER, rights.of_report(USER, query)[-1], "")
            created = await self._sources.create(USER, target, request.body or b"")
            return whole(target.resource, created.object)
        if target.verb == "create":
            spec = msgspec.json.decode(request.body or b"", type=WhatIf).spec
            status = await self.answers.what_if(target.namespace, spec)
            return {**json.loads(request.body or b""), "status": msgspec.to_builtins(status)}
        if target.verb == "list" or target.resource.is_list:
            objects = await self._sources.listing(target)
            if not isinstance(self.answers, LiveAnswers):
                return listed(target.resource.kind, objects)
            version = str(next(self._versions))  # of each list and of its objects
            versions = [versioned(each, version) for each in objects]
            return listed(target.resource.kind, versions, version)
        return whole(target.resource, await self._sources.one(USER, target))


def refused(request: Request, failure: statuses.ApiFailure) -> PumiceError:
    """Return the error of the transport for a refusal of the service."""
    body = json.dumps(failure.status()).encode()
    return refusal(request.doing, read_status(failure.code, body))


def listed(kind: str, objects: Iterable[View], version: str = "7") -> Json:
    """Return a list of objects as the service sends it."""
    items = [msgspec.to_builtins(each) for each in objects]
    metadata = {"resourceVersion": version}
    return {"kind": f"{kind}List", "apiVersion": API_VERSION, "metadata": metadata, "items": items}


def pending(namespace: str, name: str, *, position: int = 1, queue: str = "default") -> PendingJob:
    """Return a job that waits for GPUs."""
    return PendingJob(
        metadata=ObjectMeta(namespace=namespace, name=name),
        owner=ObjectRef(kind="Job", namespace=namespace, name=name),
        queue=queue,
        position=position,
        gate="gang",
        message="2 of 4 pods fit",
        shortages=(ResourceShortage(resource="nvidia.com/gpu", requested="4", free="2"),),
        waiting_since="2026-01-01T00:00:00Z",
    )


def tree(name: str, parent: str = "") -> QueueTree:
    """Return a queue that holds four CPUs."""
    amounts = (QueueResource(resource="cpu", deserved="8", allocated="4"),)
    return QueueTree(metadata=ObjectMeta(name=name), parent=parent, state="Open", resources=amounts)


def explained(namespace: str, name: str, *, held_in: Sequence[str]) -> Explanation:
    """Return the explanation of a job that waits for holders in some namespaces."""
    holders = [
        Holder(job=ObjectRef(kind="Job", namespace=other, name=f"of-{other}"), holds={"cpu": "4"})
        for other in held_in
    ]
    return Explanation(
        metadata=ObjectMeta(namespace=namespace, name=name),
        about=ObjectRef(kind="Job", namespace=namespace, name=name),
        queue="default",
        gates=(
            Gate(name="enqueue", state="Passed"),
            Gate(name="gang", state="Failed", message="2 of 4 pods fit"),
        ),
        holders=tuple(holders),
    )


def lived(namespace: str, name: str) -> Timeline:
    """Return the timeline of a job that waited and ran."""
    about = ObjectRef(kind="Job", namespace=namespace, name=name)
    entries = (
        TimelineEntry(at="2026-01-01T00:00:00Z", what="Created", about=about),
        TimelineEntry(at="2026-01-01T00:00:00Z", seconds=75.0, what="Waits", about=about),
    )
    return Timeline(
        metadata=ObjectMeta(namespace=namespace, name=name), queue="default", entries=entries
    )


def costly(own: str, *others: str) -> WhatIfStatus:
    """Return a verdict that evicts and delays in several namespaces."""
    return WhatIfStatus(
        starts_now=True,
        evictions=tuple(EvictedPod(namespace=ns, name="victim") for ns in (own, *others)),
        delays=tuple(
            Delay(job=ObjectRef(kind="Job", namespace=ns, name="later"), seconds=60.0)
            for ns in (own, *others)
        ),
    )
