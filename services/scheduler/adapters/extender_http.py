"""HTTP requests to extenders (PL24), sent on the event loop; the worker thread waits for them.

A cycle runs in a thread of its own and may block there for as long as its configuration allows;
the loop goes on keeping leases and reading facts, and carries the request as well, so that its
time is bounded as a whole, independent of what the server does.
"""

import asyncio
from concurrent.futures import CancelledError
from typing import Final

import aiohttp

from services.scheduler.policy.plugins.extender import ExtenderUnreachable
from shared.runtime.logs import Logger
from shared.runtime.metrics import Metrics

_GRACE_S: Final = 5.0
"""How long the thread waits beyond the request's own time limit, should the loop be slow."""


class ExtenderHttp:
    """A part of the service; calling it is what the plugin does to ask."""

    name: Final = "extender-http"

    def __init__(self, *, metrics: Metrics, log: Logger) -> None:
        self._log = log
        self._loop: asyncio.AbstractEventLoop | None = None
        self._session: aiohttp.ClientSession | None = None
        self._reason: dict[str, str] = {}
        self._failures = metrics.counter(
            "pumice_scheduler_extender_failures", "Requests to extenders that failed"
        )

    async def run(self) -> None:
        """Keep connections to extenders until cancelled."""
        async with aiohttp.ClientSession(trust_env=False) as session:
            self._loop, self._session = asyncio.get_running_loop(), session
            try:
                await asyncio.Event().wait()
            finally:
                self._loop = self._session = None

    def __call__(self, url: str, body: bytes, timeout_s: float) -> bytes:
        """POST and wait, in a thread that is not the loop's. Raises `ExtenderUnreachable`."""
        loop, session = self._loop, self._session
        if loop is None or session is None:
            raise ExtenderUnreachable(f"{url}: the service is starting or stopping")
        pending = asyncio.run_coroutine_threadsafe(_post(session, url, body, timeout_s), loop)
        try:
            response_body = pending.result(timeout_s + _GRACE_S)
        except (aiohttp.ClientError, TimeoutError, CancelledError, ValueError) as error:
            pending.cancel()
            reason = f"{url}: {type(error).__name__}: {error}".rstrip(": ")
            self._failed(url, reason)
            raise ExtenderUnreachable(reason) from error
        self._reason.pop(url, None)
        return response_body

    def _failed(self, url: str, reason: str) -> None:
        self._failures.inc()
        if self._reason.get(url) != reason:
            self._log.warning("extender_failed", reason=reason)
        self._reason[url] = reason


async def _post(session: aiohttp.ClientSession, url: str, body: bytes, timeout_s: float) -> bytes:
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    headers = {"Content-Type": "application/json"}
    async with session.post(url, data=body, headers=headers, timeout=timeout) as response:
        response_body = await response.read()
        if response.status != 200:  # noqa: PLR2004 - HTTP's OK
            raise ValueError(f"HTTP {response.status}")
        return response_body
