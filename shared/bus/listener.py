"""Listening to messages and requests as they are published, without a stream's consumer.

Messages that are published while there is no connection are lost without notice. So it is for hints
only: what depends on them must also be found otherwise, such as by the status of an object.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator
from typing import Final

import nats.errors
from nats.aio.msg import Msg

from shared.bus.connection import BusConnection
from shared.bus.values import BusRequest
from shared.runtime.clock import Clock
from shared.runtime.logs import Logger

WAITING_MAX: Final = 4096
"""Messages that wait for a slow reader; the oldest is dropped for one more."""
RETRY_S: Final = 0.2


class Listener:
    """Listens to one subject for one reader."""

    def __init__(
        self, subject: str, *, connection: BusConnection, clock: Clock, log: Logger
    ) -> None:
        self._subject = subject
        self._connection = connection
        self._clock = clock
        self._log = log
        self._arrived: deque[BusRequest] = deque(maxlen=WAITING_MAX)
        self._wake = asyncio.Event()

    async def payloads(self) -> AsyncGenerator[bytes, None]:
        """Yield until cancelled; see `NatsBus.listen`."""
        async with contextlib.aclosing(self.requests()) as requests:
            async for request in requests:
                yield request.payload

    async def requests(self) -> AsyncGenerator[BusRequest, None]:
        """Yield until cancelled; see `NatsBus.requests`."""
        while True:
            session = await self._connection.session()
            unwatch = session.watch(self._wake.set)
            subscription = None
            try:
                subscription = await session.client.subscribe(self._subject, cb=self._on_message)
                while session.alive:
                    await self._wake.wait()
                    self._wake.clear()
                    while self._arrived:
                        yield self._arrived.popleft()
            except (nats.errors.Error, OSError) as error:
                self._log.info("listener_interrupted", subject=self._subject, reason=str(error))
                await self._clock.sleep(RETRY_S)
            finally:
                unwatch()
                if subscription is not None and session.alive:
                    with contextlib.suppress(nats.errors.Error, OSError):
                        await subscription.unsubscribe()

    async def _on_message(self, msg: Msg) -> None:
        self._arrived.append(BusRequest(payload=msg.data, reply=msg.reply))
        self._wake.set()
