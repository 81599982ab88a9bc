"""Kubernetes Events: what `kubectl describe` shows of scheduling (D01 to D03).

They are for people, so they never cost scheduling anything: a bounded, coalescing list, written
when the requests of intents leave room, dropped and counted when full. An event's name is made of
its object and text; two binders that tell of the same thing (a redelivery) write one event.
"""

import asyncio
import hashlib
from typing import Any, Final, Literal

import msgspec

from services.binder.adapters.throttle import Throttle
from services.binder.metrics import BinderMetrics
from shared.api.kinds import EVENT, POD, PODGROUP, Kind, decode
from shared.api.time import format_seconds
from shared.contracts.messages import Bind, BindGang, Condition, Evict, Victim
from shared.contracts.subjects import split_key
from shared.kube.client import Kube
from shared.kube.errors import AlreadyExists
from shared.runtime.clock import Clock
from shared.runtime.errors import Gone, PumiceError
from shared.runtime.logs import Logger

_WAITING_MAX: Final = 10_000
_KNOWN_MAX: Final = 4096
_WRITERS: Final = 2
_YIELD_S: Final = 0.02
_YIELDS: Final = 500
"""An event waits for a calm moment for at most `_YIELDS * _YIELD_S` seconds."""
_MESSAGE_MAX: Final = 1024


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to tell about one object; an empty uid is looked up."""

    kind: Kind
    key: str
    uid: str = ""
    type: Literal["Normal", "Warning"] = "Normal"
    reason: str
    message: str

    @property
    def name(self) -> str:
        """Return the event's name: the same for the same thing told twice."""
        parts = (self.kind.kind, self.key, self.uid, self.reason, self.message)
        digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()
        return f"{split_key(self.key)[1][:200].rstrip('.-')}.{digest}"


class _Written(msgspec.Struct, frozen=True):
    uid: str
    count: int


class _Meta(msgspec.Struct, frozen=True):
    uid: str


class _Created(msgspec.Struct, frozen=True):
    metadata: _Meta


class Recorder:
    """Writes Kubernetes Events in the background; a part of the service."""

    name: Final = "events"

    def __init__(
        self,
        kube: Kube,
        *,
        component: str,
        instance: str,
        throttle: Throttle,
        clock: Clock,
        metrics: BinderMetrics,
        log: Logger,
    ) -> None:
        self._kube = kube
        self._component = component
        self._instance = instance
        self._throttle = throttle
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._waiting: dict[Note, int] = {}
        self._filled = asyncio.Event()
        self._written: dict[str, _Written] = {}

    def bound(self, gang: BindGang, item: Bind) -> None:
        """Tell that a pod was bound (D02 `Scheduled`)."""
        self.take(
            Note(
                kind=POD,
                key=item.pod,
                uid=item.uid,
                reason="Scheduled",
                message=f"Assigned {item.pod} to {item.node} with its group {gang.job}",
            )
        )

    def evicted(self, intent: Evict, victim: Victim) -> None:
        """Tell that a pod is evicted, on the pod and on its PodGroup (D03 `Evict`)."""
        why = f"to make room ({intent.reason})"
        self.take(
            Note(
                kind=POD,
                key=victim.pod,
                uid=victim.uid,
                type="Warning",
                reason="Evict",
                message=f"Evicted {why}",
            )
        )
        if victim.job:
            message = f"Pod {victim.pod} evicted {why}"
            self.take(Note(kind=PODGROUP, key=victim.job, reason="Evict", message=message))

    def pod_condition(self, key: str, uid: str, condition: Condition) -> None:
        """Tell why a pod is not scheduled (D02 `FailedScheduling`)."""
        self.take(
            Note(
                kind=POD,
                key=key,
                uid=uid,
                type="Warning",
                reason="FailedScheduling",
                message=condition.message,
            )
        )

    def podgroup_condition(self, key: str, uid: str, condition: Condition) -> None:
        """Tell a PodGroup's new condition (D02): Unschedulable warns, Scheduled does not."""
        self.take(
            Note(
                kind=PODGROUP,
                key=key,
                uid=uid,
                type="Warning" if condition.type == "Unschedulable" else "Normal",
                reason=condition.type,
                message=f"{condition.reason}: {condition.message}".strip(": "),
            )
        )

    def take(self, note: Note) -> None:
        """Take one event; never waits. The same one that still waits is counted up."""
        if note not in self._waiting and len(self._waiting) >= _WAITING_MAX:
            self._metrics.events.labels("dropped").inc()
            return
        self._waiting[note] = self._waiting.get(note, 0) + 1
        self._filled.set()

    async def run(self) -> None:
        """Write events for ever."""
        async with asyncio.TaskGroup() as group:
            for number in range(_WRITERS):
                group.create_task(self._write_all(), name=f"events-{number}")

    async def _write_all(self) -> None:
        while True:
            await self._filled.wait()
            await self._calm()
            if not self._waiting:
                self._filled.clear()
                continue
            note = next(iter(self._waiting))
            times = self._waiting.pop(note)
            try:
                result = await self._write(note, times)
            except PumiceError as error:
                result = "failed"
                self._log.info("event_not_written", name=note.name, reason=str(error))
            self._metrics.events.labels(result).inc()

    async def _calm(self) -> None:
        for _ in range(_YIELDS):
            if self._throttle.calm:
                return
            await self._clock.sleep(_YIELD_S)

    async def _write(self, note: Note, times: int) -> str:
        namespace = split_key(note.key)[0] or "default"
        now = format_seconds(self._clock.now())
        before = self._written.pop(note.name, None)
        if before is not None and await self._count_up(namespace, note.name, before, times):
            return "repeated"
        try:
            created = await self._kube.create(EVENT, namespace, await self._event(note, times, now))
        except AlreadyExists:
            return "known"
        uid = msgspec.json.decode(created, type=_Created).metadata.uid
        self._remember(note.name, _Written(uid, times))
        return "written"

    async def _count_up(self, namespace: str, name: str, before: _Written, times: int) -> bool:
        """Return whether the event could be counted up; the API server forgets after an hour."""
        count = before.count + times
        body = {"count": count, "lastTimestamp": format_seconds(self._clock.now())}
        try:
            await self._kube.patch(EVENT, namespace, name, body, uid=before.uid)
        except Gone:
            return False
        self._remember(name, _Written(before.uid, count))
        return True

    async def _event(self, note: Note, times: int, now: str) -> dict[str, Any]:
        namespace, name = split_key(note.key)
        uid = note.uid
        if not uid:
            found = decode(note.kind, await self._kube.get(note.kind, namespace, name))
            uid = found.metadata.uid
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": note.name, "namespace": namespace or "default"},
            "involvedObject": {
                "apiVersion": note.kind.api_version,
                "kind": note.kind.kind,
                "namespace": namespace,
                "name": name,
                "uid": uid,
            },
            "type": note.type,
            "reason": note.reason,
            "message": note.message[:_MESSAGE_MAX],
            "count": times,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
        }

    def _remember(self, name: str, written: _Written) -> None:
        self._written[name] = written
        if len(self._written) > _KNOWN_MAX:
            del self._written[next(iter(self._written))]
