"""Waiting for a condition instead of sleeping: the only clock that tests on real servers use."""

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, TypeVar, overload

_T = TypeVar("_T")
_TICK_S: Final = 0.05
_LOOK_S: Final = 0.02
_ASK_S: Final = 0.05


class Stopwatch:
    """Seconds in which this process could run: of a longer stall only two ticks count.

    A machine that is busy with something else, or was stopped for a while, makes servers late, too.
    So a limit on them is told apart from a limit on the machine.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._looked_at = time.monotonic()

    async def run(self, most_s: float = math.inf) -> None:
        """Count up to so many seconds."""
        while self.seconds < most_s:
            await asyncio.sleep(_TICK_S)
            now = time.monotonic()
            self.seconds += min(now - self._looked_at, 2 * _TICK_S)
            self._looked_at = now


@contextlib.asynccontextmanager
async def stopwatch() -> AsyncIterator[Stopwatch]:
    """Count seconds for the length of a block."""
    watch = Stopwatch()
    counting = asyncio.create_task(watch.run())
    try:
        yield watch
    finally:
        counting.cancel()


@contextlib.asynccontextmanager
async def within(limit_s: float) -> AsyncIterator[None]:
    """End a block by TimeoutError that takes longer than `limit_s` by a stopwatch."""

    async def expire(scope: asyncio.Timeout) -> None:
        await Stopwatch().run(limit_s)
        scope.reschedule(asyncio.get_running_loop().time())

    async with asyncio.timeout(None) as scope:
        expiring = asyncio.create_task(expire(scope))
        try:
            yield
        finally:
            expiring.cancel()


@overload
async def until(
    probe: Callable[[], Awaitable[_T | None]],
    *,
    deadline_s: float = ...,
    describe: str | Callable[[], str] = ...,
    every_s: float | None = ...,
) -> _T: ...


@overload
async def until(
    probe: Callable[[], _T | None],
    *,
    deadline_s: float = ...,
    describe: str | Callable[[], str] = ...,
    every_s: float | None = ...,
) -> _T: ...


async def until(
    probe: Callable[[], Any],
    *,
    deadline_s: float = 30.0,
    describe: str | Callable[[], str] = "the condition",
    every_s: float | None = None,
) -> Any:
    """Return the first truthy answer of `probe`, which may be a plain or an async function.

    Fails with `describe` (text, or a function that makes it then) and the last answer seen when
    `deadline_s` passes by a stopwatch; a condition that comes costs no more for a later one, and
    the default is for processes that start on a busy machine. An exception of the probe is an
    answer like any other: what is asked may not be there yet. A probe that asks a server is called
    less often than one that looks.
    """
    last: object = None
    pause_s = _LOOK_S if every_s is None else every_s
    async with stopwatch() as watch:
        while True:
            try:
                answer = probe()
                if isinstance(answer, Awaitable):
                    pause_s = _ASK_S if every_s is None else every_s
                    async with within(max(0.1, deadline_s - watch.seconds)):
                        answer = await answer
                if answer:
                    return answer
                last = answer
            except AssertionError:
                raise
            except Exception as exc:  # noqa: BLE001 - shown when the deadline passes
                last = exc
            if watch.seconds > deadline_s:
                what = describe if isinstance(describe, str) else describe()
                raise AssertionError(f"{what}: not within {deadline_s:g} s; last seen: {last!r}")
            await asyncio.sleep(pause_s)
