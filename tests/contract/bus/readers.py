"""Reads a follower or puller in a task, so that a test can wait for what has come."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from types import TracebackType
from typing import Any, Self

from shared.bus.values import CaughtUp, Idle, Message, Reset, Started
from tests.support.wait import until


class Reader:
    """Collects the items of an async generator while inside `async with`."""

    def __init__(self, items: AsyncGenerator[Any, None], *, each: Callable | None = None) -> None:
        self._items = items
        self._each = each
        self.items: list[Any] = []

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _read(self) -> None:
        async for item in self._items:
            if isinstance(item, Idle):
                continue
            self.items.append(item)
            if self._each is not None:
                await self._each(item)

    @property
    def messages(self) -> list[Message]:
        return [m for item in self.items if isinstance(item, list) for m in item]

    @property
    def payloads(self) -> list[bytes]:
        return [m.payload for m in self.messages]

    @property
    def current(self) -> list[bytes]:
        """Return the payloads since the last Reset, which tells a reader to forget the rest."""
        resets = [at for at, item in enumerate(self.items) if isinstance(item, Reset)]
        items = self.items[resets[-1] if resets else 0 :]
        return [m.payload for item in items if isinstance(item, list) for m in item]

    def of(self, kind: type) -> list[Any]:
        return [item for item in self.items if isinstance(item, kind)]

    async def has(self, count: int, kind: type, *, deadline_s: float = 10.0) -> list[Any]:
        await until(
            lambda: len(self.of(kind)) >= count,
            deadline_s=deadline_s,
            describe=f"{count} of {kind.__name__} (task {self._task})",
        )
        return self.of(kind)

    async def until_seen(self, payload: bytes, *, deadline_s: float = 10.0) -> None:
        await until(
            lambda: payload in self.payloads,
            deadline_s=deadline_s,
            describe=f"message {payload!r}",
        )

    @property
    def shape(self) -> list[str]:
        """The kinds of items in order, adjacent lists merged."""
        names: list[str] = []
        for item in self.items:
            name = type(item).__name__
            if not (name == "list" and names[-1:] == ["list"]):
                names.append(name)
        return names


__all__ = ["CaughtUp", "Reader", "Reset", "Started"]
