"""Decayed usage: amount·seconds that count half after each half-life.

An amount `a` that was held from `s` to `e` counts at a later time `t`, with half-life `h`, as

    ∫ a · 2^(-(t - x)/h) dx  from s to e  =  a · h/ln 2 · (2^(-(t - e)/h) - 2^(-(t - s)/h))

The sum over allocations needs no history: a total decays as a whole, and what is held adds to it.
Source: Slurm's PriorityDecayHalfLife, Volcano's plugin `fairshare`.
"""

import math


def decay(elapsed_s: float, half_life_s: float) -> float:
    """Return the fraction of a usage that counts `elapsed_s` later."""
    return math.pow(2.0, -elapsed_s / half_life_s)


def held_seconds(elapsed_s: float, half_life_s: float) -> float:
    """Return the decayed seconds of an allocation that began `elapsed_s` ago and has not ended.

    A negative span returns the negative of what its allocation will have used by then.
    """
    return -half_life_s / math.log(2.0) * math.expm1(-elapsed_s / half_life_s * math.log(2.0))


class DecayedTotal:
    """The decayed usage of one resource by one user; allocations may be reported late."""

    __slots__ = ("_at", "_half_life_s", "_held", "_used")

    def __init__(self, half_life_s: float, *, at: float = 0.0, used: float = 0.0) -> None:
        """Start with a usage in amount·seconds that is decayed to `at` (Unix seconds)."""
        self._half_life_s = half_life_s
        self._at = at
        self._used = used
        self._held = 0.0

    @property
    def held(self) -> float:
        """Return the amount of the allocations that have not ended."""
        return self._held

    def start(self, amount: float, when: float) -> None:
        """Add an allocation that starts, or started, at a time (Unix seconds)."""
        self._held += amount
        self._used += amount * held_seconds(self._at - when, self._half_life_s)

    def end(self, amount: float, when: float) -> None:
        """End an allocation of this amount at a time (Unix seconds)."""
        self.start(-amount, when)

    def at(self, now: float) -> float:
        """Return the usage in amount·seconds, decayed to `now` (Unix seconds)."""
        elapsed_s = now - self._at
        kept = self._used * decay(elapsed_s, self._half_life_s)
        self._used = kept + self._held * held_seconds(elapsed_s, self._half_life_s)
        self._at = now
        return self._used
