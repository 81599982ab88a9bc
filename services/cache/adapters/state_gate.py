"""Whether STATE is kept up: by this replica as leader, or by the leader that it stands by for.

A leader of another release may list fewer kinds than this replica would. A standby is ready all the
same: a rollout waits for it, and only after it does the leader make way for one that lists them.
"""

from collections.abc import Callable
from typing import Final

from shared.bus.nats import NatsBus
from shared.contracts import codec
from shared.contracts.subjects import Subjects
from shared.contracts.versions import ContractError
from shared.runtime.clock import Clock
from shared.runtime.errors import Retryable
from shared.runtime.health import ReadinessGate

_CHECK_S: Final = 0.5
_LEADER_TIMEOUT_S: Final = 5.0
"""A marker that stays the same for so long says that there is no leader."""


class StateGate:
    """Keeps the gate `state` (a part of the service)."""

    name: Final = "standing"

    def __init__(
        self,
        bus: NatsBus,
        *,
        stream: str,
        subjects: Subjects,
        leads: Callable[[], bool],
        complete: Callable[[], bool],
        clock: Clock,
        gate: ReadinessGate,
    ) -> None:
        self._bus = bus
        self._stream = stream
        self._marker = subjects.marker
        self._leads = leads
        self._complete = complete
        self._clock = clock
        self._gate = gate
        self._sequence = 0
        self._alive_until = 0.0

    async def run(self) -> None:
        """Check twice a second until cancelled."""
        while True:
            reason = await self._not_ready_reason()
            if (self._gate.ok, self._gate.reason) != (not reason, reason):
                self._gate.set(not reason, reason)
            await self._clock.sleep(_CHECK_S)

    async def _not_ready_reason(self) -> str:
        if self._leads():
            return "" if self._complete() else "not everything is published yet"
        try:
            message = await self._bus.last(self._stream, self._marker)
        except Retryable as exc:
            return str(exc)
        if message is None:
            return "no cache has published yet"
        if not self._is_alive(message.sequence):
            return "no leader publishes"
        try:
            complete = codec.decode_marker(message.payload).complete
        except ContractError as exc:
            return f"the leader's marker cannot be read: {exc}"
        return "" if complete else "the leader has not listed anything yet"

    def _is_alive(self, sequence: int) -> bool:
        """Tell whether the marker's sequence has moved, by our own clock, since a moment ago."""
        now = self._clock.monotonic()
        if sequence != self._sequence:
            if self._sequence:
                self._alive_until = now + _LEADER_TIMEOUT_S
            self._sequence = sequence
        return now < self._alive_until
