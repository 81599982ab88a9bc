"""A bound on how often sockets wake a process while processors are scarce.

A message that arrives alone costs its reader a wake-up, a read, and a write of what follows from
it; that write wakes the next process for one message again. Network cards have the remedy
(interrupt moderation): a process that is woken too often rests for some milliseconds, and then
reads all messages that have come in one go. The rest costs time, which is won back only where work
waits for a processor anyway. So a process rests only when hardly any processor was idle in the last
second, and after a number of wake-ups that are free: a few gangs pass at once even then. Timers are
never late, and ready callbacks never wait.
"""

import asyncio
import math
import selectors
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from typing_extensions import override

_FREE_S: Final = 4.0
"""The wake-ups of so many seconds may come at once."""
_REST_MOST_S: Final = 0.1
"""Longest rest before a wake-up, whatever the rate: answers about leases arrive at sockets, too."""
_LOOK_S: Final = 1.0
"""Time over which the idle share of processors is taken."""
_IDLE: Final = 0.1
"""Processors are scarce below this idle share."""
_STAT: Final = Path("/proc/stat")

Ready = list[tuple[selectors.SelectorKey, int]]


class Ticks(NamedTuple):
    """Time of all processors together since the machine began, in the kernel's ticks."""

    idle: int
    all: int


def read_ticks() -> Ticks | None:
    """Return what Linux counts (proc(5)), of the whole machine; None where nothing is counted."""
    try:
        first = _STAT.read_text("ascii").partition("\n")[0]
    except OSError:
        return None
    ticks = [int(word) for word in first.split()[1:9]]  # user … steal; guests are in user
    return Ticks(idle=ticks[3] + ticks[4], all=sum(ticks))


class Processors:
    """Tells whether the machine's processors were scarce of late. Times are seconds."""

    def __init__(self, read: Callable[[], Ticks | None] = read_ticks) -> None:
        self._read = read
        self._seen: Ticks | None = None
        self._at = -math.inf
        self._scarce = False

    def scarce(self, now: float) -> bool:
        """Look at most once a second; False before the second look."""
        if now - self._at >= _LOOK_S:
            seen, self._seen, self._at = self._seen, self._read(), now
            self._scarce = bool(
                seen
                and self._seen
                and self._seen.idle - seen.idle < _IDLE * (self._seen.all - seen.all)
            )
        return self._scarce


class WakeupLimit:
    """Lets `per_second` wake-ups through while processors are scarce, else all of them.

    Ten a second pass at any rate, and those of four seconds may come at once. Times are seconds of
    one clock that never goes back.
    """

    def __init__(self, per_second: float, processors: Processors) -> None:
        self._interval_s = min(1 / per_second, _REST_MOST_S)
        self._ahead_s = max(0.0, _FREE_S - self._interval_s)
        self._processors = processors
        self._due = 0.0

    def rest_s(self, now: float) -> float:
        """Return how long to rest before the next wake-up."""
        rest_s = self._due - self._ahead_s - now
        return rest_s if rest_s > 0 and self._processors.scarce(now) else 0.0

    def woken(self, now: float) -> None:
        """Count a wake-up; those that were not bound count no further than the limit."""
        self._due = min(max(self._due, now), now + self._ahead_s) + self._interval_s


class LimitedSelector(selectors.DefaultSelector):
    """The system's selector, whose waits for sockets end no more often than a limit allows."""

    def __init__(
        self,
        limit: WakeupLimit,
        *,
        now: Callable[[], float] = time.monotonic,
        rest: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__()
        self._limit = limit
        self._now = now
        self._rest = rest

    @override
    def select(self, timeout: float | None = None) -> Ready:
        """Wait for sockets as `selectors` has it; a timeout of 0 only looks, and never rests."""
        if timeout is not None and timeout <= 0:
            return super().select(timeout)
        rest_s = self._limit.rest_s(self._now())
        if timeout is not None:
            rest_s = min(rest_s, timeout)
            timeout -= rest_s
        if rest_s > 0:
            self._rest(rest_s)
        ready = super().select(timeout)
        if ready:
            self._limit.woken(self._now())
        return ready


def loop_factory(per_second: float) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes an event loop with this limit for `asyncio.Runner`; 0: no bound."""
    if per_second <= 0:
        return None
    return lambda: asyncio.SelectorEventLoop(LimitedSelector(WakeupLimit(per_second, Processors())))
