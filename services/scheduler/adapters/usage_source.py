"""Polls the configured source of node usage and keeps its latest samples (K03, CA13).

The block `metrics` of the configuration file names the source; it counts from the next poll on
when the file changes. A source that fails is logged once per reason and counted; its last samples
stay, with their times, until they are too old for the plugins that read them.
"""

from collections.abc import Callable, Mapping
from typing import Final

import aiohttp

from services.scheduler.adapters.usage_apis import BadReply, MetricsRequest, UsageApi, api_of
from services.scheduler.config import MetricsOption
from services.scheduler.policy.states.usage import NodeUsage
from shared.runtime.env import Env

_ANSWER_S: Final = 10.0
_IDLE_S: Final = 1.0
"""How often to look for a change of the configured source."""


class UsageStore:
    """Holds the latest samples; written by the loop, read by the worker thread."""

    def __init__(self) -> None:
        self._samples: Mapping[str, NodeUsage] | None = None

    def put(self, samples: Mapping[str, NodeUsage]) -> None:
        """Replace all samples at once."""
        self._samples = samples

    def latest(self) -> Mapping[str, NodeUsage] | None:
        """Return the samples, None if there are none yet; a mapping is never changed."""
        return self._samples


class UsageSource:
    """A part of the service that queries the source once per interval."""

    name: Final = "usage-source"

    def __init__(self, option: Callable[[], MetricsOption], store: UsageStore, env: Env) -> None:
        self._option = option
        self._store = store
        self._clock = env.clock
        self._log = env.log
        self._reason = ""
        self._nodes = env.metrics.gauge(
            "pumice_scheduler_usage_nodes", "Nodes in the last response of the usage source"
        )
        self._answered_at = env.metrics.gauge(
            "pumice_scheduler_usage_timestamp_seconds", "When the usage source last answered"
        )
        self._failures = env.metrics.counter(
            "pumice_scheduler_usage_failures", "Polls of the usage source that failed"
        )

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            option = self._option()
            api = api_of(option)
            if api is not None:
                await self._poll(option, api)
            elif self._store.latest():
                self._store.put({})
            await self._wait_interval(option)

    async def _wait_interval(self, option: MetricsOption) -> None:
        """Wait for the interval, or until the configuration names another source."""
        end = self._clock.monotonic() + (option.interval_s if option.type else _IDLE_S)
        while self._option() == option and (left := end - self._clock.monotonic()) > 0:
            await self._clock.sleep(min(left, _IDLE_S))

    async def _poll(self, option: MetricsOption, api: UsageApi) -> None:
        now = self._clock.now()
        try:
            samples = api.samples(await self._query(option, api), now)
        except (aiohttp.ClientError, TimeoutError, BadReply) as error:
            self._failed(option, f"{type(error).__name__}: {error}".rstrip(": "))
            return
        if self._reason:
            self._log.info("usage_source_recovered", source=option.type, address=option.address)
        self._reason = ""
        self._store.put(samples)
        self._nodes.set(len(samples))
        self._answered_at.set(now)

    def _failed(self, option: MetricsOption, reason: str) -> None:
        self._failures.inc()
        if reason != self._reason:
            self._log.warning(
                "usage_source_failed", source=option.type, address=option.address, reason=reason
            )
        self._reason = reason

    async def _query(self, option: MetricsOption, api: UsageApi) -> list[bytes]:
        headers = {}
        if option.username:
            headers["Authorization"] = aiohttp.encode_basic_auth(option.username, option.password)
        timeout = aiohttp.ClientTimeout(total=_ANSWER_S)
        connector = aiohttp.TCPConnector(ssl=not option.insecure)
        async with aiohttp.ClientSession(
            timeout=timeout, headers=headers, connector=connector, trust_env=False
        ) as session:
            return [
                await self._reply(session, option.address, request) for request in api.requests()
            ]

    @staticmethod
    async def _reply(
        session: aiohttp.ClientSession, address: str, request: MetricsRequest
    ) -> bytes:
        async with session.request(
            request.method, address + request.path, params=request.params, json=request.body
        ) as response:
            body = await response.read()
            if response.status != 200:  # noqa: PLR2004 - HTTP's OK
                text = body[:200].decode(errors="replace")
                raise BadReply(f"HTTP {response.status}: {' '.join(text.split())}")
            return body
