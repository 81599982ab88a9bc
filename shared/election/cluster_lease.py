"""The rules of a Lease in the API server, as client-go's leader election keeps them. Pure.

A candidate never compares the times in a record with its own clock. It notes when it saw the record
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


class LeaseSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The `spec` of a `coordination.k8s.io/v1` Lease."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class ObservedLease:
    """Since when a Lease has not changed, by the observer's own clock.

    Times `now` are seconds of a clock that never goes back.
    """

    def __init__(self) -> None:
        self._spec: LeaseSpec | None = None
        self._changed_at: float | None = None
        self.was_renewed = False
        """Whether it has changed since it was observed first."""

    def observe(self, spec: LeaseSpec | None, *, now: float) -> None:
        """Record the Lease, None when there is none."""
        if self._changed_at is None or spec != self._spec:
            self.was_renewed = self._changed_at is not None
            self._spec, self._changed_at = spec, now

    def note_own_write(self, spec: LeaseSpec) -> None:
        """Record what this process wrote: the former holder's time has run out already."""
        self._spec, self._changed_at, self.was_renewed = spec, float("-inf"), False

    def age_s(self, *, now: float) -> float:
        """Return for how long it has not changed."""
        return 0.0 if self._changed_at is None else now - self._changed_at


class LeaseCandidate:
    """One Lease as a candidate installation sees it."""

    def __init__(
        self, identity: str, times: LeaseTimes, *, former: frozenset[str] = frozenset()
    ) -> None:
        """`former` are names that this installation had before its bus lost its data."""
        self.identity: Final = identity
        self.former: Final = former
        self._times = times
        self._observed = ObservedLease()

    def other_holder(self, found: LeaseSpec | None, *, now: float) -> str:
        """Record the Lease, None when there is none; return its other holder, "" if free.

        `now` is seconds of a clock that never goes back.
        """
        self._observed.observe(found, now=now)
        if found is None or found.holder_identity in (None, "", self.identity, *self.former):
            return ""
        lasts_s = found.lease_duration_seconds or self._times.duration_s
        return "" if self._observed.age_s(now=now) >= lasts_s else str(found.holder_identity)

    def acquired(self, found: LeaseSpec | None, *, time: str) -> LeaseSpec:
        """Return the record that takes or renews a Lease that is free or ours.

        `time` is the present moment as Kubernetes writes it (`MicroTime`).
        """
        transitions = (found.lease_transitions or 0) if found else 0
        ours = found is not None and found.holder_identity == self.identity
        return LeaseSpec(
            holder_identity=self.identity,
            lease_duration_seconds=max(1, round(self._times.duration_s)),
            acquire_time=(found.acquire_time or time) if found and ours else time,
            renew_time=time,
            lease_transitions=transitions if ours or found is None else transitions + 1,
        )


def released(held: LeaseSpec, *, time: str) -> LeaseSpec:
    """Return the record that releases a Lease: the next candidate that reads it takes it."""
    return LeaseSpec(
        holder_identity=None,
        lease_duration_seconds=_RELEASED_DURATION_S,
        acquire_time=time,
        renew_time=time,
        lease_transitions=held.lease_transitions,
    )
