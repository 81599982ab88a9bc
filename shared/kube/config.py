"""`connect`: from settings to a `Kube`, the only place that wires this package together."""

import os
from collections.abc import Mapping

from shared.kube.client import Kube
from shared.kube.credentials import Source
from shared.kube.sources import find_source
from shared.kube.transport import RateLimiter, open_transport
from shared.runtime.clock import Clock, SystemClock


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

    Loads credentials, which may run a plugin, but sends nothing: a server that is away shows in
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
        limiter=RateLimiter(qps=qps, burst=burst),
        max_connections=max_connections,
        request_timeout_s=request_timeout_s,
        clock=clock,
    )
    return Kube(transport=transport)
