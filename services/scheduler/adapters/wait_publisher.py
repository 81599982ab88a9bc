"""Publishes why gangs wait, in the background: the last word per gang, on the stream WAITING.

No cycle waits for it. A newer word about a gang takes the place of one that is not published yet,
so that what waits is bounded by the gangs that do.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from services.scheduler.adapters.publish import Sent, answer
from shared.bus.port import Publisher
from shared.contracts import codec
from shared.contracts.messages import WaitExplained
from shared.contracts.streams import WAITED_TTL_S, WAITING_TTL_S
from shared.contracts.subjects import Subjects
from shared.runtime.backoff import Backoff
from shared.runtime.clock import Clock
from shared.runtime.errors import PumiceError, Rejected
from shared.runtime.logs import Logger

BATCH: Final = 200
REST_S: Final = 0.1
"""Between two batches: binds and statuses go before."""


class WaitPublisher:
    """Takes explanations without waiting; a part of the scheduler."""

    name: Final = "wait-explanations"

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
        self._due: dict[str, WaitExplained] = {}
        self._filled = asyncio.Event()

    def tell(self, said: Iterable[WaitExplained]) -> None:
        """Take what a cycle has decided."""
        for message in said:
            self._due[message.gang] = message
        if self._due:
            self._filled.set()

    def forget(self) -> None:
        """Publish nothing more of what was decided: another scheduler leads."""
        self._due.clear()

    async def run(self) -> None:
        """Publish what is there, for ever."""
        while True:
            await self._filled.wait()
            batch = [self._due.pop(key) for key in list(self._due)[:BATCH]]
            if not batch:
                self._filled.clear()
                continue
            left = await self._publish(batch)
            for message in left:
                self._due.setdefault(message.gang, message)
            if not left:
                self._backoff.reset()
            await self._clock.sleep(self._backoff.next_s() if left else REST_S)

    async def _publish(self, batch: list[WaitExplained]) -> list[WaitExplained]:
        """Publish at once; return those that have to be published again."""
        left = []
        for message, sent in [(message, await self._send(message)) for message in batch]:
            try:
                await answer(sent)
            except Rejected as error:
                self._log.warning("wait_not_published", gang=message.gang, reason=str(error))
            except PumiceError as error:
                self._log.debug("wait_delayed", gang=message.gang, reason=str(error))
                left.append(message)
        return left

    async def _send(self, message: WaitExplained) -> Sent:
        try:
            return await self._publisher.submit(
                self._subjects.waiting(message.gang),
                codec.encode(message),
                ttl_s=WAITING_TTL_S if message.gate else WAITED_TTL_S,
            )
        except PumiceError as error:
            return error
