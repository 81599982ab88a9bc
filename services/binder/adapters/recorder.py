"""Kubernetes Events of pods and PodGroups (D01 to D03), and pods bound and evicted for subscribers.

Kubernetes Events are written when the requests of intents leave room. The same event again is
counted up on the Event that there is. The id of a subscribers' event is made of intent and pod, so
that a redelivered intent announces nothing twice.
"""

from typing import Final

import msgspec
from typing_extensions import override

from pumice.events import PodBound, PodEvicted
from services.binder.adapters.throttle import Throttle
from services.binder.metrics import BinderMetrics
from shared.api.kinds import EVENT, NATIVEPODGROUP, POD, PODGROUP, QUEUE, Kind, decode
from shared.api.time import format_seconds
from shared.bus.event_publisher import EventPublisher
from shared.contracts.messages import Bind, BindGang, DesiredCondition, Evict, Preemptor, Victim
from shared.contracts.subjects import split_key
from shared.jobs.native_groups import INITIALLY_SCHEDULED, UNSCHEDULABLE
from shared.kube.client import Kube
from shared.kube.events import EventWriter, Note
from shared.runtime.env import Env
from shared.runtime.errors import Gone
from shared.runtime.quarantine import REASON

_KINDS: Final = {kind.token: kind for kind in (POD, PODGROUP, NATIVEPODGROUP, QUEUE)}
_KNOWN_MAX: Final = 4096
_YIELD_S: Final = 0.02
_YIELDS: Final = 500
"""An Event waits for a calm moment for at most `_YIELDS * _YIELD_S` seconds."""


class _Written(msgspec.Struct, frozen=True):
    uid: str
    count: int


class _Meta(msgspec.Struct, frozen=True):
    uid: str


class _Created(msgspec.Struct, frozen=True):
    metadata: _Meta


class BinderRecorder(EventWriter):
    """Records Kubernetes Events and writes them in the background; a part of the service."""

    def __init__(
        self,
        kube: Kube,
        *,
        component: str,
        throttle: Throttle,
        env: Env,
        metrics: BinderMetrics,
    ) -> None:
        super().__init__(kube, component=component, env=env, results=metrics.events)
        self._throttle = throttle
        self._written: dict[str, _Written] = {}

    def bound(self, gang: BindGang, item: Bind) -> None:
        """Record that a pod was bound (D02 `Scheduled`)."""
        message = f"Assigned {item.pod} to {item.node} with its group {gang.job}"
        self._event(POD, item.pod, item.uid, "Scheduled", message)

    def waits(self, item: Bind) -> None:
        """Record that the devices of a pod are being prepared before it is bound."""
        message = f"waiting for binding conditions for device on node {item.node}"
        self._event(POD, item.pod, item.uid, "BindingConditionsPending", message)

    def evicted(self, intent: Evict, victim: Victim) -> None:
        """Record that a pod is evicted, on the pod and on its PodGroup (D03 `Evict`)."""
        why = f"{for_whom(intent.preemptor, victim)} ({intent.reason})"
        self._event(POD, victim.pod, victim.uid, "Evict", f"Evicted {why}", warning=True)
        if victim.job:
            self._event(PODGROUP, victim.job, "", "Evict", f"Pod {victim.pod} evicted {why}")

    def pod_condition(self, key: str, uid: str, condition: DesiredCondition) -> None:
        """Record why a pod is not scheduled (D02 `FailedScheduling`)."""
        self._event(POD, key, uid, "FailedScheduling", condition.message, warning=True)

    def podgroup_condition(self, key: str, uid: str, condition: DesiredCondition) -> None:
        """Record a PodGroup's new condition (D02): Unschedulable is a warning, Scheduled is not.

        One that holds no more is no news: the condition that follows it is.
        """
        if condition.status != "True":
            return
        message = f"{condition.reason}: {condition.message}".strip(": ")
        warning = condition.type == "Unschedulable"
        self._event(PODGROUP, key, uid, condition.type, message, warning=warning)

    def native_condition(self, key: str, uid: str, condition: DesiredCondition) -> None:
        """Record that a native PodGroup was scheduled, or why it waits."""
        if condition.type == INITIALLY_SCHEDULED and condition.status == "True":
            self._event(NATIVEPODGROUP, key, uid, condition.reason, "its minimum has nodes")
        elif condition.type == UNSCHEDULABLE and condition.status == "True":
            message = f"{condition.reason}: {condition.message}"
            self._event(NATIVEPODGROUP, key, uid, "Unschedulable", message, warning=True)

    def quarantined(self, token: str, key: str, uid: str, message: str) -> None:
        """Record that an object was quarantined; a `Quarantine` calls it."""
        if token in _KINDS:
            self._event(_KINDS[token], key, uid, REASON, message, warning=True)

    def _event(
        self, kind: Kind, key: str, uid: str, reason: str, message: str, *, warning: bool = False
    ) -> None:
        """Record one Event; an empty uid is read from the API server."""
        namespace, name = split_key(key)
        note = Note(
            kind=kind,
            namespace=namespace,
            about=name,
            uid=uid,
            reason=reason,
            message=message,
            warning=warning,
        )
        self.take(note)

    @override
    async def wait_until_idle(self) -> None:
        for _ in range(_YIELDS):
            if self._throttle.has_spare_slots:
                return
            await self._clock.sleep(_YIELD_S)

    @override
    async def write(self, name: str, note: Note, times: int) -> str:
        before = self._written.pop(name, None)
        if before is not None and await self._count_up(note.place, name, before, times):
            return "repeated"
        created = await self.create(name, await self._with_uid(note), times)
        uid = msgspec.json.decode(created, type=_Created).metadata.uid
        self._remember(name, _Written(uid, times))
        return "written"

    async def _count_up(self, namespace: str, name: str, before: _Written, times: int) -> bool:
        """Return whether the Event could be counted up; the API server forgets after an hour."""
        count = before.count + times
        body = {"count": count, "lastTimestamp": format_seconds(self._clock.now())}
        try:
            await self._kube.patch(EVENT, namespace, name, body, uid=before.uid)
        except Gone:
            return False
        self._remember(name, _Written(before.uid, count))
        return True

    async def _with_uid(self, note: Note) -> Note:
        """Return a note with the uid of its object; an eviction tells no kind of the PodGroup."""
        if note.uid:
            return note
        try:
            found = await self._kube.get(note.kind, note.namespace, note.about)
        except Gone:
            if note.kind is not PODGROUP:
                raise
            note = msgspec.structs.replace(note, kind=NATIVEPODGROUP)
            found = await self._kube.get(note.kind, note.namespace, note.about)
        return msgspec.structs.replace(note, uid=decode(note.kind, found).metadata.uid)

    def _remember(self, name: str, written: _Written) -> None:
        self._written[name] = written
        if len(self._written) > _KNOWN_MAX:
            del self._written[next(iter(self._written))]


class PodEvents:
    """Turns finished items of intents into events."""

    def __init__(self, event_publisher: EventPublisher) -> None:
        self._event_publisher = event_publisher

    def bound(self, gang: BindGang, item: Bind) -> None:
        """Announce that a pod is bound."""
        event = PodBound(
            pod=item.pod,
            uid=item.uid,
            node=item.node,
            gang=gang.job,
            queue=gang.queue,
            job=item.owner_job,
        )
        self._event_publisher.publish(event, f"{gang.id}/{item.uid}")

    def evicted(self, intent: Evict, victim: Victim) -> None:
        """Announce that a pod is being evicted, for which preemptor and why."""
        self._event_publisher.publish(eviction_event(intent, victim), f"{intent.id}/{victim.uid}")


def eviction_event(intent: Evict, victim: Victim) -> PodEvicted:
    """Return the event of an eviction, which subscribers to the victim's namespace read."""
    preemptor = intent.preemptor
    return PodEvicted(
        pod=victim.pod,
        uid=victim.uid,
        node=victim.node,
        gang=victim.job,
        queue=victim.queue,
        job=victim.owner_job,
        by=intent.reason,
        preemptor=preemptor.pod if preemptor and _may_be_named(preemptor, victim) else "",
        preemptor_queue=preemptor.queue if preemptor else "",
        preemptor_priority=preemptor.priority if preemptor else 0,
        reason=for_whom(preemptor, victim),
    )


def _may_be_named(preemptor: Preemptor, victim: Victim) -> bool:
    """Tell whether those who may read of a victim may read of the pod that it makes room for."""
    return preemptor.pod.partition("/")[0] == victim.pod.partition("/")[0]


def for_whom(preemptor: Preemptor | None, victim: Victim) -> str:
    """Return why a pod is evicted; names of other namespaces are hidden."""
    if preemptor is None:
        return "to make room"
    if _may_be_named(preemptor, victim):
        return f"to make room for {preemptor.pod}"
    if not preemptor.queue:
        return "to make room for a pod of another namespace"
    return (
        f"to make room for a pod of another namespace, of queue {preemptor.queue} with priority "
        f"{preemptor.priority}"
    )
