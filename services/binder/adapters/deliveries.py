"""Deliveries of one partition of a stream, and how a binder answers them."""

from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from shared.bus.nats import NatsBus
from shared.bus.publisher import is_fenced
from shared.bus.puller import Delivery, Puller
from shared.bus.values import Message
from shared.runtime.env import Env
from shared.runtime.errors import Retryable
from shared.runtime.health import ReadinessGate
from shared.runtime.logs import Logger
from shared.runtime.tasks import TaskGroup

NEWER_DELAY_S: Final = 5.0
"""Redelivery delay in seconds of a message whose version only newer binders know."""


class AckExtender:
    """Extends the acknowledgement time of deliveries that are being processed.

    The acknowledgement time is short, so that another binder soon takes over from a killed one. A
    live binder extends it three times per period, for as long as a gang takes.
    """

    def __init__(self, *, ack_wait_s: float, env: Env) -> None:
        self._interval_s = ack_wait_s / 3
        self._clock = env.clock
        self._log = env.log

    @asynccontextmanager
    async def extended(self, group: TaskGroup, delivery: Delivery) -> AsyncGenerator[None, None]:
        """Extend the time of `delivery` during the block, in a task of `group`."""
        name = f"ack-extension {delivery.message.sequence}"
        extension = group.create_task(self._keep_extending(delivery), name=name)
        try:
            yield
        finally:
            extension.cancel()

    async def _keep_extending(self, delivery: Delivery) -> None:
        while True:
            await self._clock.sleep(self._interval_s)
            try:
                await delivery.in_progress()
            except Retryable as error:
                self._log.debug("delivery_maybe_lost", reason=str(error))


class PartitionSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where the deliveries of one partition of a stream come from."""

    puller: Puller
    partition: int
    stream: str
    bus: NatsBus
    acks: AckExtender
    gate: ReadinessGate
    """Open once the consumer of the partition has started."""
    leaders: Collection[str] = ()
    """Subjects of the leaders of which one must have published a message."""

    def is_fenced(self, message: Message) -> bool:
        """Return whether a message was published with the fencing token of a leader."""
        return is_fenced(message, frozenset(self.leaders))

    async def last(self, subject: str) -> Message | None:
        """Return the last message of a subject that the stream holds."""
        return await self.bus.last(self.stream, subject)


async def redeliver_later(delivery: Delivery, delay_s: float, log: Logger) -> None:
    """Have a message delivered again after a delay."""
    try:
        await delivery.nak(delay_s)
    except Retryable as lost:
        log.info("answer_lost", reason=str(lost))
