"""The OUTCOME stream: telling how intents ended, and knowing which ones already have.

An intent has exactly one outcome. The message id suppresses a second one within the dedupe
window; beyond it, and above all before acting again, `Finished` knows: a redelivered intent whose
outcome is out must not be executed again, because scheduling may have given the room away.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Final, Protocol

import msgspec

from shared.bus.port import Batch, CaughtUp, FromTime, Publisher, Reading, Reset
from shared.contracts.codec import encode, unpack
from shared.contracts.messages import Outcome, Poison
from shared.contracts.streams import OUTCOME_AGE_S
from shared.contracts.subjects import Subjects
from shared.contracts.versions import ContractError
from shared.runtime.backoff import Backoff
from shared.runtime.clock import Clock
from shared.runtime.errors import Retryable
from shared.runtime.health import Gate
from shared.runtime.logs import Logger

_REMEMBERED: Final = 200_000
"""Intents whose end is remembered; an hour of OUTCOME at 50 intents/s."""


class Outcomes:
    """Publishes outcomes, and messages that were set aside, until the server has them."""

    def __init__(
        self,
        publisher: Publisher,
        *,
        subjects: Subjects,
        clock: Clock,
        backoff: Backoff,
        log: Logger,
    ) -> None:
        self._publisher = publisher
        self._subjects = subjects
        self._clock = clock
        self._backoff = backoff
        self._log = log

    async def publish(self, partition: int, outcome: Outcome) -> None:
        """Return once the server has stored the outcome; retries as long as it takes."""
        subject = self._subjects.outcome(partition)
        await self._send(subject, encode(outcome), f"outcome-{outcome.intent}")

    async def set_aside(self, stream: str, poison: Poison) -> None:
        """Store a message that cannot be read where a person can look at it."""
        identity = f"poison-{stream}-{poison.sequence}-{poison.time:.0f}"
        await self._send(self._subjects.poison, encode(poison), identity)

    async def _send(self, subject: str, payload: bytes, identity: str) -> None:
        attempt = 0
        while True:
            try:
                await self._publisher.publish(subject, payload, msg_id=identity)
            except Retryable as error:
                self._log.warning("outcome_delayed", id=identity, reason=str(error))
                await self._clock.sleep(self._backoff.delay_s(attempt))
                attempt += 1
            else:
                return


class IntentFinished(Protocol):
    """Knows which intents have ended."""

    async def has(self, intent: str) -> bool:
        """Return whether an outcome of `intent` is out."""
        ...


class _Head(msgspec.Struct, frozen=True):
    """What of an outcome is needed here; the rest is not decoded."""

    intent: str


class Finished:
    """Follows the outcomes of all binders; a part of the service."""

    name: Final = "finished"

    def __init__(
        self,
        bus: Reading,
        *,
        stream: str,
        subjects: Sequence[str],
        clock: Clock,
        gate: Gate,
        log: Logger,
    ) -> None:
        self._bus = bus
        self._stream = stream
        self._subjects = tuple(subjects)
        self._clock = clock
        self._gate = gate
        self._log = log
        self._intents: dict[str, None] = {}
        self._whole = asyncio.Event()
        self._head = msgspec.json.Decoder(_Head)

    async def has(self, intent: str) -> bool:
        """Return whether an outcome of `intent` is out, once all stored ones have been read."""
        await self._whole.wait()
        return intent in self._intents

    async def run(self) -> None:
        """Follow OUTCOME for ever, from as far back as it is kept."""
        start = FromTime(self._clock.now() - OUTCOME_AGE_S)
        items = self._bus.follow(self._stream, self._subjects, start=start)
        async with aclosing(items):
            async for item in items:
                if isinstance(item, Batch):
                    for message in item.messages:
                        self._note(message.payload)
                elif isinstance(item, CaughtUp):
                    self._whole.set()
                    self._gate.set(True)
                elif isinstance(item, Reset):
                    self._log.warning("outcomes_read_again", reason=item.reason)
                    self._whole.clear()
                    self._gate.set(ok=False, reason=f"outcomes are read again: {item.reason}")

    def _note(self, payload: bytes) -> None:
        try:
            intent = self._head.decode(unpack(payload)).intent
        except (msgspec.DecodeError, ContractError) as error:
            self._log.warning("outcome_unreadable", reason=str(error))
            return
        self._intents[intent] = None
        if len(self._intents) > _REMEMBERED:
            del self._intents[next(iter(self._intents))]
