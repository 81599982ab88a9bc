"""Ownership of jobs: a replica acts on the jobs of the partitions that it holds.

`owns` is checked before each reconciliation. A partition is given up only after the reconciliations
in progress have ended, so the next owner never acts at the same time. When a partition is lost,
reconciliations in progress must not write any more (`check`, called before each write).
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from shared.contracts.streams import JOB_PARTITIONS
from shared.contracts.subjects import partition_of
from shared.election.partition_elector import PartitionElector
from shared.runtime.clock import Clock
from shared.runtime.errors import Retryable

_DRAIN_S: Final = 5.0
_DRAIN_POLL_S: Final = 0.02
_RECONCILING: Final[ContextVar[tuple[int, int] | None]] = ContextVar("reconciling", default=None)
"""Partition of the key that is reconciled, and how often it had been lost at the beginning."""


class PartitionOwnership:
    """The partitions held, and the reconciliations under way in each."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._held: set[int] = set()
        self._under_way: dict[int, int] = dict.fromkeys(range(JOB_PARTITIONS), 0)
        self._losses: dict[int, int] = dict.fromkeys(range(JOB_PARTITIONS), 0)
        self._on_change: list[Callable[[int], None]] = []

    def on_change(self, call: Callable[[int], None]) -> None:
        """Register `call`, which is called with each partition that comes or goes."""
        self._on_change.append(call)

    def owns(self, key: str) -> bool:
        """Whether this replica may act on `key`."""
        return self.partition(key) in self._held

    def partition(self, key: str) -> int:
        """Return the partition of `key`."""
        return partition_of(key, JOB_PARTITIONS)

    @contextmanager
    def reconciling(self, key: str) -> Iterator[None]:
        """Keep the partition of `key` from being given up for the length of a block."""
        partition = self.partition(key)
        self._under_way[partition] += 1
        before = _RECONCILING.set((partition, self._losses[partition]))
        try:
            yield
        finally:
            _RECONCILING.reset(before)
            self._under_way[partition] -= 1

    def lose(self, partition: int) -> None:
        """Record the loss of a partition: reconciliations of its keys must not write any more."""
        self._losses[partition] += 1

    def check(self) -> None:
        """Raise Retryable when this reconciliation has lost its partition meanwhile."""
        current = _RECONCILING.get()
        if current is not None and self._losses[current[0]] != current[1]:
            raise Retryable(f"partition {current[0]} was taken away during this look")

    async def hold(self, partition: int) -> None:
        """Hold a partition until cancelled, then until its reconciliations end."""
        self._held.add(partition)
        self._notify(partition)
        try:
            await asyncio.Event().wait()
        finally:
            self._held.discard(partition)
            self._notify(partition)
            await self._drain(partition)

    async def _drain(self, partition: int) -> None:
        """Return when no reconciliation is in progress; a hanging write ends by its timeout."""
        deadline = self._clock.monotonic() + _DRAIN_S
        while self._under_way[partition] and self._clock.monotonic() < deadline:
            await self._clock.sleep(_DRAIN_POLL_S)

    def _notify(self, partition: int) -> None:
        for call in self._on_change:
            call(partition)


class OwnedPartitions:
    """Holds this replica's share of the partitions for as long as the service runs."""

    name: Final = "partitions"

    def __init__(self, partitions: PartitionElector, ownership: PartitionOwnership) -> None:
        self._partitions = partitions
        self._ownership = ownership

    async def run(self) -> None:
        """Hold a fair share until cancelled."""
        await self._partitions.run(self._ownership.hold)
