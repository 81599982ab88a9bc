"""Kubernetes Events on Jobs and Queues (J34, Q05): for people, bounded, never in the way.

An event's name follows from its object and text, so that a look that is repeated counts the same
event up instead of writing another.
"""

import asyncio
import zlib
from typing import Any, Final

import msgspec

from services.controller.metrics import ControllerMetrics
from shared.api.batch import Job
from shared.api.kinds import EVENT, JOB, QUEUE, Kind
from shared.api.meta import ObjectMeta
from shared.api.scheduling import Queue
from shared.api.time import format_seconds
from shared.kube.client import Kube
from shared.kube.errors import AlreadyExists
from shared.runtime.clock import Clock
from shared.runtime.errors import PumiceError
from shared.runtime.logs import Logger

COMPONENT: Final = "vc-controller-manager"
_WAITING_MAX: Final = 5_000
_WRITERS: Final = 2
_MESSAGE_MAX: Final = 1024
_CLUSTER_WIDE: Final = "default"
"""Namespace of events on objects that have none, as everywhere in Kubernetes."""


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to tell about one job or queue."""

    kind: Kind = JOB
    namespace: str
    """Empty for a queue."""
    about: str
    """Name of the object."""
    uid: str
    reason: str
    message: str
    warning: bool = False
    occasion: str = ""
    """Tells apart what is said twice in the same words and happened twice."""

    @property
    def name(self) -> str:
        """Return the name of the Event: the same for the same thing told twice."""
        text = f"{self.uid}/{self.reason}/{self.message}{self.occasion}".encode()
        return f"{self.about[:200].rstrip('.-')}.{zlib.crc32(text):08x}{len(text):04x}"


class Recorder:
    """Writes events in the background; a part of the service."""

    name: Final = "events"

    def __init__(
        self,
        kube: Kube,
        *,
        instance: str,
        clock: Clock,
        metrics: ControllerMetrics,
        log: Logger,
    ) -> None:
        self._kube = kube
        self._instance = instance
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._waiting: dict[str, tuple[Note, int]] = {}
        self._filled = asyncio.Event()

    def tell(
        self, job: Job, reason: str, message: str, *, warning: bool = False, occasion: str = ""
    ) -> None:
        """Take one event; never waits. The same one that still waits is counted up."""
        note = Note(
            namespace=job.metadata.namespace,
            about=job.metadata.name,
            uid=job.metadata.uid,
            reason=reason,
            message=message[:_MESSAGE_MAX],
            warning=warning,
            occasion=occasion,
        )
        self._take(note)

    def tell_queue(
        self, queue: Queue, reason: str, message: str, *, occasion: str, warning: bool = False
    ) -> None:
        """Take one event on a queue (Q05); `occasion` is the uid of the order behind it."""
        note = Note(
            kind=QUEUE,
            namespace="",
            about=queue.metadata.name,
            uid=queue.metadata.uid,
            reason=reason,
            message=message[:_MESSAGE_MAX],
            warning=warning,
            occasion=occasion,
        )
        self._take(note)

    def tell_of(
        self,
        kind: Kind,
        about: ObjectMeta,
        reason: str,
        message: str,
        *,
        occasion: str = "",
        warning: bool = False,
    ) -> None:
        """Take one event on an object of any kind; `occasion` as in Note."""
        note = Note(
            kind=kind,
            namespace=about.namespace,
            about=about.name,
            uid=about.uid,
            reason=reason,
            message=message[:_MESSAGE_MAX],
            warning=warning,
            occasion=occasion,
        )
        self._take(note)

    def _take(self, note: Note) -> None:
        name = note.name
        if name not in self._waiting and len(self._waiting) >= _WAITING_MAX:
            self._metrics.events.labels("dropped").inc()
            return
        _, times = self._waiting.get(name, (note, 0))
        self._waiting[name] = (note, times + 1)
        self._filled.set()

    async def run(self) -> None:
        """Write events for ever."""
        async with asyncio.TaskGroup() as group:
            for number in range(_WRITERS):
                group.create_task(self._write_all(), name=f"events-{number}")

    async def _write_all(self) -> None:
        while True:
            await self._filled.wait()
            if not self._waiting:
                self._filled.clear()
                continue
            note, times = self._waiting.pop(next(iter(self._waiting)))
            try:
                await self._kube.create(
                    EVENT, note.namespace or _CLUSTER_WIDE, self._body(note, times)
                )
                result = "written"
            except AlreadyExists:
                result = "known"
            except PumiceError as error:
                result = "failed"
                self._log.info("event_not_written", event_name=note.name, reason=str(error))
            self._metrics.events.labels(result).inc()

    def _body(self, note: Note, times: int) -> dict[str, Any]:
        now = format_seconds(self._clock.now())
        return {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.kind,
            "metadata": {"name": note.name, "namespace": note.namespace or _CLUSTER_WIDE},
            "involvedObject": {
                "apiVersion": note.kind.api_version,
                "kind": note.kind.kind,
                "namespace": note.namespace,
                "name": note.about,
                "uid": note.uid,
            },
            "type": "Warning" if note.warning else "Normal",
            "reason": note.reason,
            "message": note.message,
            "count": times,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": self._instance,
        }
