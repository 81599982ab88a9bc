"""Limits of requests in flight: in total (the limiter) and per node.

The limiter uses additive increase and multiplicative decrease: the API server shows its limit by
429 and slow responses, and no fixed rate fits all clusters.

First come, first served in all; those that wait for a busy node do not hold up the others, since
they queue at their node first.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec

from services.binder.metrics import BinderMetrics


class LimiterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds and thresholds of a limiter."""

    start: int = 32
    least: int = 2
    most: int = 128
    slow_s: float = 1.0
    """A slower response counts as overload."""
    hold_s: float = 0.5
    """Overloads within this time after a decrease do not decrease the limit again."""


class ConcurrencyLimiter:
    """Adapts the limit of requests in flight to the latency and the errors of the answers."""

    def __init__(self, limits: LimiterSettings) -> None:
        self._limits = limits
        self._limit = float(limits.start)
        self._held_until_s = float("-inf")

    @property
    def limit(self) -> int:
        """Return how many requests may be in flight."""
        return int(self._limit)

    def answered(self, *, latency_s: float, overloaded: bool, now_s: float) -> None:
        """Adapt the limit to an answer; `overloaded`: it was a 429, a 5xx or none at all."""
        if overloaded or latency_s > self._limits.slow_s:
            if now_s >= self._held_until_s:
                self._limit = max(self._limit / 2, float(self._limits.least))
                self._held_until_s = now_s + self._limits.hold_s
        else:
            self._limit = min(self._limit + 1 / self._limit, float(self._limits.most))


class Throttle:
    """Hands out slots; `per_node` is how many binds may be under way to one node."""

    def __init__(
        self, limiter: ConcurrencyLimiter, *, per_node: int, metrics: BinderMetrics
    ) -> None:
        self.limiter = limiter
        self._per_node = per_node
        self._metrics = metrics
        self._busy = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._nodes: dict[str, tuple[asyncio.Semaphore, int]] = {}

    @property
    def has_spare_slots(self) -> bool:
        """Return whether less than half of the slots are taken: low-priority requests may go."""
        return self._busy * 2 < self.limiter.limit

    @asynccontextmanager
    async def slot(self, node: str = "") -> AsyncGenerator[None, None]:
        """Hold a slot for the length of a block; `node` as well when it names one."""
        if not node:
            async with self._any_slot():
                yield
            return
        semaphore, users = self._nodes.get(node, (asyncio.Semaphore(self._per_node), 0))
        self._nodes[node] = (semaphore, users + 1)
        try:
            async with semaphore, self._any_slot():
                yield
        finally:
            _, users = self._nodes[node]
            if users == 1:
                del self._nodes[node]
            else:
                self._nodes[node] = (semaphore, users - 1)

    @asynccontextmanager
    async def _any_slot(self) -> AsyncGenerator[None, None]:
        await self._enter()
        try:
            yield
        finally:
            self._leave()

    async def _enter(self) -> None:
        if self._busy < self.limiter.limit and not self._waiting:
            self._take()
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave()
            raise

    def _take(self) -> None:
        self._busy += 1
        self._metrics.in_flight.set(self._busy)

    def _leave(self) -> None:
        self._busy -= 1
        while self._waiting and self._busy < self.limiter.limit:
            turn = self._waiting.popleft()
            if not turn.done():
                self._take()
                turn.set_result(None)
        self._metrics.in_flight.set(self._busy)
        self._metrics.limit.set(self.limiter.limit)
