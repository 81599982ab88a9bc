"""Scheduling events for subscribers: pods bound and evicted, as CloudEvents on EVENTS (design §7).

In the background, so that a slow stream of events never slows a bind: a bounded list, published in
batches, again and again until the server has it. Ids are made of intent and pod; a redelivered
intent announces nothing twice. What does not fit is dropped and counted.
"""

import asyncio
from collections import deque
from typing import Final

import msgspec

from pumice.events import Event, PodBound, PodEvicted, encode, source, subject
from services.binder.metrics import BinderMetrics
from shared.bus.port import Publisher
from shared.contracts.messages import Bind, BindGang, Evict, Victim
from shared.runtime.backoff import Backoff
from shared.runtime.clock import Clock
from shared.runtime.errors import Rejected, Retryable
from shared.runtime.logs import Logger

_WAITING_MAX: Final = 20_000
_BATCH: Final = 256


class _Announcement(msgspec.Struct, frozen=True, kw_only=True):
    subject: str
    id: str
    payload: bytes


class Announcer:
    """Publishes events of the binder; a part of the service."""

    name: Final = "announcements"

    def __init__(
        self,
        publisher: Publisher,
        *,
        cluster: str,
        service: str,
        instance: str,
        clock: Clock,
        backoff: Backoff,
        metrics: BinderMetrics,
        log: Logger,
    ) -> None:
        self._publisher = publisher
        self._cluster = cluster
        self._source = source(cluster=cluster, service=service, instance=instance)
        self._clock = clock
        self._backoff = backoff
        self._metrics = metrics
        self._log = log
        self._waiting: deque[_Announcement] = deque()
        self._filled = asyncio.Event()

    def bound(self, gang: BindGang, item: Bind) -> None:
        """Announce that a pod is bound."""
        event = PodBound(pod=item.pod, uid=item.uid, node=item.node, gang=gang.job)
        self._take(event, f"{gang.id}/{item.uid}")

    def evicted(self, intent: Evict, victim: Victim) -> None:
        """Announce that a pod is being evicted, for whom and why."""
        preemptor = intent.preemptor.pod if intent.preemptor else ""
        event = PodEvicted(
            pod=victim.pod,
            uid=victim.uid,
            node=victim.node,
            gang=victim.job,
            by=intent.reason,
            preemptor=preemptor,
            reason=f"to make room for {preemptor}" if preemptor else "to make room",
        )
        self._take(event, f"{intent.id}/{victim.uid}")

    def _take(self, event: Event, identity: str) -> None:
        if len(self._waiting) >= _WAITING_MAX:
            self._metrics.announcements.labels("dropped").inc()
            return
        payload = encode(event, id=identity, time=self._clock.now(), source=self._source)
        self._waiting.append(
            _Announcement(
                subject=subject(event, cluster=self._cluster), id=identity, payload=payload
            )
        )
        self._filled.set()

    async def run(self) -> None:
        """Publish what waits, for ever."""
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

    async def _publish(self, batch: list[_Announcement]) -> list[_Announcement]:
        """Publish at once and return those that have to be published again."""
        left: list[_Announcement] = []

        async def one(item: _Announcement) -> None:
            try:
                await self._publisher.publish(item.subject, item.payload, msg_id=item.id)
            except Retryable as error:
                left.append(item)
                self._log.debug("announcement_delayed", id=item.id, reason=str(error))
            except Rejected as error:
                self._metrics.announcements.labels("refused").inc()
                self._log.warning("announcement_refused", id=item.id, reason=str(error))
            else:
                self._metrics.announcements.labels("published").inc()

        async with asyncio.TaskGroup() as group:
            for item in batch:
                group.create_task(one(item), name=f"announce {item.id}")
        return left
