"""How soon followers read what has come: at once while it is wanted, else in bites.

Without a pace the server hands each message on as it comes, and the process wakes for it. Followers
with one ask, once per `lag_s` and together, for all that has come meanwhile; of a stream that keeps
the last message of each subject, those that were replaced within the lag never travel. A question
ends the wait (`caught_up`), and the followers then read as messages come until none was asked for
`LASTS_S`. So a service that answers questions, and follows the bus for them alone, costs little
while it is asked nothing, and its answers are no older for it.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto
from typing import Final

from shared.runtime.clock import Clock

LAG_S: Final = 1.0
LASTS_S: Final = 5.0
"""After a question messages are read as they come for so long."""
LATE_S: Final = 2.5
"""A question waits for the followers so long at most, and then goes by what is known. A follower
takes a server for lost that is silent for as long."""


class _Way(Enum):
    """How a follower reads at a moment."""

    AWAY = auto()
    """It has no connection, or reads what was there at its beginning: it is not waited for."""
    IN_BITES = auto()
    AS_IT_COMES = auto()


class Turns:
    """The turns of one follower."""

    def __init__(self, pace: "Pace") -> None:
        self._pace = pace
        self._way = _Way.AWAY
        self._sent = 0
        self._read = 0

    def is_behind(self, question: int) -> bool:
        """Tell whether messages from before a question may be unread."""
        return self._way is _Way.IN_BITES and self._read < question

    def away(self) -> None:
        """Note that nothing is read for now."""
        self._change(_Way.AWAY)

    async def next(self, *, empty: bool) -> bool:
        """Wait until it is time to ask for more; return whether to wait for messages to come.

        `empty`: the last request found all that there was.
        """
        if empty:
            self._read = self._sent
        is_read = self._way is _Way.AS_IT_COMES or (empty and self._read == self._pace.questions)
        if is_read and self._pace.is_wanted:
            self._change(_Way.AS_IT_COMES)
            return True
        is_more = self._way is _Way.IN_BITES and not empty
        self._change(_Way.IN_BITES)
        if not is_more and self._read == self._pace.questions:
            await self._pace.rest()
        self._sent = self._pace.questions
        return False

    def _change(self, way: _Way) -> None:
        self._way = way
        self._pace.moved()


class Pace:
    """When several followers of one process read."""

    def __init__(self, clock: Clock, *, lag_s: float = LAG_S) -> None:
        self._clock = clock
        self._lag_s = lag_s
        self._followers: set[Turns] = set()
        self._wanted_until = float("-inf")
        self._wake = asyncio.Event()
        self._moved = asyncio.Event()
        self.questions: int = 0

    @property
    def is_wanted(self) -> bool:
        """Return whether messages are to be read as they come."""
        return self._clock.monotonic() < self._wanted_until

    def want(self) -> None:
        """Read messages as they come for a while, beginning now."""
        self._wanted_until = self._clock.monotonic() + LASTS_S
        self._wake.set()

    async def caught_up(self) -> None:
        """Return when the followers have taken what had come when this was called.

        A follower that is cut off is not waited for, and none for longer than `LATE_S`. One that
        reads messages as they come has them all but for those that are on their way.
        """
        self.questions += 1
        question = self.questions
        self.want()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LATE_S):
                while any(each.is_behind(question) for each in self._followers):
                    self._moved.clear()
                    await self._moved.wait()

    @contextmanager
    def follower(self) -> Iterator[Turns]:
        """Give turns to a follower for the time of the block."""
        turns = Turns(self)
        self._followers.add(turns)
        try:
            yield turns
        finally:
            self._followers.discard(turns)
            self.moved()

    async def rest(self) -> None:
        """Return at the next turn of all followers, or when messages are wanted."""
        if self.is_wanted:
            return
        self._wake.clear()
        left_s = self._lag_s - self._clock.monotonic() % self._lag_s
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left_s):
                await self._wake.wait()

    def moved(self) -> None:
        """Let questions look again at how far the followers are."""
        self._moved.set()
