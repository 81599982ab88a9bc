"""Which jobs this replica may act on: those of the partitions that it holds.

`owns` is asked before each look. A partition that is to be given up waits for the looks under way,
so that the next owner never acts beside us.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from shared.contracts.subjects import partition_of
from shared.runtime.clock import Clock

PARTITIONS: Final = 16
"""Enough for every replica of a handful to have a fair share."""
_CALM_S: Final = 5.0
_CALM_POLL_S: Final = 0.02


class Ownership:
    """The partitions held, and the looks under way in each."""

    def __init__(self, *, clock: Clock, partitions: int = PARTITIONS) -> None:
        self._clock = clock
        self._partitions = partitions
        self._held: set[int] = set()
        self._looks: dict[int, int] = dict.fromkeys(range(partitions), 0)
        self._on_change: list[Callable[[int], None]] = []

    def on_change(self, told: Callable[[int], None]) -> None:
        """Have `told` called with each partition that comes or goes."""
        self._on_change.append(told)

    def owns(self, key: str) -> bool:
        """Whether this replica may act on `key`."""
        return self.partition(key) in self._held

    def partition(self, key: str) -> int:
        """Return the partition of `key`."""
        return partition_of(key, self._partitions)

    @contextmanager
    def looking(self, key: str) -> Iterator[None]:
        """Keep the partition of `key` from being given up for the length of a block."""
        partition = self.partition(key)
        self._looks[partition] += 1
        try:
            yield
        finally:
            self._looks[partition] -= 1

    async def hold(self, partition: int) -> None:
        """Hold a partition until cancelled, then until its looks are over: a body of Partitions."""
        self._held.add(partition)
        self._tell(partition)
        try:
            await asyncio.Event().wait()
        finally:
            self._held.discard(partition)
            self._tell(partition)
            await self._calm(partition)

    async def _calm(self, partition: int) -> None:
        """Return when no look is under way; a write that hangs ends by its own time-out."""
        deadline = self._clock.monotonic() + _CALM_S
        while self._looks[partition] and self._clock.monotonic() < deadline:
            await self._clock.sleep(_CALM_POLL_S)

    def _tell(self, partition: int) -> None:
        for told in self._on_change:
            told(partition)
