"""Keeps the queues that always exist, and gives each queue its first state (CA02, Q02)."""

import asyncio
from collections.abc import Callable
from typing import Final

from services.controller.adapters.announcer import ControllerEvents
from services.controller.adapters.ownership import Ownership
from services.controller.adapters.replica import Replica, Touched
from services.controller.metrics import ControllerMetrics
from services.controller.queue.queues import missing, state_patch
from shared.api import kinds
from shared.kube.client import Kube
from shared.kube.errors import AlreadyExists
from shared.runtime.clock import Clock
from shared.runtime.errors import Conflict, Rejected, Retryable
from shared.runtime.logs import Logger
from shared.runtime.tasks import sleep_or_event

_LOOK_AGAIN_S: Final = 30.0
_RETRY_S: Final = 0.5
_KEY: Final = "queues"
"""All queues are one key: there are few, and their default ones depend on each other."""


class QueueKeeper:
    """A part of the service; one replica at a time acts."""

    name: Final = "queues"

    def __init__(
        self,
        kube: Kube,
        replica: Replica,
        *,
        ownership: Ownership,
        is_synced: Callable[[], bool],
        touch: Callable[[Touched], None],
        events: ControllerEvents,
        clock: Clock,
        metrics: ControllerMetrics,
        log: Logger,
    ) -> None:
        self._kube = kube
        self._replica = replica
        self._ownership = ownership
        self._is_synced = is_synced
        self._touch = touch
        self._events = events
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._poked = asyncio.Event()
        ownership.on_change(lambda _: self.poke())

    def poke(self) -> None:
        """Have the queues looked at."""
        self._poked.set()

    def touch(self, touched: Touched) -> None:
        """Have the queues looked at when one of them changed."""
        if touched.queues:
            self.poke()

    async def run(self) -> None:
        """Keep the queues for ever."""
        wait_s = _RETRY_S
        while True:
            await sleep_or_event(self._clock, wait_s, self._poked)
            self._poked.clear()
            if not self._is_synced() or not self._ownership.owns(_KEY):
                wait_s = _LOOK_AGAIN_S
                continue
            try:
                await self._look()
                wait_s = _LOOK_AGAIN_S
            except (Retryable, Conflict, Rejected) as error:
                self._log.warning("queues_not_kept", reason=str(error))
                wait_s = _RETRY_S

    async def _look(self) -> None:
        for body in missing(self._replica.queues):
            name = body["metadata"]["name"]
            try:
                answer = await self._kube.create(kinds.QUEUE, "", body)
            except AlreadyExists:
                answer = await self._kube.get(kinds.QUEUE, "", name)
            else:
                self._metrics.writes.labels("create", kinds.QUEUE.token).inc()
                self._log.info("queue_created", queue=name)
            self._touch(self._replica.written(kinds.QUEUE, answer))
        for name, queue in sorted(self._replica.queues.items()):
            patch = state_patch(queue)
            if patch is None:
                continue
            answer = await self._kube.patch(
                kinds.QUEUE,
                "",
                name,
                patch,
                uid=queue.metadata.uid,
                resource_version=queue.metadata.resource_version,
                subresource="status",
            )
            self._metrics.writes.labels("patch", kinds.QUEUE.token).inc()
            self._events.queue_opened(queue, state=patch["status"]["state"])
            self._touch(self._replica.written(kinds.QUEUE, answer))
