"""Kubernetes Events, what `kubectl describe` shows, written in the background.

The list of waiting Events is bounded and merges equal ones; Events beyond the bound are dropped
and counted. An Event's name is a hash of its object and text, so that a repeated reconciliation, or
a second replica that reports the same, writes one Event. The recorders of binder and controller
decide what is reported.
"""

import asyncio
import hashlib
from typing import Any, Final

import msgspec
from prometheus_client import Counter

from shared.api.kinds import EVENT, Kind
from shared.api.time import format_seconds
from shared.kube.client import Kube
from shared.kube.errors import AlreadyExists
from shared.runtime.env import Env
from shared.runtime.errors import PumiceError
from shared.runtime.tasks import TaskGroup

_WAITING_MAX: Final = 10_000
_WRITERS: Final = 2
_MESSAGE_MAX: Final = 1024
_CLUSTER_WIDE: Final = "default"
"""Namespace of Events on objects that have none, as everywhere in Kubernetes."""


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """An Event to be written about one object."""

    kind: Kind
    namespace: str
    """Empty for an object that has none."""
    about: str
    """Name of the object."""
    uid: str
    reason: str
    message: str
    warning: bool = False
    occasion: str = ""
    """Distinguishes two occurrences that are described in the same words."""

    @property
    def name(self) -> str:
        """Return the name of the Event: the same for the same report."""
        content = (self.kind.kind, self.namespace, self.about, self.uid, self.reason, self.message)
        digest = hashlib.blake2b(
            repr((*content, self.occasion)).encode(), digest_size=8
        ).hexdigest()
        return f"{self.about[:200].rstrip('.-')}.{digest}"

    @property
    def place(self) -> str:
        """Return the namespace of the Event."""
        return self.namespace or _CLUSTER_WIDE


class EventWriter:
    """Writes Events; a part of the service."""

    name: Final = "events"

    def __init__(
        self,
        kube: Kube,
        *,
        component: str,
        env: Env,
        results: Counter,
    ) -> None:
        """`results` counts Events by what became of them."""
        self._kube = kube
        self._component = component
        self._instance = env.instance
        self._clock = env.clock
        self._results = results
        self._quarantine = env.quarantine
        self._log = env.log
        self._waiting: dict[str, tuple[Note, int]] = {}
        self._filled = asyncio.Event()

    def take(self, note: Note) -> None:
        """Take one Event; never waits. The same one that still waits is counted up."""
        name = note.name
        if name not in self._waiting and len(self._waiting) >= _WAITING_MAX:
            self._results.labels("dropped").inc()
            return
        _, times = self._waiting.get(name, (note, 0))
        self._waiting[name] = (note, times + 1)
        self._filled.set()

    async def run(self) -> None:
        """Write Events until cancelled."""
        async with TaskGroup() as group:
            for number in range(_WRITERS):
                group.create_task(self._write_all(), name=f"events-{number}")

    async def _write_all(self) -> None:
        while True:
            await self._filled.wait()
            await self.wait_until_idle()
            if not self._waiting:
                self._filled.clear()
                continue
            name = next(iter(self._waiting))
            note, times = self._waiting.pop(name)
            result = "failed"
            try:
                with self._quarantine.isolate(EVENT.token, f"{note.place}/{name}", stage="tell"):
                    result = await self.write(name, note, times)
            except AlreadyExists:
                result = "known"
            except PumiceError as error:
                self._log.info("event_not_written", event_name=name, reason=str(error))
            self._results.labels(result).inc()

    async def wait_until_idle(self) -> None:
        """Return when Events may be written; for services whose other requests go first."""

    async def write(self, name: str, note: Note, times: int) -> str:
        """Write one Event; returns what became of it. Raises AlreadyExists for a known one."""
        await self.create(name, note, times)
        return "written"

    async def create(self, name: str, note: Note, times: int) -> bytes:
        """Create an Event about something that happened `times` times, and return it."""
        now = format_seconds(self._clock.now())
        body: dict[str, Any] = {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.kind,
            "metadata": {"name": name, "namespace": note.place},
            "involvedObject": {
                "apiVersion": note.kind.api_version,
                "kind": note.kind.kind,
                "namespace": note.namespace,
                "name": note.about,
                "uid": note.uid,
            },
            "type": "Warning" if note.warning else "Normal",
            "reason": note.reason,
            "message": note.message[:_MESSAGE_MAX],
            "count": times,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
        }
        return await self._kube.create(EVENT, note.place, body)
