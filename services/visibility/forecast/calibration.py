"""Bounds that learn from real starts: by how much the ones that were promised would have held.

Draws cannot know everything: a burst of jobs, a new kind of work, nodes that go. So each promised
bound is compared with the real start, and new ones are stretched, or shortened, by the factor
with which nine of ten of the latest would have held.
"""

import math
from collections import OrderedDict, deque
from typing import Final, NamedTuple

KEPT: Final = 200
"""So many of the latest starts count."""
PROMISES_MAX: Final = 20_000
"""So many jobs are waited for; the ones promised first are forgotten first."""
_ENOUGH: Final = 20
_FACTOR_MIN, _FACTOR_MAX = 0.5, 4.0
_SLACK_S: Final = 30.0
"""Added to both sides: seconds matter little."""


class _Promise(NamedTuple):
    at: float
    latest: float


class Calibration:
    """Compares promised bounds with starts."""

    def __init__(self, part: float) -> None:
        """Aim at bounds that hold for a part (0 to 1) of the jobs."""
        self._part = part
        self._promises: OrderedDict[str, _Promise] = OrderedDict()
        self._ratios: deque[float] = deque(maxlen=KEPT)

    def promised(self, key: str, now: float, latest: float) -> None:
        """Note the first bound of a job, as it was drawn; later ones are better and count not."""
        if key not in self._promises and latest < math.inf:
            self._promises[key] = _Promise(now, latest)
            if len(self._promises) > PROMISES_MAX:
                self._promises.popitem(last=False)

    def started(self, key: str, at: float) -> None:
        """Note when a job has started."""
        promise = self._promises.pop(key, None)
        if promise is not None:
            came, allowed = max(0.0, at - promise.at), max(0.0, promise.latest - promise.at)
            self._ratios.append((came + _SLACK_S) / (allowed + _SLACK_S))

    def gone(self, key: str) -> None:
        """Forget a job that will not start."""
        self._promises.pop(key, None)

    @property
    def factor(self) -> float:
        """By how much bounds are to be stretched; 1 while little is known."""
        if len(self._ratios) < _ENOUGH:
            return 1.0
        at = math.ceil(self._part * (len(self._ratios) + 1)) - 1
        return min(
            max(sorted(self._ratios)[min(at, len(self._ratios) - 1)], _FACTOR_MIN), _FACTOR_MAX
        )

    def stretched(self, now: float, median: float, latest: float) -> float:
        """Return a bound as it is to be shown; never before the median."""
        if latest == math.inf:
            return latest
        wait = self.factor * (latest - now + _SLACK_S) - _SLACK_S
        return max(median, now + wait)
