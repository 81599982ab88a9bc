"""Fair shares: a bounded number of slots, divided fairly between the users of visibility.

A user takes what is free. When nothing is free, the user who holds most gives up the place that was
taken last, if the one who asks holds at least two fewer. So a user with one watch gets it
whatever another one holds, and nobody can drive out those who hold no more than their share.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from services.visibility.api.statuses import TOO_MANY, ApiFailure
from services.visibility.api.users import User

_SERVICE_ACCOUNT: Final = "system:serviceaccount:"
_RETRY_AFTER_S: Final = 5


def holder_of(user: User) -> str:
    """Return the name under which a user's places are counted.

    Service accounts of one namespace count together: who may write there can make any number.
    """
    if user.name.startswith(_SERVICE_ACCOUNT):
        return user.name.rpartition(":")[0]
    return user.name


class Displaced(ApiFailure):
    """A place that another user has got, whose share it is."""


class FairShares:
    """A number of places, by the users who hold them."""

    def __init__(self, most: int, what: str) -> None:
        """Offer `most` places; `what` names in a refusal what takes one, such as "watches"."""
        self._most = most
        self._what = what
        self._held: dict[str, list[asyncio.Timeout]] = {}
        """Holder → the places, in the order in which they were taken."""

    @property
    def taken(self) -> int:
        """Return how many places are held."""
        return sum(map(len, self._held.values()))

    @asynccontextmanager
    async def place(self, user: User) -> AsyncIterator[None]:
        """Hold a place during the block. Raises ApiFailure (429) without one, or `Displaced`."""
        holder = holder_of(user)
        if self.taken >= self._most:
            self._displace_for(holder)
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._held.setdefault(holder, []).append(limit)
                try:
                    yield
                finally:
                    self._release(holder, limit)
        except TimeoutError as error:
            if not limit.expired():
                raise
            text = f"other users have got the share of {self._what} that is theirs"
            raise Displaced(TOO_MANY, text, retry_after_s=_RETRY_AFTER_S) from error

    def _displace_for(self, holder: str) -> None:
        """End the last place of the one who holds most. Raises ApiFailure if that is no more."""
        most = max(self._held, key=lambda each: (len(self._held[each]), each))
        if len(self._held[most]) < len(self._held.get(holder, ())) + 2:
            raise ApiFailure(
                TOO_MANY,
                f"{self._most} {self._what} are open, and {holder} has its share of them",
                retry_after_s=_RETRY_AFTER_S,
            )
        last = self._held[most][-1]
        self._release(most, last)
        last.reschedule(asyncio.get_running_loop().time())

    def _release(self, holder: str, limit: asyncio.Timeout) -> None:
        in_use = self._held.get(holder, [])
        if limit in in_use:
            in_use.remove(limit)
        if not in_use:
            self._held.pop(holder, None)


class QueryTurns:
    """Costly queries: a bounded number waits, and one per user runs."""

    def __init__(self, most: int) -> None:
        self._places = FairShares(most, "questions that take long")
        self._running: dict[str, asyncio.Lock] = {}
        self._using: dict[str, int] = {}

    @asynccontextmanager
    async def turn(self, user: User) -> AsyncIterator[None]:
        """Wait until no other query of the user runs. Raises ApiFailure (429)."""
        holder = holder_of(user)
        async with self._places.place(user):
            self._using[holder] = self._using.get(holder, 0) + 1
            try:
                async with self._running.setdefault(holder, asyncio.Lock()):
                    yield
            finally:
                self._using[holder] -= 1
                if not self._using[holder]:
                    del self._using[holder], self._running[holder]
