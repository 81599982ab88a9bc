"""Growing, capped and jittered delays between attempts.

Jitter keeps replicas that failed together from coming back together. Used by the work queue, by
list/watch, by reconnects and by the binder's retries.
"""

import random
from typing import Final

_LARGEST_EXPONENT: Final = 64
"""Beyond it every ladder has long reached its cap; the power would only overflow."""


class Backoff:
    """A ladder of delays for one retried thing.

    The n-th delay (from 0) is `first_s * factor**n`, at most `cap_s`, then moved by up to
    ± `jitter` (a share of it) drawn from `rng`, and again at most `cap_s`.
    """

    def __init__(
        self,
        *,
        first_s: float = 0.1,
        cap_s: float = 30.0,
        factor: float = 2.0,
        jitter: float = 0.2,
        rng: random.Random,
    ) -> None:
        assert 0 < first_s <= cap_s, "a ladder starts above zero and below its cap"
        assert factor >= 1, "a ladder never falls"
        assert 0 <= jitter < 1, "jitter is a share of the delay"
        self._first_s = first_s
        self._cap_s = cap_s
        self._factor = factor
        self._jitter = jitter
        self._rng = rng
        self.attempts = 0

    def delay_s(self, attempt: int) -> float:
        """Return the delay after the `attempt`-th failure (from 0) without moving the ladder."""
        rung = self._first_s * self._factor ** min(attempt, _LARGEST_EXPONENT)
        swing = 1 + self._jitter * (2 * self._rng.random() - 1)
        return min(min(rung, self._cap_s) * swing, self._cap_s)

    def next_s(self) -> float:
        """Return the next delay and climb one rung."""
        delay_s = self.delay_s(self.attempts)
        self.attempts += 1
        return delay_s

    def reset(self) -> None:
        """Start again from the lowest rung, after a success."""
        self.attempts = 0
