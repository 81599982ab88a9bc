"""Deliveries of one partition of a stream, and how a binder answers them."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from shared.bus.puller import Delivery, Puller
from shared.runtime.clock import Clock
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

    def __init__(self, *, ack_wait_s: float, clock: Clock, log: Logger) -> None:
        self._interval_s = ack_wait_s / 3
        self._clock = clock
        self._log = log

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
    acks: AckExtender
    gate: ReadinessGate
    """Open once the consumer of the partition has started."""


async def redeliver_later(delivery: Delivery, delay_s: float, log: Logger) -> None:
    """Have a message delivered again after a delay."""
    try:
        await delivery.nak(delay_s)
    except Retryable as lost:
        log.info("answer_lost", reason=str(lost))
