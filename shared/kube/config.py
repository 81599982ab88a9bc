"""From settings to a `Kube`: the only place that wires this package together."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from shared.kube.client import Kube
from shared.kube.credentials import Source
from shared.kube.sources import find_source
from shared.kube.transport import RateLimiter, open_transport
from shared.runtime.clock import Clock, SystemClock
from shared.runtime.values import Seconds

if TYPE_CHECKING:  # a command that connects needs nothing of a service
    from shared.runtime.service import Context


async def connect(
    kubeconfig: str | None = None,
    *,
    user_agent: str,
    source: Source | None = None,
    context: str | None = None,
    master: str = "",
    qps: float = 0.0,
    burst: int = 0,
    max_connections: int = 100,
    request_timeout_s: float = 30.0,
    clock: Clock | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Kube:
    """Return a client of the cluster that `kubeconfig` (or the environment) names.

    Looked for in this order: `source`, `kubeconfig`, `$KUBECONFIG`, the pod's own account,
    `~/.kube/config`. `master` is an address that goes before that of the kubeconfig.
    `qps` ≤ 0 sets no bound on requests per second. A watch holds one of `max_connections`.

    Loads credentials, which may run a plugin, but sends nothing: an unavailable server shows in
    the first request. Raises Rejected for a configuration that cannot work, naming the file.
    """
    clock = clock or SystemClock()
    if source is None:
        source = find_source(
            kubeconfig, context=context, master=master, clock=clock, environ=environ
        )
    transport = await open_transport(
        source,
        user_agent=user_agent,
        limiter=RateLimiter(qps=qps, burst=burst) if qps > 0 else None,
        max_connections=max_connections,
        request_timeout_s=request_timeout_s,
        clock=clock,
    )
    return Kube(transport=transport)


class ApiSettings(Protocol):
    """The settings of a service about the API server."""

    @property
    def kubeconfig(self) -> str:
        """File; "" leaves it to the environment."""

    @property
    def master(self) -> str:
        """Address that goes before that of the kubeconfig; "" for none."""

    @property
    def kube_api_qps(self) -> float:
        """Most requests per second."""

    @property
    def kube_api_burst(self) -> int:
        """Requests that may go out at once."""

    @property
    def request_timeout(self) -> Seconds:
        """Time for one answer."""


async def kube_of(settings: ApiSettings, context: "Context", *, max_connections: int = 100) -> Kube:
    """Return the client of a service; a watch holds one of its connections."""
    return await connect(
        settings.kubeconfig or None,
        master=settings.master,
        user_agent=f"pumice-{context.service}",
        qps=settings.kube_api_qps,
        burst=settings.kube_api_burst,
        max_connections=max_connections,
        request_timeout_s=settings.request_timeout,
        clock=context.clock,
    )
