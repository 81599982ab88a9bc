"""Parts that watch what the binder depends on: the API server, its right to act, the backlog."""

from collections.abc import Mapping
from contextlib import aclosing
from typing import Final

from services.binder.metrics import BinderMetrics
from shared.bus.puller import Puller
from shared.bus.state import StateFollower, Synced
from shared.election.installation import InstallationLeadership
from shared.kube.client import Kube
from shared.runtime.clock import Clock
from shared.runtime.errors import Rejected, Retryable
from shared.runtime.health import ReadinessGate
from shared.runtime.logs import Logger

_PROBE_S: Final = 2.0
_BACKLOG_S: Final = 5.0


class ApiServerProbe:
    """Sets a readiness gate by whether the API server responds; closes the client at the end."""

    name: Final = "api-server"

    def __init__(self, kube: Kube, *, clock: Clock, gate: ReadinessGate, log: Logger) -> None:
        self._kube = kube
        self._clock = clock
        self._gate = gate
        self._log = log

    async def run(self) -> None:
        """Ask for the version every other second until cancelled."""
        try:
            while True:
                await self._probe()
                await self._clock.sleep(_PROBE_S)
        finally:
            await self._kube.close()

    async def _probe(self) -> None:
        try:
            await self._kube.request("GET", "/version")
        except (Retryable, Rejected) as error:
            if self._gate.ok:
                self._log.warning("api_server_lost", reason=str(error))
            self._gate.set(ok=False, reason=str(error))
        else:
            self._gate.set(ok=True)


class Markers:
    """Reads the markers of the cache, which say which installation holds the cluster's Lease."""

    name: Final = "markers"

    def __init__(self, follower: StateFollower, installation: InstallationLeadership) -> None:
        """`follower` follows no kind, and so nothing but markers."""
        self._follower = follower
        self._installation = installation

    async def run(self) -> None:
        """Follow until cancelled."""
        async with aclosing(self._follower.items()) as items:
            async for item in items:
                if isinstance(item, Synced):
                    self._installation.observe(item.marker)


class Backlogs:
    """Exposes the backlog of all binders as metrics; keys are (stream, partition)."""

    name: Final = "backlogs"

    def __init__(
        self,
        pullers: Mapping[tuple[str, int], Puller],
        *,
        clock: Clock,
        metrics: BinderMetrics,
    ) -> None:
        self._pullers = dict(pullers)
        self._clock = clock
        self._metrics = metrics

    async def run(self) -> None:
        """Ask every few seconds until cancelled; without an answer the last figures stay."""
        while True:
            await self._clock.sleep(_BACKLOG_S)
            for (stream, partition), puller in self._pullers.items():
                try:
                    backlog = await puller.backlog()
                except Retryable:
                    break
                gauge = self._metrics.backlog.labels(stream, str(partition))
                gauge.set(backlog.waiting + backlog.in_progress)
