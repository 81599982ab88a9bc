"""Follows the leading scheduler's announcements about gangs; a part of the service."""

from contextlib import aclosing
from typing import Final

from pumice.events import GangAdmitted, GangPlaced, GangUnschedulable
from pumice.events.envelope import decode_any
from services.visibility.answers.decisions import Decisions
from shared.bus.port import Batch, FromSequence, Reading, Reset
from shared.contracts.subjects import Subjects

_TYPES: Final = (GangAdmitted, GangPlaced, GangUnschedulable)
_FIRST: Final = FromSequence(1)
"""A job may have waited for as long as events are kept, and its wait was announced once."""


class DecisionFeed:
    """Reads events about gangs from the first that is kept, and for ever."""

    name: Final = "decision-feed"

    def __init__(
        self, bus: Reading, decisions: Decisions, *, stream: str, subjects: Subjects
    ) -> None:
        self._bus = bus
        self._decisions = decisions
        self._stream = stream
        self._wanted = [subjects.events_about(each.topic) for each in _TYPES]

    async def run(self) -> None:
        """Follow for ever."""
        follow = self._bus.follow(self._stream, self._wanted, start=_FIRST)
        async with aclosing(follow) as items:
            async for item in items:
                match item:
                    case Batch(messages):
                        for message in messages:
                            event = decode_any(message.payload)
                            self._decisions.hear(event.data, event.time.timestamp())
                    case Reset():
                        self._decisions.forget()
                    case _:
                        pass
