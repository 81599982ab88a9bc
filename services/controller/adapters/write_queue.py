"""The queue in which all writes of a controller wait for a slot among its requests under way.

Pods of a gang are of no use before the gang is whole. So their creations are served gang after
gang, in the order in which the gangs came to be made, which is the order in which the scheduler
admitted them; scheduling and binding of the first run beside the creation of the next. Everything
else goes first: it is little, and often what frees room. A large gang is queued anew after each
`ROUND` pods, so that small gangs behind it need not wait for all of it, and it for them.
"""

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Final, NamedTuple

ROUND: Final = 256
"""Pods after which a gang is queued anew."""


class Rank(NamedTuple):
    """Place in the queue; the least is served first."""

    round: int
    gang: int


FIRST: Final = Rank(-1, 0)


class WriteQueue:
    """Bounds how many requests are under way, and says which is next."""

    def __init__(self, width: int) -> None:
        self._free = width
        self._waiting: list[tuple[Rank, int, asyncio.Future[None]]] = []
        self._numbers = count()
        self._gangs = count()
        self._round = 0
        """The round that is being served: a gang that comes now begins with it."""

    def ranks(self) -> "Ranks":
        """Return the places in the queue of a gang's pods, from now on."""
        return Ranks(self._round, next(self._gangs))

    @asynccontextmanager
    async def slot(self, rank: Rank = FIRST) -> AsyncIterator[None]:
        """Wait for a place among the requests under way, and leave it at the end."""
        await self._enter(rank)
        try:
            yield
        finally:
            self._leave()

    async def _enter(self, rank: Rank) -> None:
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (rank, next(self._numbers), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave()  # the place was given just now
            raise

    def _leave(self) -> None:
        while self._waiting:
            rank, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                self._round = max(self._round, rank.round)
                turn.set_result(None)
                return
        self._free += 1


class Ranks:
    """Gives the pods of one gang their ranks, in the order in which they are asked for."""

    def __init__(self, begin: int, gang: int) -> None:
        self._begin = begin
        self._gang = gang
        self._pods = count()

    def next(self) -> Rank:
        """Return the rank of the next pod."""
        return Rank(self._begin + next(self._pods) // ROUND, self._gang)
