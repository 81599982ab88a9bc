"""Virtual time for tests: nothing waits, and the test says when time passes."""

import asyncio
import heapq

_SETTLE_TURNS = 50


class VirtualClock:
    """A `shared.runtime.clock.Clock` whose time moves only by `advance`."""

    def __init__(self, start: float = 1_000_000.0) -> None:
        self._time = start
        self._sequence = 0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self._time

    def monotonic(self) -> float:
        return self._time

    async def sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        self._sequence += 1
        heapq.heappush(self._sleepers, (self._time + seconds, self._sequence, future))
        await future

    async def advance(self, seconds: float) -> None:
        """Let `seconds` pass: wake each sleeper at its time, and let what it starts settle."""
        await settle()
        end = self._time + seconds
        while self._sleepers and self._sleepers[0][0] <= end:
            due, _, future = heapq.heappop(self._sleepers)
            self._time = max(self._time, due)
            if not future.done():
                future.set_result(None)
            await settle()
        self._time = end
        await settle()


async def settle(turns: int = _SETTLE_TURNS) -> None:
    """Let every task that can run do so."""
    for _ in range(turns):
        await asyncio.sleep(0)
