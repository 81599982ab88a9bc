"""The part of a service that declares the streams it needs, until the server has them."""

from collections.abc import Sequence
from typing import Final

from shared.bus.port import Declaring
from shared.contracts.streams import StreamSpec
from shared.runtime.clock import Clock
from shared.runtime.errors import Retryable
from shared.runtime.health import Gate

_RETRY_S: Final = 0.5
_FOREVER_S: Final = 86400.0


class StreamDeclarer:
    """Declares once it can; the bus keeps the streams from then on, over reconnects too."""

    name: Final = "streams"

    def __init__(
        self, bus: Declaring, specs: Sequence[StreamSpec], *, clock: Clock, gate: Gate
    ) -> None:
        self._bus = bus
        self._specs = tuple(specs)
        self._clock = clock
        self._gate = gate

    async def run(self) -> None:
        """Declare until it works, then rest. Raises Rejected for streams that do not fit."""
        self._gate.set(ok=False, reason="streams are not declared yet")
        while not self._gate.ok:
            try:
                await self._bus.ensure_streams(self._specs)
            except Retryable as error:
                self._gate.set(ok=False, reason=str(error))
                await self._clock.sleep(_RETRY_S)
            else:
                self._gate.set(ok=True)
        while True:
            await self._clock.sleep(_FOREVER_S)
