"""The aggregated API of visibility in the process of a test, over answers that the test gives."""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from pumice.local.ports import free_port
from services.visibility.app import serving
from services.visibility.settings import VisibilitySettings
from shared.api.meta import ObjectMeta
from shared.api.visibility import (
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
from shared.api.whatifs import WhatIfSpec
from shared.kube.client import Kube
from shared.kube.config import connect as connect_kube
from shared.runtime.health import Liveness, Readiness
from shared.runtime.metrics import Metrics
from shared.runtime.service import Context
from shared.runtime.workqueue import WorkQueueMetrics
from tests.support.certificates import Authority
from tests.support.env import fields_of_env


@dataclass
class FixedAnswers:
    """Answers that a test wrote down; an error in `failure` takes the place of each."""

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
    failure: Exception | None = None
    asked: list[tuple[str, WhatIfSpec]] = field(default_factory=list)

    async def pending_jobs(self, namespace: str = "", *, queue: str = "") -> Sequence[PendingJob]:
        """Return the jobs of a namespace or a queue."""
        self._fail()
        return [
            job
            for job in self.jobs
            if namespace in ("", job.metadata.namespace) and queue in ("", job.queue)
        ]

    async def explanation(self, namespace: str, name: str) -> Explanation | None:
        """Return what was written down."""
        self._fail()
        return self.explanations.get((namespace, name))

    async def queue_trees(self) -> Sequence[QueueTree]:
        """Return the queues."""
        self._fail()
        return self.queues

    async def what_if(self, namespace: str, spec: WhatIfSpec) -> WhatIfStatus:
        """Return the verdict, whatever is asked."""
        self._fail()
        self.asked.append((namespace, spec))
        return self.verdict

    async def timeline(self, namespace: str, name: str) -> Timeline | None:
        """Return what was written down."""
        self._fail()
        return self.timelines.get((namespace, name))

    async def usage_history(self) -> UsageHistory:
        """Return what was written down."""
        self._fail()
        return self.history

    async def running_jobs(self, namespace: str = "") -> Sequence[RunningJob]:
        """Return the running jobs of a namespace."""
        self._fail()
        return [job for job in self.running if namespace in ("", job.metadata.namespace)]

    async def node_uses(self) -> Sequence[NodeUse]:
        """Return the nodes."""
        self._fail()
        return self.nodes

    async def changes(self, namespace: str = "") -> AsyncGenerator[Change, None]:
        """Yield once that all lists are new."""
        del namespace
        yield Change(resources=("pendingjobs",))

    def _fail(self) -> None:
        if self.failure is not None:
            raise self.failure


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


def context_of_a_test() -> Context:
    """Return what a process of visibility is given at its start."""
    metrics = Metrics()
    return Context(
        service="visibility",
        readiness=Readiness(),
        liveness=Liveness(),
        work_queues=WorkQueueMetrics(metrics),
        **fields_of_env(instance="visibility-of-a-test", metrics=metrics),
    )


@asynccontextmanager
async def serving_api(
    settings: VisibilitySettings, kube: Kube, answers: FixedAnswers
) -> AsyncIterator[Context]:
    """Serve the API until the block ends; `kube` is closed then."""
    context = context_of_a_test()
    parts = await serving(settings, context, kube, answers, answers)
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(part.run(), name=part.name) for part in parts]
        async with asyncio.timeout(60):
            await context.readiness.wait()
        yield context
        for task in running:
            task.cancel()


class FrontProxy:
    """Calls the API as the API server does, for users that it has checked."""

    def __init__(self, port: int, tls: ssl.SSLContext) -> None:
        self.port = port
        self.tls = tls

    @asynccontextmanager
    async def session(self, user: str) -> AsyncIterator[aiohttp.ClientSession]:
        """Open a session in which a user asks who may do everything."""
        headers = {"X-Remote-User": user, "X-Remote-Group": "system:masters"}
        connector = aiohttp.TCPConnector(ssl=self.tls, limit=0)
        base = f"https://127.0.0.1:{self.port}"
        async with aiohttp.ClientSession(base, headers=headers, connector=connector) as session:
            yield session


@asynccontextmanager
async def front_proxy(directory: Path, answers: FixedAnswers) -> AsyncIterator[FrontProxy]:
    """Serve the API without a cluster, to a caller with the certificate of the API server."""
    authority, port = Authority(directory), free_port()
    settings = VisibilitySettings(
        port=port,
        bind_address="127.0.0.1",
        register=False,
        requestheader_client_ca_file=str(authority.ca_file),
    )
    config: dict[str, Any] = {
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    (directory / "kubeconfig").write_text(json.dumps(config))
    kube = await connect_kube(str(directory / "kubeconfig"), user_agent="pumice-visibility")
    shown = authority.issue("front-proxy")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    tls.load_cert_chain(shown.cert, shown.key)
    async with serving_api(settings, kube, answers):
        yield FrontProxy(port, tls)
