"""The part of the service that takes this replica's share of the partitions and gives it back."""

from collections.abc import Sequence
from typing import Final

from services.controller.adapters.ownership import Ownership
from shared.bus.partitions import Partitions
from shared.bus.port import Declaring
from shared.contracts.streams import StreamSpec
from shared.runtime.clock import Clock
from shared.runtime.errors import Retryable
from shared.runtime.health import Gate

_RETRY_S: Final = 0.5
_REST_S: Final = 3600.0


class StreamDeclarer:
    """Declares the streams that the controller writes to; the bus keeps them from then on."""

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
        while True:
            try:
                await self._bus.ensure_streams(self._specs)
                break
            except Retryable as error:
                self._gate.set(ok=False, reason=str(error))
                await self._clock.sleep(_RETRY_S)
        self._gate.set(ok=True)
        while True:
            await self._clock.sleep(_REST_S)


class Shares:
    """Holds partitions for as long as the service runs."""

    name: Final = "partitions"

    def __init__(self, partitions: Partitions, ownership: Ownership) -> None:
        self._partitions = partitions
        self._ownership = ownership

    async def run(self) -> None:
        """Hold a fair share for ever."""
        await self._partitions.run(self._ownership.hold)
