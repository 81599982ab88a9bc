"""Whether this installation may act in the cluster, as the services that write learn of it.

The cache's leader holds Leases in the cluster that others respect, and says so in each marker
(`messages.Hold`). A service that reads the markers keeps a `Tenure`. A hold is relied on for the
time that the marker gives it, by the reader's own clock, and no longer: by then no
other installation can have taken it. So a service that hears nothing more stops by itself.

What is decided travels with the name of the tenure that it was decided in (`MARK`), so that what
was decided before another installation had its turn is not carried out after it.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import msgspec

from shared.contracts.messages import Hold, Marker
from shared.runtime.clock import Clock
from shared.runtime.errors import Retryable
from shared.runtime.health import Gate
from shared.runtime.logs import Logger

MARK: Final = "Pumice-Tenure"
"""Header of intents and desired statuses: the tenure of their decision; none: any will do."""

_NO_MARKER_YET: Final = "the cache has not said yet who may write"
_TENURE_OF_WORK: Final[ContextVar[str]] = ContextVar("tenure", default="")
"""The tenure that the work under way was decided in."""


class Tenure:
    """One Lease as a service sees it that acts only while the installation holds it."""

    def __init__(
        self,
        role: str,
        *,
        required: bool = True,
        clock: Clock,
        gate: Gate | None = None,
        log: Logger,
    ) -> None:
        """`role` is the key in `Marker.holds`; unless `required`, no Lease is needed to act."""
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
        """Have `call` called when the right to act comes or goes, as far as markers tell."""
        self._on_change.append(call)

    @property
    def held(self) -> bool:
        """Return whether this service may act at this moment."""
        return self._free or self._clock.monotonic() < self._until

    @property
    def lost(self) -> bool:
        """Return whether another is known to act in our place."""
        return not self._free and bool(self._holder)

    @property
    def term(self) -> str:
        """Return the name of this tenure, "" where none is needed."""
        return "" if self._free else self._term

    @property
    def signature(self) -> str:
        """Return the Lease and its tenure as objects bear them, "" where none is needed."""
        return "" if self._free else f"{self._lease}/{self._term}"

    def observe(self, marker: Marker) -> None:
        """Take the state of the Lease from a marker of the cache's leader."""
        if not self._required:
            return
        self._was_held = self._was_held and self.held  # its time may have run out unseen
        holds = marker.holds
        hold = None if holds is msgspec.UNSET else holds.get(self._role)
        self._free = hold is None
        if hold is not None:
            self._take(hold)
        if self.held != self._was_held:
            self._was_held = self.held
            if self._was_held:
                self._log.info("tenure_begun", lease=self._lease, term=self.term)
            else:
                self._log.warning("tenure_ended", lease=self._lease, reason=self.why_not())
            for call in self._on_change:
                call()
        self._marker_came.set()
        self._show()

    async def settled(self) -> None:
        """Return once it is known which installation may act."""
        while not (self.held or self.lost):
            self._marker_came.clear()
            await self._marker_came.wait()

    def _take(self, hold: Hold) -> None:
        self._lease, self._holder = hold.lease, hold.holder
        self._reason = hold.reason or _NO_MARKER_YET
        if hold.left_s > 0:
            self._term = hold.term
            self._until = self._clock.monotonic() + hold.left_s
        elif hold.holder:
            self._until = 0.0

    def why_not(self) -> str:
        """Return one line for a person, "" while this service may act."""
        if self.held:
            return ""
        if self._holder:
            return f"lease {self._lease} is held by {self._holder}"
        return f"lease {self._lease}: {self._reason}" if self._lease else self._reason

    def refusal(self, mark: str) -> str:
        """Return why what was decided in the tenure `mark` must not be done, "" if it may.

        To be asked once it is known which installation may act (`settled`).
        """
        if self.lost:
            return self.why_not()
        if mark and self.term not in ("", mark):
            return f"lease {self._lease} was another's since this was decided"
        return ""

    @contextmanager
    def working(self, mark: str) -> Iterator[None]:
        """Do in this block what was decided in the tenure `mark`, for `check`."""
        before = _TENURE_OF_WORK.set(mark)
        try:
            yield
        finally:
            _TENURE_OF_WORK.reset(before)

    def check(self) -> None:
        """Raise Retryable when a write must not go out now: asked before each of them."""
        reason = self.why_not() or self.refusal(_TENURE_OF_WORK.get())
        if reason:
            raise Retryable(reason)

    def _show(self) -> None:
        if self._gate is not None:
            reason = self.why_not()
            if (self._gate.ok, self._gate.reason) != (not reason, reason):
                self._gate.set(not reason, reason)


def mark_of(headers: Mapping[str, str] | None) -> str:
    """Return the tenure that a message was decided in, "" when it does not say."""
    return (headers or {}).get(MARK, "")


def marks(term: str) -> dict[str, str]:
    """Return the headers of what is decided in the tenure `term`."""
    return {MARK: term} if term else {}
