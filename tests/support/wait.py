"""Waiting for a condition instead of sleeping: the only clock that tests on real servers use."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

_T = TypeVar("_T")


@overload
async def until(
    probe: Callable[[], Awaitable[_T | None]],
    *,
    deadline_s: float = ...,
    describe: str | Callable[[], str] = ...,
    every_s: float = ...,
) -> _T: ...


@overload
async def until(
    probe: Callable[[], _T | None],
    *,
    deadline_s: float = ...,
    describe: str | Callable[[], str] = ...,
    every_s: float = ...,
) -> _T: ...


async def until(
    probe: Callable[[], Any],
    *,
    deadline_s: float = 30.0,
    describe: str | Callable[[], str] = "the condition",
    every_s: float = 0.02,
) -> Any:
    """Return the first truthy answer of `probe`, which may be a plain or an async function.

    Fails with `describe` (text, or a function that makes it then) and the last answer seen when
    `deadline_s` passes; a condition that comes costs no more for a later one, and the default is
    for processes that start on a busy machine. An exception of the probe is an answer like any
    other: what is asked may not be there yet.
    """
    end = time.monotonic() + deadline_s
    last: object = None
    while True:
        try:
            answer = probe()
            if isinstance(answer, Awaitable):
                async with asyncio.timeout(max(0.1, end - time.monotonic())):
                    answer = await answer
            if answer:
                return answer
            last = answer
        except AssertionError:
            raise
        except Exception as exc:  # noqa: BLE001 - shown when the deadline passes
            last = exc
        if time.monotonic() > end:
            what = describe if isinstance(describe, str) else describe()
            raise AssertionError(f"{what}: not within {deadline_s:g} s; last seen: {last!r}")
        await asyncio.sleep(every_s)
