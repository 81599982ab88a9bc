"""Past usage of queues and users: the decayed amounts that accounting publishes.

The scheduler's shell puts messages in as they come. When no new ones come, the last ones stay.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import msgspec
from typing_extensions import override

from pumice.plugins import PolicyState
from shared.contracts.usage import QueueUsage

STEP_S: Final = 120.0
"""Accounting publishes more often than this; from then on, usage is estimated in such steps."""


class PastUsage(PolicyState):
    """The last message about each queue."""

    name: ClassVar[str] = "past-usage"

    def __init__(self) -> None:
        self.by_queue: Mapping[str, QueueUsage] = {}

    def replace(self, messages: Mapping[str, QueueUsage]) -> None:
        """Replace the messages about all queues."""
        self.by_queue = messages

    def time(self, now: float) -> float:
        """Return the time (Unix seconds) for which usage is known, or estimated without accounting.

        An order by usage changes when this time does. It is 0 if there was no message.
        """
        newest = max((usage.at for usage in self.by_queue.values()), default=0.0)
        return newest + max(0.0, (now - newest) // STEP_S * STEP_S) if newest else 0.0

    @override
    def dump(self) -> dict[str, QueueUsage]:
        """Return the messages; a copy."""
        return dict(self.by_queue)

    @override
    def restore(self, kept: Any) -> None:
        """Store messages."""
        self.by_queue = msgspec.convert(kept, dict[str, QueueUsage])
