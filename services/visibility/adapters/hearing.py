"""Follows why gangs wait, as the leading scheduler publishes it; a part of the service."""

from contextlib import aclosing
from typing import Final

from services.visibility.answers.decisions import Decisions
from shared.bus.port import Batch, FromSequence, Message, Reading, Reset
from shared.contracts import codec
from shared.contracts.streams import StreamSpec
from shared.contracts.versions import ContractError
from shared.runtime.logs import Logger

_FIRST: Final = FromSequence(1)


class DecisionFeed:
    """Reads the last word on each gang that waits, and those to come, for ever."""

    name: Final = "decision-feed"

    def __init__(
        self, bus: Reading, decisions: Decisions, *, stream: StreamSpec, log: Logger
    ) -> None:
        self._bus = bus
        self._decisions = decisions
        self._stream = stream
        self._log = log

    async def run(self) -> None:
        """Follow for ever."""
        follow = self._bus.follow(self._stream.name, list(self._stream.subjects), start=_FIRST)
        async with aclosing(follow) as items:
            async for item in items:
                match item:
                    case Batch(messages):
                        for message in messages:
                            self._hear(message)
                    case Reset():
                        self._decisions.forget()
                    case _:
                        pass

    def _hear(self, message: Message) -> None:
        try:
            self._decisions.hear(codec.decode_waiting(message.payload))
        except ContractError as error:
            self._log.warning("wait_unreadable", sequence=message.sequence, reason=str(error))
