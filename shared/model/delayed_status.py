"""When a status is written that need not be written at once. Pure.

The rule of scheduler, binder and controller:

1. Each write costs a request, and every watcher reads it.
2. So only what others wait for is written at once: a new phase, and what ends a job.
3. Everything else is held back: conditions, counters, sums of queues, explanations.
4. A newer status of the same object replaces the one that is held back, and one write does for all.
5. A held status is due when it has been desired unchanged for its delay.
6. One that keeps changing is due after a longest time, counted from the first change.
7. The delay grows with the number of statuses that wait at the moment, up to a limit: under load
   pods come before their counters.
8. A status that is no longer desired is forgotten and never written.
9. A held status does not count as written: its owner desires it again on each pass, or keeps the
   message, so that the last one is always written.
10. Each write starts a new delay.

A status on the bus expires. `DueTimes` says when to publish it again as long as it is needed.

Times `now` are seconds of the caller's clock.
"""

import heapq
from typing import Final, NamedTuple

import msgspec

PATIENCE: Final = 10
"""A status that keeps changing is written after this many times its delay."""


class DelayedStatus(NamedTuple):
    """A status that is held back."""

    status: object
    """What is compared; equal ones need one write."""
    unchanged_since: float
    first_at: float
    """When the object was first to get another status than it shows."""

    def is_due(self, *, now: float, delay_s: float, longest_s: float = float("inf")) -> bool:
        """Return whether to write it: unchanged for `delay_s`, or held for `longest_s`."""
        return now - self.unchanged_since >= delay_s or now - self.first_at >= longest_s

    def left_s(self, *, now: float, delay_s: float) -> float:
        """Return in how many seconds it is due if it does not change."""
        return max(0.0, self.unchanged_since + delay_s - now)


def hold(before: DelayedStatus | None, status: object, *, now: float) -> DelayedStatus:
    """Return the status that is held back now, after the one that was held back `before`."""
    if before is None:
        return DelayedStatus(status, now, now)
    return (
        before if before.status == status else before._replace(status=status, unchanged_since=now)
    )


class BacklogDelay(msgspec.Struct, frozen=True, kw_only=True):
    """How long a status is held back."""

    first_s: float
    """The delay when no other status waits."""
    doubled_by: int
    """So many that wait add `first_s` once more."""
    longest_s: float

    def behind(self, waiting: int) -> float:
        """Return the delay in seconds behind `waiting` others."""
        return min(self.first_s * (1.0 + waiting / self.doubled_by), self.longest_s)


class DueTimes:
    """Keys with the time at which each is due; a key has one time."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def set(self, key: str, at: float) -> None:
        """Have a key due at `at`, and at no other time."""
        self._at[key] = at
        heapq.heappush(self._heap, (at, key))

    def take(self, *, now: float) -> list[str]:
        """Return the keys that are due by `now`, in order, and forget their times."""
        due = []
        while self._heap and self._heap[0][0] <= now:
            at, key = heapq.heappop(self._heap)
            if self._at.get(key) == at:
                del self._at[key]
                due.append(key)
        return due

    def clear(self) -> None:
        """Forget all keys."""
        self._at.clear()
        self._heap.clear()
