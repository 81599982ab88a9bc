"""How many requests may be under way at once: additive increase, multiplicative decrease.

The API server tells its limit by 429 and by answering slowly; a fixed rate would be wrong on
every cluster but one.
"""

import msgspec


class PaceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds and thresholds of a pace."""

    start: int = 32
    least: int = 2
    most: int = 128
    slow_s: float = 1.0
    """An answer that took longer counts as a sign of overload."""
    hold_s: float = 0.5
    """Signs within this time of a decrease belong to the same overload."""


class Pace:
    """The present limit; told of each answer."""

    def __init__(self, limits: PaceLimits) -> None:
        self._limits = limits
        self._limit = float(limits.start)
        self._held_until_s = float("-inf")

    @property
    def limit(self) -> int:
        """Return how many requests may be under way."""
        return int(self._limit)

    def answered(self, *, latency_s: float, overloaded: bool, now_s: float) -> None:
        """Take note of an answer; `overloaded`: it was a 429, a 5xx or none at all."""
        if overloaded or latency_s > self._limits.slow_s:
            if now_s >= self._held_until_s:
                self._limit = max(self._limit / 2, float(self._limits.least))
                self._held_until_s = now_s + self._limits.hold_s
        else:
            self._limit = min(self._limit + 1 / self._limit, float(self._limits.most))
