"""Requests side by side, a bounded number at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from shared.runtime.errors import Conflict, PumiceError, Retryable


async def all_of(requests: Sequence[Callable[[], Awaitable[None]]], *, width: int) -> None:
    """Run `requests`, `width` at a time; then raise the worst failure, if there was any.

    A failure does not keep the others from being tried, but a server that is away is not asked any
    further.
    """
    failures: list[PumiceError] = []
    rest = iter(requests)

    async def work() -> None:
        for request in rest:
            try:
                await request()
            except PumiceError as error:
                failures.append(error)
                if isinstance(error, Retryable):
                    return

    async with asyncio.TaskGroup() as group:
        for number in range(min(width, len(requests))):
            group.create_task(work(), name=f"write-{number}")
    for severity in (Retryable, Conflict, PumiceError):
        for failure in failures:
            if isinstance(failure, severity):
                raise failure
