"""The queue of all writes of a controller, with a limit on concurrent requests.

Pods of a gang are useless before the gang is complete. So pods are created gang after gang, in the
order in which the scheduler admitted the gangs; the first gang is scheduled and bound while the
next one is created. All other writes go first: they are few, and often free resources. Each round
takes `ROUND` pods of a namespace: its other pods, of a large gang or of many small ones, are queued
again behind those of other namespaces. A large gang likewise does not hold up the small ones behind
it, and it waits for none of them.
"""

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Final, NamedTuple

ROUND: Final = 256
"""Pods of a gang, and of a namespace, in one round."""


class WriteRank(NamedTuple):
    """Rank in the queue; the smallest is served first."""

    round: int
    gang: int


FIRST: Final = WriteRank(-1, 0)


class WriteQueue:
    """Limits concurrent requests, and selects the next one."""

    def __init__(self, width: int) -> None:
        self._free = width
        self._waiting: list[tuple[WriteRank, int, asyncio.Future[None]]] = []
        self._numbers = count()
        self._gangs = count()
        self._round = 0
        """The round that is being served: a gang that comes now begins with it, or later."""
        self._shares: dict[str, NamespaceShare] = {}
        """Per namespace the round in which its next gang begins; none that is past."""

    def ranks(self, namespace: str) -> "Ranks":
        """Return the source of ranks for the pods of a gang."""
        share = self._shares.get(namespace)
        if share is None or share.round < self._round:
            self._shares = {n: s for n, s in self._shares.items() if s.round >= self._round}
            share = self._shares[namespace] = NamespaceShare(self._round)
        elif share.pods > ROUND:
            share.round, share.pods = share.round + 1, 0
        return Ranks(share, next(self._gangs))

    @asynccontextmanager
    async def slot(self, rank: WriteRank = FIRST) -> AsyncIterator[None]:
        """Hold one of the request slots for the length of the block."""
        await self._enter(rank)
        try:
            yield
        finally:
            self._leave()

    async def _enter(self, rank: WriteRank) -> None:
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (rank, next(self._numbers), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave()  # the slot was assigned just now
            raise

    def _leave(self) -> None:
        while self._waiting:
            rank, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                self._round = max(self._round, rank.round)
                turn.set_result(None)
                return
        self._free += 1


class NamespaceShare:
    """Number of pods of a namespace in one round."""

    def __init__(self, number: int) -> None:
        self.round = number
        self.pods = 0


class Ranks:
    """Ranks for the pods of one gang, in the order of the calls."""

    def __init__(self, share: NamespaceShare, gang: int) -> None:
        self._share = share
        self._begin = share.round
        self._gang = gang
        self._pods = count()

    def next(self) -> WriteRank:
        """Return the rank of the next pod."""
        later = next(self._pods) // ROUND
        if not later and self._share.round == self._begin:
            self._share.pods += 1
        return WriteRank(self._begin + later, self._gang)
