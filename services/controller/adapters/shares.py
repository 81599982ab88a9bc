"""The part of the service that takes this replica's share of the partitions and gives it back."""

from typing import Final

from services.controller.adapters.ownership import Ownership
from shared.bus.partitions import Partitions


class Shares:
    """Holds partitions for as long as the service runs."""

    name: Final = "partitions"

    def __init__(self, partitions: Partitions, ownership: Ownership) -> None:
        self._partitions = partitions
        self._ownership = ownership

    async def run(self) -> None:
        """Hold a fair share for ever."""
        await self._partitions.run(self._ownership.hold)
