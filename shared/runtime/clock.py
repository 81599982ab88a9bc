"""Time as an argument: the one place that reads the system's clocks.

Everything that waits or measures takes a `Clock`, so that tests run on virtual time
(`tests/support/clock.py`) and nothing hidden decides.
"""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for what people and other machines read, monotonic time for intervals."""

    def now(self) -> float:
        """Return the wall time in Unix seconds; it may jump."""
        ...

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start; never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` (at once, yet yielding, if not positive)."""
        ...


class SystemClock:
    """The real clock of this machine."""

    def now(self) -> float:
        """Return the wall time in Unix seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Return the system's monotonic time in seconds."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep on the running loop."""
        await asyncio.sleep(max(seconds, 0.0))
