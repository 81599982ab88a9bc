"""Streams and durable consumers: one part declares them, another checks that they are there.

One identity makes and changes them: the declarer, a service of its own in Kubernetes and Compose
and a task of the local stack. Every other service has no right to, so that none can redirect what
another decides; it checks what it needs and is not ready until all of it is there as declared.
"""

from collections.abc import Sequence
from typing import Final

from shared.bus.nats import NatsBus
from shared.contracts.streams import ConsumerSpec, StreamSpec
from shared.runtime.clock import Clock
from shared.runtime.errors import Rejected, Retryable
from shared.runtime.health import ReadinessGate

_RETRY_S: Final = 0.5
_LOOK_AGAIN_S: Final = 5.0


class Declarer:
    """Declares, and checks periodically: what was deleted by hand is declared again.

    Sizes and ages are applied at the start and at each reconnect only, so that an operator may
    resize a stream that is full at this moment.
    """

    name: Final = "declarer"

    def __init__(
        self,
        bus: NatsBus,
        specs: Sequence[StreamSpec],
        consumers: Sequence[ConsumerSpec],
        *,
        clock: Clock,
        gate: ReadinessGate,
    ) -> None:
        self._bus = bus
        self._specs = tuple(specs)
        self._consumers = tuple(consumers)
        self._clock = clock
        self._gate = gate

    async def run(self) -> None:
        """Declare until cancelled. Raises Rejected for streams that do not fit."""
        self._gate.set(ok=False, reason="streams are not declared yet")
        missing = self._specs
        while True:
            try:
                await self._bus.ensure_streams(missing)
                await self._bus.ensure_consumers(self._consumers)
                missing = tuple([spec for spec in self._specs if await self._bus.unfit(spec)])
            except Retryable as error:
                self._gate.set(ok=False, reason=str(error))
                await self._clock.sleep(_RETRY_S)
            else:
                self._gate.set(ok=not missing, reason="streams are being made again")
                await self._clock.sleep(_RETRY_S if missing else _LOOK_AGAIN_S)


class StreamCheck:
    """Keeps the gate of a service that needs streams: a part of the service."""

    name: Final = "streams"

    def __init__(
        self, bus: NatsBus, specs: Sequence[StreamSpec], *, clock: Clock, gate: ReadinessGate
    ) -> None:
        self._bus = bus
        self._specs = tuple(specs)
        self._clock = clock
        self._gate = gate

    async def run(self) -> None:
        """Check until cancelled; more often while something is missing."""
        self._gate.set(ok=False, reason="the streams have not been looked at yet")
        while True:
            reason = await self._reason()
            self._gate.set(ok=not reason, reason=reason)
            await self._clock.sleep(_RETRY_S if reason else _LOOK_AGAIN_S)

    async def _reason(self) -> str:
        try:
            for spec in self._specs:
                if reason := await self._bus.unfit(spec):
                    return reason
        except (Retryable, Rejected) as error:
            return str(error)
        return ""
