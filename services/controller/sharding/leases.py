"""The Leases of schedulers for the sharding controller: which they are, and if one has run out.

A candidate for a Lease judges by its own clock since when a record has not changed, and so is it
here. Pure.
"""

from typing import Final

import msgspec

from shared.api import keys
from shared.api.scheduling import NodeShard
from shared.model.election import LeaseTimes, Record

TIMES: Final = LeaseTimes()


class Place(msgspec.Struct, frozen=True):
    """Where a Lease is."""

    namespace: str
    name: str


def place_of(shard: NodeShard) -> Place | None:
    """Return the Lease under which the scheduler of a NodeShard acts, as far as it says so."""
    namespace, _, rest = shard.metadata.annotations.get(keys.TENURE, "").partition("/")
    name, _, tenure = rest.partition("/")
    return Place(namespace, name) if tenure else None


class Watch:
    """One Lease as it was seen from look to look. Pure."""

    def __init__(self) -> None:
        self._seen: Record | None = None
        self._since: float | None = None
        self.was_renewed = False
        """Whether it has changed since the first look."""

    def look(self, record: Record, *, now: float) -> None:
        """Take note of a record; `now` is seconds of a clock that never goes back."""
        if self._since is None or record != self._seen:
            self.was_renewed = self._since is not None
            self._seen, self._since = record, now

    def write(self, record: Record) -> None:
        """Take note of what was written here: its end was waited for already."""
        self._seen, self._since, self.was_renewed = record, float("-inf"), False

    def has_run_out(self, *, now: float) -> bool:
        """Return whether it was not renewed for so long that its holder no longer acts."""
        if self._seen is None or self._since is None:
            return False
        lasts_s = max(TIMES.duration_s, self._seen.lease_duration_seconds or 0)
        return now >= self._since + lasts_s
