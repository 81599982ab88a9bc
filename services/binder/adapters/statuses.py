"""Brings one object's status to what is wanted: read, compare, patch what differs.

The object is read from the API server and not from STATE: another binder may have written since,
and a copy that lags would make "nothing to do" a lie that nobody corrects. One small read per
change of a status is cheap; only changes are published. A patch carries the version that was
read, so that it never overwrites what came in between.
"""

import enum
from typing import Any, Final

import msgspec

from services.binder.adapters.recorder import Recorder
from services.binder.intents.desired import (
    changed_conditions,
    pod_patch,
    podgroup_patch,
    queue_patch,
)
from shared.api.core import Pod
from shared.api.kinds import POD, PODGROUP, QUEUE, Kind, decode
from shared.api.scheduling import PodGroup, Queue
from shared.api.time import format_seconds
from shared.contracts.messages import (
    Condition,
    Desired,
    DesiredPod,
    DesiredPodGroup,
    DesiredQueue,
)
from shared.contracts.subjects import split_key
from shared.kube.client import Kube
from shared.runtime.clock import Clock
from shared.runtime.errors import Gone

KIND_OF: Final[dict[type, Kind]] = {
    DesiredPodGroup: PODGROUP,
    DesiredPod: POD,
    DesiredQueue: QUEUE,
}


class Nothing(enum.Enum):
    """Why there is nothing to write."""

    EQUAL = "equal"
    OVER = "over"
    """The object is gone, or (a pod) beyond the point where the status means anything."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What to write; holds only for the object as it was read (`body` names its version)."""

    kind: Kind
    wanted: Desired
    body: dict[str, Any]
    subresource: str = ""
    strategic: bool = False
    news: list[Condition] = []
    """Conditions that say something new: each becomes a Kubernetes Event."""


class Statuses:
    """Compares and writes. Methods raise Retryable, Conflict (compare again) or Rejected."""

    def __init__(self, kube: Kube, *, recorder: Recorder, clock: Clock) -> None:
        self._kube = kube
        self._recorder = recorder
        self._clock = clock

    async def compare(self, wanted: Desired) -> Change | Nothing:
        """Read the object and return what to write to make its status what is wanted."""
        kind = KIND_OF[type(wanted)]
        namespace, name = split_key(wanted.key)
        try:
            present = decode(kind, await self._kube.get(kind, namespace, name))
        except Gone:
            return Nothing.OVER
        if present.metadata.uid != wanted.uid:
            return Nothing.OVER
        return compare(wanted, present, now=format_seconds(self._clock.now()))

    async def write(self, change: Change) -> None:
        """Write a change. Raises Conflict when the object has changed since it was read."""
        wanted = change.wanted
        namespace, name = split_key(wanted.key)
        await self._kube.patch(
            change.kind,
            namespace,
            name,
            change.body,
            uid=wanted.uid,
            subresource=change.subresource,
            patch_type="strategic" if change.strategic else "merge",
        )
        for condition in change.news:
            if change.kind is POD:
                self._recorder.pod_condition(wanted.key, wanted.uid, condition)
            else:
                self._recorder.podgroup_condition(wanted.key, wanted.uid, condition)


def compare(wanted: Desired, present: PodGroup | Pod | Queue, *, now: str) -> Change | Nothing:
    """Return the difference between a wanted status and an object of the wanted uid.

    A PodGroup has no status subresource (C03 ⚠): its patch goes to the object itself.
    """
    news: list[Condition] = []
    if isinstance(wanted, DesiredPodGroup) and isinstance(present, PodGroup):
        patch = podgroup_patch(wanted, present, now=now)
        news = changed_conditions(wanted.conditions, present.status.conditions)
    elif isinstance(wanted, DesiredPod) and isinstance(present, Pod):
        if present.spec.node_name:
            return Nothing.OVER
        patch = pod_patch(wanted, present, now=now)
        news = changed_conditions(wanted.conditions, present.status.conditions)
    else:
        assert isinstance(wanted, DesiredQueue), "every kind of wish is handled"
        assert isinstance(present, Queue), "objects are read with the view of their kind"
        patch = queue_patch(wanted, present)
    if not patch:
        return Nothing.EQUAL
    kind = KIND_OF[type(wanted)]
    return Change(
        kind=kind,
        wanted=wanted,
        body={
            "metadata": {"resourceVersion": present.metadata.resource_version},
            "status": patch,
        },
        subresource="" if kind is PODGROUP else "status",
        strategic=kind is POD,
        news=news,
    )
