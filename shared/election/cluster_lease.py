"""The rules of a Lease in the cluster, as Kubernetes' own clients keep them. Pure.

A candidate never compares the times in a record with its own clock: it notes when it saw the record
change last, and takes the Lease over when that was longer ago than the record's duration. A record
without a holder is free at once.

The holder is an installation and not a process: any of its replicas finds its own name there, and
goes on with it.
"""

from typing import Final

import msgspec

_RELEASED_DURATION_S: Final = 1


class LeaseTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Times of a Lease, in seconds; each must be longer than the one after it."""

    duration_s: float = 15.0
    """How long others respect a record that does not change."""
    deadline_s: float = 10.0
    """How long the holder itself relies on its last renewal, from when that was sent."""
    retry_s: float = 2.0
    """How often a candidate reads the Lease."""

    @property
    def renew_s(self) -> float:
        """Return how often the holder renews: as often as leaves it room for a second attempt."""
        return self.deadline_s / 2


class Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The `spec` of a `coordination.k8s.io/v1` Lease."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Election:
    """One Lease as one installation sees it."""

    def __init__(
        self, identity: str, times: LeaseTimes, *, former: frozenset[str] = frozenset()
    ) -> None:
        """`former` are names that this installation had before its bus lost its data."""
        self.identity: Final = identity
        self.former: Final = former
        self._times = times
        self._seen: Record | None = None
        self._seen_at = 0.0

    def other_holder(self, found: Record | None, *, now: float) -> str:
        """Take note of a record, None when there is none; return its other holder, "" if free.

        `now` is seconds of a clock that never goes back.
        """
        if found != self._seen:
            self._seen, self._seen_at = found, now
        if found is None or found.holder_identity in (None, "", self.identity, *self.former):
            return ""
        lasts_s = found.lease_duration_seconds or self._times.duration_s
        return "" if now >= self._seen_at + lasts_s else str(found.holder_identity)

    def claim(self, found: Record | None, *, time: str) -> Record:
        """Return the record that takes or renews a Lease that is free or ours.

        `time` is the present moment as Kubernetes writes it (`MicroTime`).
        """
        transitions = (found.lease_transitions or 0) if found else 0
        ours = found is not None and found.holder_identity == self.identity
        return Record(
            holder_identity=self.identity,
            lease_duration_seconds=max(1, round(self._times.duration_s)),
            acquire_time=(found.acquire_time or time) if found and ours else time,
            renew_time=time,
            lease_transitions=transitions if ours or found is None else transitions + 1,
        )


def release(held: Record, *, time: str) -> Record:
    """Return the record that gives a Lease back: the next candidate that reads it takes it."""
    return Record(
        holder_identity=None,
        lease_duration_seconds=_RELEASED_DURATION_S,
        acquire_time=time,
        renew_time=time,
        lease_transitions=held.lease_transitions,
    )
