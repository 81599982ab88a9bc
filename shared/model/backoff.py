"""Delays between attempts: exponential, with a cap."""

from typing import Final

_LARGEST_EXPONENT: Final = 64
"""After so many attempts every delay has reached its cap; the power would only overflow."""


def delay_s(attempt: int, *, first_s: float, cap_s: float, factor: float = 2.0) -> float:
    """Return the seconds to wait after the `attempt`-th failure (from 0).

    `first_s * factor**attempt`, at most `cap_s`. `shared.runtime.backoff` adds jitter.
    """
    return min(first_s * factor ** min(attempt, _LARGEST_EXPONENT), cap_s)
