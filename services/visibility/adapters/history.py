"""Reads the events of one namespace that speak of a job, as they are kept on the bus."""

import asyncio
from contextlib import aclosing
from typing import Final

from pumice.events import CloudEvent
from pumice.events.envelope import decode_any
from shared.bus.port import Batch, CaughtUp, FromSequence, Reading
from shared.contracts.subjects import Subjects
from shared.runtime.errors import Retryable

READ_S: Final = 10.0
"""A namespace whose events take longer is not read."""
_FIRST: Final = FromSequence(1)


class EventHistory:
    """Reads EVENTS anew for each question: they are many, and asked for seldom."""

    def __init__(self, bus: Reading, *, stream: str, subjects: Subjects) -> None:
        self._bus = bus
        self._stream = stream
        self._subjects = subjects

    async def of(self, namespace: str, name: str) -> list[CloudEvent]:
        """Return the events of a namespace in which a name occurs. Raises Retryable."""
        try:
            async with asyncio.timeout(READ_S):
                return await self._read(namespace, name.encode())
        except TimeoutError as error:
            raise Retryable(
                f"the events of namespace {namespace} could not be read in {READ_S:.0f} s"
            ) from error

    async def _read(self, namespace: str, name: bytes) -> list[CloudEvent]:
        found: list[CloudEvent] = []
        subject = self._subjects.events_of(namespace)
        async with aclosing(self._bus.follow(self._stream, [subject], start=_FIRST)) as items:
            async for item in items:
                match item:
                    case Batch(messages):
                        found += [
                            decode_any(message.payload)
                            for message in messages
                            if name in message.payload
                        ]
                    case CaughtUp():
                        break
                    case _:
                        pass
        return found
