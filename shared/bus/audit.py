"""The audit compares the objects of a reader of STATE with the stream.

There are two comparisons, each by key and uid. The objects read are compared with the digests in
each marker of the cache. The objects in the service's state are compared with those read every few
minutes, at a time of the service's choice (`is_due`). Facts may be on their way, so that a
difference counts when a later look finds it again. Then STATE is to be read again, once per
interval at most.
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from shared.contracts.digests import UidIndex
from shared.contracts.messages import Fact, Marker, Op
from shared.runtime.clock import Clock
from shared.runtime.logs import Logger
from shared.runtime.metrics import Metrics

CONFIRM_S: Final = 10.0
"""Seconds for which a difference has to persist, at most the interval."""
_NAMED: Final = 5
"""Most differences that a log line names."""

LocalUids = Mapping[str, Mapping[str, str]]
"""Token of a kind → key → uid, of every object of that kind; an empty uid fits any."""


class Difference(NamedTuple):
    """An object that differs from STATE; an empty uid: it is missing on that side."""

    kind: str
    key: str
    local: str
    published: str


class AuditMetrics:
    """The metrics of the audits of one process."""

    def __init__(self, metrics: Metrics) -> None:
        self.audits = metrics.counter(
            "pumice_state_audits", "Comparisons of what a service holds with the stream STATE"
        )
        self.differences = metrics.counter(
            "pumice_state_differences",
            "Objects that differed from STATE in an audit, by kind; STATE was read again",
            ["kind"],
        )


class Audit:
    """Compares what a service holds with STATE; used on one event loop."""

    def __init__(
        self,
        kinds: Collection[str],
        *,
        interval_s: float,
        clock: Clock,
        metrics: AuditMetrics,
        log: Logger,
    ) -> None:
        """With an `interval_s` of 0 nothing is compared."""
        self._interval_s = interval_s
        self._confirm_s = min(CONFIRM_S, interval_s)
        self._clock = clock
        self._log = log
        self._metrics = metrics
        self._read: dict[str, UidIndex] = {kind: UidIndex() for kind in kinds}
        self._suspects: frozenset[Difference] = frozenset()
        self._odd: dict[str, tuple[int, float]] = {}
        """Kind → digest of the objects that only one of the two sides has, and since when."""
        self._due = self._next()
        self._resync_after = 0.0

    # --- the reader --------------------------------------------------------------------------

    def forget(self) -> None:
        """Record that STATE is read from its beginning."""
        for index in self._read.values():
            index.clear()
        self._suspects, self._odd = frozenset(), {}
        self._due = self._next()

    def take(self, fact: Fact) -> None:
        """Record a fact that was read."""
        index = self._read[fact.kind]
        if fact.op is Op.DELETE:
            index.drop(fact.key)
        else:
            index.put(fact.key, fact.uid)

    def observe(self, marker: Marker) -> str:
        """Compare the digests of a marker; return why STATE is to be read again, or ""."""
        if not self._interval_s or not marker.digests:
            return ""
        now = self._clock.monotonic()
        stays = []
        # A marker has no digest of a kind with facts in flight.
        for kind in sorted(marker.digests.keys() & self._read.keys()):
            difference = self._read[kind].difference(marker.digests[kind])
            before, since = self._odd.get(kind, (0, now))
            if difference != before:
                self._odd[kind] = (difference, now)
            elif difference and now - since >= self._confirm_s:
                stays.append(kind)
        if not stays or now < self._resync_after:
            return ""
        for kind in stays:
            self._metrics.differences.labels(kind).inc()
        return self._found(f"what was read of {', '.join(stays)} is not what STATE holds")

    # --- the service -------------------------------------------------------------------------

    def is_due(self) -> bool:
        """Tell whether it is time to compare the service's state."""
        return bool(self._interval_s) and self._clock.monotonic() >= self._due

    def left_s(self) -> float | None:
        """Return the seconds until the next comparison; None: there is none."""
        return max(self._due - self._clock.monotonic(), 0.0) if self._interval_s else None

    def read_so_far(self, kinds: Collection[str]) -> LocalUids:
        """Return a copy of the objects read of some kinds."""
        return {kind: dict(self._read[kind].uids) for kind in kinds if kind in self._read}

    def compare(
        self, local: LocalUids, read: LocalUids, *, unfolded: Collection[tuple[str, str]] = ()
    ) -> str:
        """Compare a reader's uids with those read from STATE; return why to read it again, or "".

        Facts about `unfolded` objects (kind and key) are in one of the two only.
        """
        self._metrics.audits.inc()
        skipped = frozenset(unfolded)
        found = frozenset(each for each in _differences(local, read) if each[:2] not in skipped)
        stays = sorted(found & self._suspects)
        # On a busy cluster each check finds other facts in flight, so only one is repeated soon.
        is_first = bool(found) and not self._suspects
        self._suspects = found
        self._due = self._clock.monotonic() + self._confirm_s if is_first else self._next()
        if not stays or self._clock.monotonic() < self._resync_after:
            return ""
        for each in stays:
            self._metrics.differences.labels(each.kind).inc()
        named = ", ".join(f"{each.kind} {each.key}" for each in stays[:_NAMED])
        return self._found(f"{len(stays)} objects differ from STATE: {named}")

    def _found(self, reason: str) -> str:
        self._log.error("state_differs", reason=reason)
        self._resync_after = self._clock.monotonic() + self._interval_s
        return reason

    def _next(self) -> float:
        return self._clock.monotonic() + self._interval_s


def _differences(local: LocalUids, read: LocalUids) -> list[Difference]:
    found = []
    for kind, objects in local.items():
        published = read.get(kind, {})
        for key in objects.keys() | published.keys():
            ours, theirs = objects.get(key), published.get(key)
            if ours != theirs and not (ours == "" and theirs is not None):
                found.append(Difference(kind, key, ours or "", theirs or ""))
    return found
