"""Scheduling events for subscribers: queued here, published by a part of its own.

A slow or absent EVENTS stream never holds up a cycle: the queue is bounded, and what does not fit
is counted and dropped (subscribers learn the state from the objects themselves).
"""

import asyncio
from typing import Any, Final

import msgspec

from services.scheduler.engine.plan import Explanation
from shared.api.time import format_micros
from shared.bus.port import Bus
from shared.contracts.subjects import Subjects
from shared.runtime.clock import Clock
from shared.runtime.errors import PumiceError
from shared.runtime.logs import Logger

LIMIT: Final = 10_000


class BusEvents:
    """Publishes the scheduler's events; a part of the service."""

    name: Final = "events"

    def __init__(
        self, bus: Bus, *, stream: str, subjects: Subjects, clock: Clock, log: Logger
    ) -> None:
        self._publisher = bus.publisher(stream)
        self._subjects = subjects
        self._clock = clock
        self._log = log
        self._waiting: asyncio.Queue[tuple[str, str, bytes]] = asyncio.Queue(LIMIT)
        self.dropped = 0

    async def run(self) -> None:
        """Publish what is queued, for ever."""
        while True:
            subject, event_id, payload = await self._waiting.get()
            try:
                await self._publisher.publish(subject, payload, msg_id=event_id)
            except PumiceError as error:
                self.dropped += 1
                self._log.warning("event_not_published", subject=subject, reason=str(error))

    def _put(self, kind: str, key: str, event_id: str, data: dict[str, Any]) -> None:
        event = {
            "specversion": "1.0",
            "id": event_id,
            "source": "pumice/scheduler",
            "type": kind,
            "subject": key,
            "time": format_micros(self._clock.now()),
            "datacontenttype": "application/json",
            "data": data,
        }
        try:
            self._waiting.put_nowait(
                (self._subjects.event(kind, key), event_id, msgspec.json.encode(event))
            )
        except asyncio.QueueFull:
            self.dropped += 1

    def admitted(self, *, key: str, uid: str, cycle: int) -> None:
        """See `report.EventSink`."""
        self._put("gang-admitted", key, f"admitted-{uid}-{cycle}", {"job": key})

    def placed(self, *, key: str, uid: str, cycle: int, queue: str, nodes: list[str]) -> None:
        """See `report.EventSink`."""
        data = {"job": key, "queue": queue, "nodes": nodes}
        self._put("gang-placed", key, f"placed-{uid}-{cycle}", data)

    def unschedulable(self, explanation: Explanation, *, cycle: int) -> None:
        """See `report.EventSink`."""
        data = msgspec.to_builtins(explanation)
        self._put("gang-waiting", explanation.job, f"waiting-{explanation.job}-{cycle}", data)
