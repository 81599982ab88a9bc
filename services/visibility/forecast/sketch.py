"""A sketch of durations: counts in buckets whose bounds grow by a constant factor.

The law: a quantile differs by at most `ERROR` of itself from the one that a sorted list of the same
durations gives, between one second and a year. Memory is bounded by the number of buckets between
the two, some 180. Old durations fade: when many have come, all counts are halved.
"""

import math
from bisect import bisect_left, bisect_right
from operator import neg
from typing import Final, NamedTuple

ERROR: Final = 0.05
"""Relative error of a quantile, unless a sketch is given another."""
LEAST_S: Final = 1.0
MAX_S: Final = 365 * 86_400.0
COUNT_MAX: Final = 500.0
"""Durations that a sketch stands for at most; beyond it all counts are halved."""
_NEAR: Final = range(-3, 4)
"""Buckets that count as about as long."""
AROUND: Final = len(_NEAR) * math.log((1 + ERROR) / (1 - ERROR))
"""Logarithm of the ratio of the longest to the shortest of durations that are about as long."""
_HALF_WEIGHT_COUNT: Final = 20.0
"""An autocorrelation that rests on so many durations counts by half."""
_AUTOCORRELATION_MAX: Final = 0.8
_COUNT_MIN: Final = 1e-3


class _Tail(NamedTuple):
    """The buckets in use, the shortest durations first."""

    indexes: list[int]
    behind: list[float]
    """Counts of each bucket and of all longer ones; a zero at the end."""


class Sketch:
    """Durations of one kind of job, in seconds."""

    __slots__ = (
        "_before",
        "_count_max",
        "_counts",
        "_log_growth",
        "_squares",
        "_sum",
        "_tail",
        "count",
    )

    def __init__(self, error: float = ERROR, count_max: float = COUNT_MAX) -> None:
        self._count_max = count_max
        self._log_growth = math.log((1 + error) / (1 - error))
        self._before: float | None = None
        """Bucket of the last duration."""
        self._sum = 0.0
        self._squares = [0.0, 0.0]
        """Sums of products of each bucket with itself, and with the one before it."""
        self._counts: dict[int, float] = {}
        self._tail: _Tail | None = None
        self.count = 0.0
        """How many durations it stands for."""

    def __len__(self) -> int:
        """Return the number of buckets in use."""
        return len(self._counts)

    def add(self, seconds: float) -> None:
        """Count a duration in."""
        self.add_at(self.place(seconds))

    def add_at(self, place: float) -> None:
        """Count a duration in whose `place` is known."""
        if self.count >= self._count_max:
            self._decay()
        index = math.ceil(place)
        self._counts[index] = self._counts.get(index, 0.0) + 1.0
        self.count += 1.0
        self._tail = None
        self._sum += place
        self._squares[0] += place * place
        self._squares[1] += place * (place if self._before is None else self._before)
        self._before = place

    @property
    def autocorrelation(self) -> float:
        """Correlation of durations that follow each other, 0 at least.

        Of their logarithms, and less where it rests on few durations.
        """
        if not self.count:
            return 0.0
        mean = self._sum / self.count
        alone, pairs = (squares / self.count - mean * mean for squares in self._squares)
        if alone < 1e-6:  # noqa: PLR2004 - all in one place
            return 0.0
        autocorrelation = pairs / alone * self.count / (self.count + _HALF_WEIGHT_COUNT)
        return min(max(autocorrelation, 0.0), _AUTOCORRELATION_MAX)

    def quantile(self, part: float) -> float:
        """Return the duration that a part (0 to 1) of all do not exceed; 0 when empty."""
        rank, passed, index = part * max(self.count - 1.0, 0.0), 0.0, None
        for index, count in sorted(self._counts.items()):  # noqa: B007 - the last one is the answer
            passed += count
            if passed > rank:
                break
        if index is None:
            return 0.0
        return 2.0 * self._bound(index) / (math.exp(self._log_growth) + 1.0)

    def around(self, place: float) -> float:
        """Return the part (0 to 1) of the durations that are about as long as one at `place`."""
        if not self.count:
            return 0.0
        at, count_of, near = math.ceil(place), self._counts.get, 0.0
        for index in range(at + _NEAR.start, at + _NEAR.stop):
            near += count_of(index, 0.0)
        return near / self.count

    def beyond(self, elapsed: float) -> float:
        """Return the part (0 to 1) of the durations that are longer than `elapsed`."""
        return self._beyond(elapsed) / self.count if self.count else 0.0

    def draw(self, at: float, *, elapsed: float = 0.0) -> float | None:
        """Return a duration from `at` in [0, 1), given that it is longer than `elapsed`.

        None when no duration was so long. Within a bucket durations are spread evenly by logarithm.
        """
        longer = self._beyond(elapsed)
        if longer <= 0.0:
            return None
        rank = (1.0 - at) * longer
        tail = self._sorted()
        # `behind` falls: the last bucket from which on there are at least `wanted`.
        found = max(bisect_right(tail.behind, -rank, key=neg) - 1, 0)
        count = tail.behind[found] - tail.behind[found + 1]
        part = (tail.behind[found] - rank) / count
        return max(self._bound(tail.indexes[found] - 1 + part), elapsed)

    def _beyond(self, elapsed: float) -> float:
        """Return how many durations are longer."""
        tail, place = self._sorted(), self.place(elapsed) if elapsed > 0 else -math.inf
        at = bisect_left(tail.indexes, place)
        if at == len(tail.indexes):
            return 0.0
        count = tail.behind[at] - tail.behind[at + 1]
        return tail.behind[at + 1] + count * min(1.0, tail.indexes[at] - place)

    def _sorted(self) -> _Tail:
        if self._tail is None:
            indexes = sorted(self._counts)
            behind = [0.0]
            for index in reversed(indexes):
                behind.append(behind[-1] + self._counts[index])
            self._tail = _Tail(indexes, behind[::-1])
        return self._tail

    def _decay(self) -> None:
        halved = {index: count / 2.0 for index, count in self._counts.items()}
        self._counts = {index: count for index, count in halved.items() if count > _COUNT_MIN}
        self.count = sum(self._counts.values())
        self._sum /= 2.0
        self._squares = [squares / 2.0 for squares in self._squares]

    def place(self, seconds: float) -> float:
        """Return the bucket of a duration, with the place in it as a fraction below.

        It is the same for all sketches of one error.
        """
        return math.log(min(max(seconds, LEAST_S), MAX_S)) / self._log_growth

    def _bound(self, index: float) -> float:
        """Return the longest duration of a bucket."""
        return math.exp(index * self._log_growth)
