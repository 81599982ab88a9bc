"""Fenced publishes to a copied stream: one at a time, in the order in which they were submitted.

A stream on one server compares each publish with what is stored. One that is copied to several
servers refuses a publish as long as another on the same condition is on its way to the copies, and
all publishes of a leader bear the same one. The first refusal of that kind ends the leader's term,
as any refusal does, and tells this process that the stream is copied: from then on its publishes
wait for each other. One that is refused all the same met another process's and is sent again.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from shared.bus.errors import SequenceInFlight
from shared.runtime.clock import Clock

AGAIN_S: Final = 0.01
GIVE_UP_S: Final = 2.0

_T = TypeVar("_T")


class Lane:
    """The order of this process's fenced publishes to one stream."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._turn = asyncio.Lock()
        self.single = False
        """Whether they go one at a time."""

    async def one(self, publish: Callable[[], Awaitable[_T]]) -> _T:
        """Publish once those before have been answered. Raises what `publish` raises."""
        async with self._turn:
            give_up_at = self._clock.monotonic() + GIVE_UP_S
            while True:
                try:
                    return await publish()
                except SequenceInFlight:
                    if self._clock.monotonic() >= give_up_at:
                        raise
                await self._clock.sleep(AGAIN_S)
