"""How soon followers read new messages: at once (live) while queries come, else in batches.

Without a pace the server sends each message at once, and the process wakes for it. Followers with a
pace ask together, once per `lag_s`, for all new messages; of a stream that keeps the last message
of each subject, those that were replaced within the lag are never sent. A query ends the wait
(`caught_up`), and the followers then read live until no query came for `LIVE_S`. After some minutes
without a query nothing is read at all (`Activity`); the next query waits until all messages are
read that came meanwhile. So a service that follows the bus only to answer queries
costs nothing while no query comes, and its results are as current as without a pace.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto
from typing import Final

from shared.runtime.clock import Clock

LAG_S: Final = 1.0
LIVE_S: Final = 5.0
"""For this long after a query messages are read live."""
RESUME_S: Final = 20.0
"""The first query after a pause waits at most this long for the followers."""
CATCH_UP_S: Final = 2.5
"""A query waits at most this long for the followers, then it uses what was read. A follower
counts a server as lost that was silent for as long."""


class _Mode(Enum):
    """How a follower reads at a moment."""

    DETACHED = auto()
    """It has no connection, or reads what was stored before it began: no query waits for it."""
    BATCHES = auto()
    LIVE = auto()


class Activity:
    """Whether a query arrived in the last `active_s`; the start of the process counts as one."""

    def __init__(self, clock: Clock, *, active_s: float) -> None:
        self._clock = clock
        self._active_s = active_s
        self._until = clock.monotonic() + active_s
        self._asked = asyncio.Event()
        self.resumed_at = float("-inf")
        """Monotonic seconds at which the last pause ended."""

    @property
    def is_active(self) -> bool:
        """Return whether a query arrived within `active_s`."""
        return self._clock.monotonic() < self._until

    @property
    def resumes(self) -> bool:
        """Return whether a pause has ended within the last `RESUME_S`."""
        return self._clock.monotonic() < self.resumed_at + RESUME_S

    def note(self) -> None:
        """Record a query."""
        if not self.is_active:
            self.resumed_at = self._clock.monotonic()
        self._until = self._clock.monotonic() + self._active_s
        self._asked.set()

    async def wait(self) -> None:
        """Return at once while active, else at the next query."""
        while not self.is_active:
            self._asked.clear()
            await self._asked.wait()


class FollowerPace:
    """When one follower reads."""

    def __init__(self, pace: "Pace") -> None:
        self._pace = pace
        self._mode = _Mode.DETACHED
        self._sent = 0
        self._read = 0

    def is_behind(self, request: int) -> bool:
        """Tell whether messages from before a query may be unread."""
        return self._mode is _Mode.BATCHES and self._read < request

    def detach(self) -> None:
        """Record that nothing is read for now: there is no connection, or it begins again.

        After a pause that is to be expected: the server has removed the consumer meanwhile.
        """
        if not (self._pace.resumes and self._mode is _Mode.BATCHES):
            self._change(_Mode.DETACHED)

    async def next(self, *, empty: bool) -> bool:
        """Wait until it is time to ask for more; return whether to wait for messages to come.

        `empty`: the last request found all that there was.
        """
        if empty:
            self._read = self._sent
        is_read = self._mode is _Mode.LIVE or (empty and self._read == self._pace.requests)
        if is_read and self._pace.is_live:
            self._change(_Mode.LIVE)
            return True
        is_more = self._mode is _Mode.BATCHES and not empty
        self._change(_Mode.BATCHES)
        if not is_more and self._read == self._pace.requests:
            await self._pace.next_batch()
        self._sent = self._pace.requests
        return False

    def _change(self, mode: _Mode) -> None:
        self._mode = mode
        self._pace.progressed()


class Pace:
    """When several followers of one process read."""

    def __init__(
        self, clock: Clock, *, lag_s: float = LAG_S, activity: Activity | None = None
    ) -> None:
        """Without an `activity`, messages are read also while no query comes."""
        self._clock = clock
        self._lag_s = lag_s
        self.activity: Final = activity
        self._followers: set[FollowerPace] = set()
        self._live_until = float("-inf")
        self._wake = asyncio.Event()
        self._progress = asyncio.Event()
        self.requests: int = 0
        self.paused: int = 0
        """Followers that read nothing because there are no queries."""

    @property
    def is_live(self) -> bool:
        """Return whether messages are to be read live."""
        return self._clock.monotonic() < self._live_until

    @property
    def resumes(self) -> bool:
        """Return whether a pause has just ended."""
        return self.activity is not None and self.activity.resumes

    def read_live(self) -> None:
        """Read messages live for a while, beginning now."""
        if self.activity is not None:
            self.activity.note()
        self._live_until = self._clock.monotonic() + LIVE_S
        self._wake.set()

    async def caught_up(self) -> None:
        """Return when the followers have read what was stored when this was called.

        No query waits for a detached follower, nor for any longer than `CATCH_UP_S`, after a
        pause `RESUME_S`. One that reads live has all messages but for those that are on their way.
        """
        self.requests += 1
        self.read_live()
        await self.settled()

    async def settled(self) -> None:
        """Return when the followers have read what the latest query needs."""
        request = self.requests
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RESUME_S if self.resumes else CATCH_UP_S):
                while any(each.is_behind(request) for each in self._followers):
                    self._progress.clear()
                    await self._progress.wait()

    @contextmanager
    def follower(self) -> Iterator[FollowerPace]:
        """Register a follower for the time of the block."""
        follower = FollowerPace(self)
        self._followers.add(follower)
        try:
            yield follower
        finally:
            self._followers.discard(follower)
            self.progressed()

    async def next_batch(self) -> None:
        """Return when the next batch is due, or when messages are to be read live."""
        await self._end_of_pause()
        if not self.is_live:
            await self._tick()

    async def next_look(self) -> None:
        """Return when a reader that no query waits for is to look for new messages.

        That is `lag_s` later, or at the next query.
        """
        if not await self._end_of_pause():
            await self._tick()

    async def _end_of_pause(self) -> bool:
        """Wait while there are no queries; return whether it waited."""
        if self.activity is None or self.activity.is_active:
            return False
        self.paused += 1
        try:
            await self.activity.wait()
        finally:
            self.paused -= 1
        return True

    async def _tick(self) -> None:
        self._wake.clear()
        left_s = self._lag_s - self._clock.monotonic() % self._lag_s
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left_s):
                await self._wake.wait()

    def progressed(self) -> None:
        """Have waiting queries check again how far the followers are."""
        self._progress.set()
