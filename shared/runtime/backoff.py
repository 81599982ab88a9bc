"""Growing, capped and jittered delays between attempts.

Jitter keeps replicas that failed together from coming back together. Used by the work queue, by
list/watch, by reconnects and by the binder's retries.
"""

import random
from typing import Final

from shared.model.backoff import delay_s

LONGEST_OF_COSTLY_S: Final = 300.0
"""The longest delay after an attempt that itself took long, in seconds."""


class Backoff:
    """Delays of one retried operation, each longer than the one before.

    The n-th delay (from 0) is `first_s * 2**n`, at most `cap_s`, then moved by up to
    ± `jitter` (a share of it) drawn from `rng`, and again at most `cap_s`.
    """

    def __init__(
        self,
        *,
        first_s: float = 0.1,
        cap_s: float = 30.0,
        jitter: float = 0.2,
        rng: random.Random,
    ) -> None:
        assert 0 < first_s <= cap_s, "a ladder starts above zero and below its cap"
        assert 0 <= jitter < 1, "jitter is a share of the delay"
        self._first_s = first_s
        self._cap_s = cap_s
        self._jitter = jitter
        self._rng = rng
        self.attempts = 0

    def delay_s(self, attempt: int, *, took_s: float = 0.0) -> float:
        """Return the delay after the `attempt`-th failure (from 0); counts no attempt.

        An operation that fails after `took_s` seconds has kept the API server busy for so long.
        From the second failure on it waits `attempt` times as long, up to `LONGEST_OF_COSTLY_S`.
        """
        own_s = delay_s(attempt, first_s=self._first_s, cap_s=self._cap_s)
        swing = 1 + self._jitter * (2 * self._rng.random() - 1)
        costly_s = min(attempt * took_s * swing, LONGEST_OF_COSTLY_S)
        return max(min(own_s * swing, self._cap_s), costly_s)

    def next_s(self) -> float:
        """Return the next delay, and count an attempt."""
        delay_s = self.delay_s(self.attempts)
        self.attempts += 1
        return delay_s

    def reset(self) -> None:
        """Start again with the shortest delay, after a success."""
        self.attempts = 0
