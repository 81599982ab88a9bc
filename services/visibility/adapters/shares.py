"""Fair shares: a bounded number of slots, divided fairly between the users of visibility.

A user takes a free slot. Without a free one, the user with most slots loses the one taken last if
the requesting user has at least two fewer. A user with one watch therefore always gets it, and
users within their share cannot be displaced.
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
    """Return the name under which a user's slots are counted.

    Service accounts of one namespace count together: who may write there can make any number.
    """
    if user.name.startswith(_SERVICE_ACCOUNT):
        return user.name.rpartition(":")[0]
    return user.name


class Displaced(ApiFailure):
    """The slot went to another user, whose share it is."""


class FairShares:
    """A number of slots, by the users who have them."""

    def __init__(self, most: int, what: str) -> None:
        """Offer `most` slots; `what` names their use in an error message, such as "watches"."""
        self._max_slots = most
        self._what = what
        self._taken: dict[str, list[asyncio.Timeout]] = {}
        """Holder → its slots, in the order in which they were taken."""

    @property
    def taken(self) -> int:
        """Return how many slots are taken."""
        return sum(map(len, self._taken.values()))

    @asynccontextmanager
    async def slot(self, user: User) -> AsyncIterator[None]:
        """Take a slot for the block. Raises ApiFailure (429) without one, or `Displaced`."""
        holder = holder_of(user)
        if self.taken >= self._max_slots:
            self._displace_for(holder)
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._taken.setdefault(holder, []).append(limit)
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
        """Take the last slot of the user with most. Raises ApiFailure if that user has too few."""
        most = max(self._taken, key=lambda each: (len(self._taken[each]), each))
        if len(self._taken[most]) < len(self._taken.get(holder, ())) + 2:
            raise ApiFailure(
                TOO_MANY,
                f"{self._max_slots} {self._what} are open, and {holder} has its share of them",
                retry_after_s=_RETRY_AFTER_S,
            )
        last = self._taken[most][-1]
        self._release(most, last)
        last.reschedule(asyncio.get_running_loop().time())

    def _release(self, holder: str, limit: asyncio.Timeout) -> None:
        in_use = self._taken.get(holder, [])
        if limit in in_use:
            in_use.remove(limit)
        if not in_use:
            self._taken.pop(holder, None)


class QueryTurns:
    """Costly queries: a bounded number waits, and one per user runs."""

    def __init__(self, most: int) -> None:
        self._slots = FairShares(most, "queries that take long")
        self._running: dict[str, asyncio.Lock] = {}
        self._using: dict[str, int] = {}

    @asynccontextmanager
    async def turn(self, user: User) -> AsyncIterator[None]:
        """Wait until no other query of the user runs. Raises ApiFailure (429)."""
        holder = holder_of(user)
        async with self._slots.slot(user):
            self._using[holder] = self._using.get(holder, 0) + 1
            try:
                async with self._running.setdefault(holder, asyncio.Lock()):
                    yield
            finally:
                self._using[holder] -= 1
                if not self._using[holder]:
                    del self._using[holder], self._running[holder]
