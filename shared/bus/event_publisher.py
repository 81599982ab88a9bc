"""Publishes scheduling events on EVENTS in the background; used by all services.

A slow event stream must not slow a decision or a bind. The queue is bounded and published in
batches until the server has stored it. The event's id is the message id, so a repeated event is
stored once. Events that do not fit are dropped and counted.
"""

import asyncio
from collections import deque
from typing import Final

import msgspec

from pumice.events import Event, encode, source, subject
from shared.bus.publisher import Publisher
from shared.runtime.backoff import Backoff
from shared.runtime.clock import Clock
from shared.runtime.errors import Rejected, Retryable
from shared.runtime.logs import Logger
from shared.runtime.metrics import Metrics
from shared.runtime.tasks import TaskGroup

_WAITING_MAX: Final = 20_000
_BATCH: Final = 256


class _Waiting(msgspec.Struct, frozen=True, kw_only=True):
    subject: str
    id: str
    payload: bytes


class EventPublisher:
    """Takes events without waiting; a part of the service."""

    name: Final = "event-publisher"

    def __init__(
        self,
        publisher: Publisher,
        *,
        cluster: str,
        service: str,
        instance: str,
        clock: Clock,
        backoff: Backoff,
        metrics: Metrics,
        log: Logger,
    ) -> None:
        self._publisher = publisher
        self._cluster = cluster
        self._source = source(cluster=cluster, service=service, instance=instance)
        self._clock = clock
        self._backoff = backoff
        self._fates = metrics.counter(
            f"pumice_{service}_scheduling_events", "Scheduling events by result", ["fate"]
        )
        self._log = log
        self._waiting: deque[_Waiting] = deque()
        self._filled = asyncio.Event()

    def publish(self, event: Event, identity: str) -> None:
        """Take an event; `identity` is the same when the same event is published again."""
        if len(self._waiting) >= _WAITING_MAX:
            self._fates.labels("dropped").inc()
            return
        payload = encode(event, id=identity, time=self._clock.now(), source=self._source)
        self._waiting.append(
            _Waiting(subject=subject(event, cluster=self._cluster), id=identity, payload=payload)
        )
        self._filled.set()

    async def run(self) -> None:
        """Publish what waits until cancelled."""
        attempt = 0
        while True:
            await self._filled.wait()
            batch = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
            if not batch:
                self._filled.clear()
                continue
            left = await self._publish(batch)
            self._waiting.extendleft(reversed(left))
            if not left:
                attempt = 0
                continue
            await self._clock.sleep(self._backoff.delay_s(attempt))
            attempt += 1

    async def _publish(self, batch: list[_Waiting]) -> list[_Waiting]:
        """Publish at once and return those that have to be published again."""
        left: list[_Waiting] = []

        async def one(item: _Waiting) -> None:
            try:
                await self._publisher.publish(item.subject, item.payload, msg_id=item.id)
            except Retryable as error:
                left.append(item)
                self._log.debug("event_delayed", id=item.id, reason=str(error))
            except Rejected as error:
                self._fates.labels("refused").inc()
                self._log.warning("event_refused", id=item.id, reason=str(error))
            else:
                self._fates.labels("published").inc()

        async with TaskGroup() as group:
            for item in batch:
                group.create_task(one(item), name=f"event {item.id}")
        return left
