"""Keeps deliveries ours while they are worked on.

The acknowledgement time is short, so that the work of a killed binder moves on at once; a living
one says three times as often that it is at it, however long a gang or a wait takes.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from shared.bus.port import Delivery
from shared.runtime.clock import Clock
from shared.runtime.errors import Retryable
from shared.runtime.logs import Logger
from shared.runtime.tasks import TaskGroup


class Holder:
    """Knows how often to say that a delivery is in progress."""

    def __init__(self, *, ack_wait_s: float, clock: Clock, log: Logger) -> None:
        self._pulse_s = ack_wait_s / 3
        self._clock = clock
        self._log = log

    @asynccontextmanager
    async def held(self, group: TaskGroup, delivery: Delivery) -> AsyncGenerator[None, None]:
        """Keep `delivery` for the length of a block; the pulse is a task of `group`."""
        name = f"pulse {delivery.message.sequence}"
        pulse = group.create_task(self._pulse(delivery), name=name)
        try:
            yield
        finally:
            pulse.cancel()

    async def _pulse(self, delivery: Delivery) -> None:
        while True:
            await self._clock.sleep(self._pulse_s)
            try:
                await delivery.in_progress()
            except Retryable as error:
                self._log.debug("delivery_maybe_lost", reason=str(error))
