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

`DelayedStatuses` carries this rule out. A status on the bus expires; `DueTimes` says when to
publish it again as long as it is needed.

Times `now` are seconds of the caller's clock.
"""

import heapq
from typing import Final, NamedTuple

import msgspec
from typing_extensions import override

PATIENCE: Final = 10
"""A status that keeps changing is written after this many times its delay."""


_STALE_MAX: Final = 64
"""Entries of keys that have another time by now, beside as many as there are keys."""


class DelayedStatus(NamedTuple):
    """A status that is held back."""

    status: object
    """What is compared; equal ones need one write."""
    unchanged_since: float
    first_at: float
    """When the object was first to get another status than it shows."""

    def due_at(self, delay_s: float, longest_s: float) -> float:
        """Return when it will have been unchanged for `delay_s`, or held back for `longest_s`."""
        settled_at, longest_at = self.unchanged_since + delay_s, self.first_at + longest_s
        return settled_at if settled_at < longest_at else longest_at  # noqa: FURB136 - min is slow

    def left_s(self, *, now: float, delay_s: float, longest_s: float = float("inf")) -> float:
        """Return in how many seconds to write it; 0.0 is now."""
        return max(0.0, self.due_at(delay_s, longest_s) - now)

    def is_due(self, *, now: float, delay_s: float, longest_s: float = float("inf")) -> bool:
        """Return whether to write it now."""
        return self.left_s(now=now, delay_s=delay_s, longest_s=longest_s) == 0.0


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

    @property
    def entries(self) -> int:
        """Return how many entries it keeps, those of former times included."""
        return len(self._heap)

    def set(self, key: str, at: float) -> None:
        """Have a key due at `at`, and at no other time."""
        if self._at.get(key) == at:
            return
        self._at[key] = at
        heapq.heappush(self._heap, (at, key))
        if len(self._heap) > 2 * len(self._at) + _STALE_MAX:
            self._heap = [(at, key) for key, at in self._at.items()]
            heapq.heapify(self._heap)

    def take(self, *, now: float) -> list[str]:
        """Return the keys that are due by `now`, in order, and forget their times."""
        due = []
        while self._heap and self._heap[0][0] <= now:
            at, key = heapq.heappop(self._heap)
            if self._at.get(key) == at:
                del self._at[key]
                due.append(key)
        return due

    def discard(self, key: str) -> None:
        """Forget the time of a key if it has one."""
        self._at.pop(key, None)

    def clear(self) -> None:
        """Forget all keys."""
        self._at.clear()
        self._heap.clear()


class DelayedStatuses:
    """The statuses that are held back, by the key of their object. `len` is how many wait.

    A status is held back until the caller forgets it: because it is written, or because it is no
    longer desired.
    """

    def __init__(self) -> None:
        self._held: dict[str, DelayedStatus] = {}
        self._before: dict[str, DelayedStatus] = {}
        """Those of the last pass, which count if they are held again."""

    def __len__(self) -> int:
        return len(self._held)

    def hold(
        self,
        key: str,
        status: object,
        *,
        now: float,
        delay_s: float,
        longest_s: float = float("inf"),
    ) -> float:
        """Hold a status back; return in how many seconds to write it, 0.0 if it is due.

        It replaces the status that is held back for the same object. An equal one changes nothing.
        """
        held = self._before.pop(key, None) or self._held.get(key)
        if held is None or held.status != status:
            held = hold(held, status, now=now)
        self._held[key] = held
        due_at = held.due_at(delay_s, longest_s)
        return due_at - now if due_at > now else 0.0

    def forget(self, key: str) -> None:
        """Forget the status of an object: it is written, or no longer desired."""
        self._held.pop(key, None)
        self._before.pop(key, None)

    def begin_pass(self) -> None:
        """Forget the statuses that were not held since the last pass began.

        For an owner that desires all its statuses again on each pass.
        """
        self._before, self._held = self._held, {}


class ExpiringStatuses(DelayedStatuses):
    """Statuses that are also forgotten when their time has come (`forget_due`)."""

    def __init__(self) -> None:
        super().__init__()
        self._due = DueTimes()

    @override
    def hold(
        self,
        key: str,
        status: object,
        *,
        now: float,
        delay_s: float,
        longest_s: float = float("inf"),
    ) -> float:
        left_s = super().hold(key, status, now=now, delay_s=delay_s, longest_s=longest_s)
        self._due.set(key, now + left_s)
        return left_s

    @override
    def forget(self, key: str) -> None:
        super().forget(key)
        self._due.discard(key)

    def forget_due(self, *, now: float) -> None:
        """Forget the statuses that are due: others write them."""
        for key in self._due.take(now=now):
            del self._held[key]
