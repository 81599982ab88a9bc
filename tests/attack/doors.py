"""Admission and visibility as the API server meets them: behind a Service, always asked.

There is no kube-proxy in an arena. `ClusterService` does its part: a new connection goes to an
endpoint that is ready, and what is ready is asked as the kubelet asks, by the probes of k8s/base.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp

from pumice.deploy import compose_setup
from pumice.local.ports import free_port
from tests.support import world
from tests.support.api import Api, ApiError
from tests.support.manifests import BASE
from tests.support.proxy import Proxy

PROBE_S = 5.0
"""Period and timeout of the readiness probes in k8s/base."""
FAILURES = 3
"""Failed probes in a row after which the kubelet calls a pod unready."""
ASK_S = 0.5
LONGEST_S = 32.0
"""A frozen pod stays an endpoint for three probes of five seconds that each take five to fail."""
WORDS = "admission webhook"
QUEUES = "/apis/visibility.pumice.dev/v1alpha1/queuetrees"


class Endpoint:
    """One replica as an endpoint of a Service."""

    def __init__(self, port: int) -> None:
        self.proxy = Proxy(port)
        self.address = ""
        """Where its readiness is asked, once it was started."""
        self.is_ready = False
        self._failures = 0

    async def probe(self) -> None:
        """Ask once, as the kubelet does."""
        timeout = aiohttp.ClientTimeout(total=PROBE_S)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(f"http://{self.address}/readyz") as answer,
            ):
                is_well = answer.status == 200
        except (aiohttp.ClientError, TimeoutError, ValueError):
            is_well = False
        self._failures = 0 if is_well else self._failures + 1
        self.is_ready = is_well or (self.is_ready and self._failures < FAILURES)


class ClusterService:
    """A port whose connections go to the endpoints that are ready, drawn among them."""

    def __init__(self) -> None:
        self.port = 0
        self.endpoints: list[Endpoint] = []
        self._rng = random.Random(0)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection."""
        ready = [endpoint for endpoint in self.endpoints if endpoint.is_ready]
        if not ready:
            writer.transport.abort()
            return
        await self._rng.choice(ready).proxy.serve(reader, writer)

    async def run(self) -> None:
        """Probe all endpoints until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for endpoint in self.endpoints:
                tasks.create_task(self._keep(endpoint), name=f"probe-{endpoint.proxy.target}")

    async def _keep(self, endpoint: Endpoint) -> None:
        while True:
            begin = time.monotonic()
            await endpoint.probe()
            rest_s = (
                PROBE_S if endpoint.is_ready else ASK_S
            )  # a pod that starts is not kept waiting
            await asyncio.sleep(max(0.0, begin + rest_s - time.monotonic()))


@asynccontextmanager
async def cluster_service(replicas: int) -> AsyncIterator[ClusterService]:
    """Open a Service with as many endpoints, each at a port of its own."""
    made = ClusterService()
    made.endpoints = [Endpoint(free_port()) for _ in range(replicas)]
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        for endpoint in made.endpoints:
            endpoint.proxy.cut()
        await asyncio.sleep(0)


def flags(role: str, service: ClusterService, endpoint: Endpoint) -> dict[str, str]:
    """Return the flags of one replica of admission or visibility behind its Service."""
    listens = {"port": str(endpoint.proxy.target), "bind_address": "127.0.0.1"}
    if role == "admission":
        return {
            **listens,
            "webhook_url": f"https://127.0.0.1:{service.port}",
            "webhook_namespace": "pumice-system",
        }
    return {**listens, "service_port": str(service.port)}


async def register_visibility(api: Api, service: ClusterService) -> None:
    """Create the APIService of k8s/base, and a Service that leads to ours."""
    for path, manifest in compose_setup.api_service(BASE):
        spec = manifest["spec"]
        if manifest["kind"] == "Service":
            spec["externalName"], spec["ports"][0]["port"] = "127.0.0.1", service.port
        else:
            spec["service"]["port"] = service.port
        await api.request("POST", path.rpartition("/")[0], manifest)


class DoorProbe:
    """Asks one door all the time; `longest_s` is the longest stretch without a right answer."""

    def __init__(self, name: str, ask: Callable[[], Awaitable[bool]]) -> None:
        self.name = name
        self._ask = ask
        self._right_s = time.monotonic()
        self.longest_s = 0.0
        self.right = 0
        """Right answers until now."""

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            is_right = False
            with contextlib.suppress(aiohttp.ClientError, OSError, ApiError):
                async with asyncio.timeout(10):
                    is_right = await self._ask()
            now = time.monotonic()
            self.longest_s = max(self.longest_s, now - self._right_s)
            if is_right:
                self._right_s = now
                self.right += 1
            await asyncio.sleep(ASK_S)

    def begin(self) -> None:
        """Forget the stretches of earlier rounds."""
        self._right_s, self.longest_s = time.monotonic(), 0.0

    def complaint(self) -> str:
        """Return what is wrong with this round, "" if nothing is."""
        if self.longest_s <= LONGEST_S:
            return ""
        return f"{self.name} gave no right answer for {self.longest_s:.1f} s (≤ {LONGEST_S:g})"


def probes(api: Api, namespace: str) -> list[DoorProbe]:
    """Return a probe of admission, which must refuse, and one of visibility, which must answer."""
    url = f"/apis/batch.volcano.sh/v1alpha1/namespaces/{namespace}/jobs"
    wrong = world.job("wants-too-many", world.task("w", 1), min_available=5)

    async def refuses() -> bool:
        try:
            await api.request("POST", url, wrong, params={"dryRun": "All"})
        except ApiError as error:
            return WORDS in error.message
        return False  # admitted, as when nobody is asked

    async def answers() -> bool:
        return bool((await api.request("GET", QUEUES))["items"])

    return [DoorProbe("admission", refuses), DoorProbe("visibility", answers)]
