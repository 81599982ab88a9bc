"""Whether this installation may act in the cluster, as the services that write learn it.

The cache's leader holds Leases in the API server that other installations and Volcano respect
(`installation_elector`), and says so in each marker (`messages.ClusterLeaseStatus`). A service that
reads the markers keeps an `InstallationLeadership`. It relies on a Lease for the time that the
marker gives it, by its own clock, and no longer: until then no other installation can have taken
it. So a service that receives no more markers stops by itself.

A decision travels with the leadership term in which it was made (`TERM_HEADER`). What was decided
before another installation had the Lease is not carried out afterwards.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import msgspec

from shared.contracts.messages import ClusterLeaseStatus, Marker
from shared.runtime.clock import Clock
from shared.runtime.errors import Retryable
from shared.runtime.health import ReadinessGate
from shared.runtime.logs import Logger

TERM_HEADER: Final = "Pumice-Leadership-Term"
"""Header of intents and desired statuses: the leadership term in which they were decided."""

_NO_MARKER_YET: Final = "the cache has not reported yet which installation may write"
_TERM_OF_WORK: Final[ContextVar[str]] = ContextVar("leadership_term", default="")
"""The term in which the present work was decided."""


class InstallationLeadership:
    """One Lease, for a service that acts only while the installation holds it."""

    def __init__(
        self,
        role: str,
        *,
        required: bool = True,
        clock: Clock,
        gate: ReadinessGate | None = None,
        log: Logger,
    ) -> None:
        """`role` is the key in `Marker.leases`; unless `required`, no Lease is needed to act."""
        self._role = role
        self._required = required
        self._clock = clock
        self._gate = gate
        self._log = log
        self._free = not required
        self._term = ""
        self._until = 0.0
        self._holder = ""
        self._lease = ""
        self._reason = _NO_MARKER_YET
        self._on_change: list[Callable[[], None]] = []
        self._was_held = self._free
        self._marker_came = asyncio.Event()
        self._show()

    def on_change(self, call: Callable[[], None]) -> None:
        """Register `call` for each change of `held` that a marker brings."""
        self._on_change.append(call)

    @property
    def held(self) -> bool:
        """Return whether this service may act at this moment."""
        return self._free or self._clock.monotonic() < self._until

    @property
    def lost(self) -> bool:
        """Return whether another holder is known."""
        return not self._free and bool(self._holder)

    @property
    def term(self) -> str:
        """Return the name of this leadership term, "" if no Lease is needed."""
        return "" if self._free else self._term

    @property
    def signature(self) -> str:
        """Return `<namespace>/<name>/<term>` for annotations, "" if no Lease is needed."""
        return "" if self._free else f"{self._lease}/{self._term}"

    def observe(self, marker: Marker) -> None:
        """Take the state of the Lease from a marker of the cache's leader."""
        if not self._required:
            return
        self._was_held = self._was_held and self.held  # its time may have run out unseen
        leases = marker.leases
        status = None if leases is msgspec.UNSET else leases.get(self._role)
        self._free = status is None
        if status is not None:
            self._take(status)
        if self.held != self._was_held:
            self._was_held = self.held
            if self._was_held:
                self._log.info("cluster_lease_acquired", lease=self._lease, term=self.term)
            else:
                self._log.warning("cluster_lease_lost", lease=self._lease, reason=self.why_not())
            for call in self._on_change:
                call()
        self._marker_came.set()
        self._show()

    async def settled(self) -> None:
        """Return once it is known which installation may act."""
        while not (self.held or self.lost):
            self._marker_came.clear()
            await self._marker_came.wait()

    def _take(self, status: ClusterLeaseStatus) -> None:
        self._lease, self._holder = status.lease, status.holder
        self._reason = status.reason or _NO_MARKER_YET
        if status.left_s > 0:
            self._term = status.term
            self._until = self._clock.monotonic() + status.left_s
        elif status.holder:
            self._until = 0.0

    def why_not(self) -> str:
        """Return one line for a person, "" while this service may act."""
        if self.held:
            return ""
        if self._holder:
            return f"lease {self._lease} is held by {self._holder}"
        return f"lease {self._lease}: {self._reason}" if self._lease else self._reason

    def refusal(self, term: str) -> str:
        """Return why what was decided in the term `term` must not be done, "" if it may.

        To be asked once it is known which installation may act (`settled`).
        """
        if self.lost:
            return self.why_not()
        if term and self.term not in ("", term):
            return f"lease {self._lease} was another's since this was decided"
        return ""

    @contextmanager
    def working(self, term: str) -> Iterator[None]:
        """Do in this block what was decided in the term `term`, for `check`."""
        before = _TERM_OF_WORK.set(term)
        try:
            yield
        finally:
            _TERM_OF_WORK.reset(before)

    def check(self) -> None:
        """Raise Retryable when a write must not go out now: asked before each of them."""
        reason = self.why_not() or self.refusal(_TERM_OF_WORK.get())
        if reason:
            raise Retryable(reason)

    def _show(self) -> None:
        if self._gate is not None:
            reason = self.why_not()
            if (self._gate.ok, self._gate.reason) != (not reason, reason):
                self._gate.set(not reason, reason)


def term_of(headers: Mapping[str, str] | None) -> str:
    """Return the term in which a message was decided, "" when it does not say."""
    return (headers or {}).get(TERM_HEADER, "")


def term_headers(term: str) -> dict[str, str]:
    """Return the headers of what is decided in the term `term`."""
    return {TERM_HEADER: term} if term else {}
