"""Writes desired statuses to the API server, with one request if no other client wrote the object.

A message names the resourceVersion that it was decided on, and the patch contains it, so the API
server detects whether the object has changed. If it has, or if a message names no version, the
object is read and compared. It is read from the API server and not from STATE: with a lagging copy
the wrong result "nothing to write" would be final.
"""

import enum
from typing import Any, Final

import msgspec

from services.binder.adapters.recorder import BinderRecorder
from services.binder.intents.desired import (
    as_decided,
    changed_conditions,
    gate_patch,
    native_patch,
    pod_patch,
    podgroup_patch,
    queue_patch,
    shard_patch,
)
from shared.api import keys
from shared.api.core import Pod
from shared.api.kinds import NATIVEPODGROUP, NODESHARD, POD, PODGROUP, QUEUE, Kind, decode
from shared.api.native_groups import NativePodGroup
from shared.api.scheduling import NodeShard, PodGroup, Queue
from shared.api.time import format_seconds
from shared.contracts.messages import (
    Desired,
    DesiredCondition,
    DesiredNativePodGroup,
    DesiredNodeShard,
    DesiredPod,
    DesiredPodGroup,
    DesiredQueue,
    DesiredUngated,
)
from shared.contracts.subjects import split_key
from shared.kube.client import Kube
from shared.kube.decode import partial_object
from shared.runtime.clock import Clock
from shared.runtime.errors import Gone

KIND_OF: Final[dict[type, Kind]] = {
    DesiredPodGroup: PODGROUP,
    DesiredNativePodGroup: NATIVEPODGROUP,
    DesiredPod: POD,
    DesiredUngated: POD,
    DesiredQueue: QUEUE,
    DesiredNodeShard: NODESHARD,
}


class NoPatch(enum.Enum):
    """Why nothing has to be written."""

    EQUAL = "equal"
    OVER = "over"
    """The object was deleted, or is a pod that is bound, so that the status is void."""


class StatusPatch(msgspec.Struct, frozen=True, kw_only=True):
    """The write of a status; valid only for the version `rv` of the object."""

    desired: Desired
    status: dict[str, Any]
    rv: str
    new_conditions: list[DesiredCondition] = []
    """Conditions that are new or changed; each becomes a Kubernetes Event."""

    @property
    def kind(self) -> Kind:
        """Return the kind of the object."""
        return KIND_OF[type(self.desired)]


class Statuses:
    """Compares and writes statuses. Raises `Retryable`, `Conflict` (compare again), `Rejected`."""

    def __init__(self, kube: Kube, *, recorder: BinderRecorder, clock: Clock) -> None:
        self._kube = kube
        self._recorder = recorder
        self._clock = clock

    def decided(self, desired: Desired) -> StatusPatch:
        """Return the write for an object that has not changed since the decision."""
        status, new_conditions = as_decided(desired, now=format_seconds(self._clock.now()))
        return StatusPatch(
            desired=desired, status=status, rv=desired.rv, new_conditions=new_conditions
        )

    async def compare(self, desired: Desired) -> StatusPatch | NoPatch:
        """Read the object and return the write that gives it the desired status."""
        kind = KIND_OF[type(desired)]
        namespace, name = split_key(desired.key)
        try:
            present = decode(kind, await self._kube.get(kind, namespace, name))
        except Gone:
            return NoPatch.OVER
        if present.metadata.uid != desired.uid:
            return NoPatch.OVER
        return compare(desired, present, now=format_seconds(self._clock.now()))

    async def is_gone(self, desired: Desired) -> bool:
        """Return whether the object of a desired status was deleted; reads its metadata only."""
        kind = KIND_OF[type(desired)]
        namespace, name = split_key(desired.key)
        try:
            found = partial_object(await self._kube.get(kind, namespace, name))
        except Gone:
            return True
        return found.metadata.uid != desired.uid

    async def write(self, change: StatusPatch) -> None:
        """Write a change. Raises Conflict when the object has changed, Gone when it is gone."""
        desired = change.desired
        if change.status:
            await self._patch(change)
        if isinstance(desired, DesiredNodeShard) and desired.leadership_term is not msgspec.UNSET:
            await self._sign(desired)
        for condition in change.new_conditions:
            if change.kind is POD:
                self._recorder.pod_condition(desired.key, desired.uid, condition)
            elif change.kind is NATIVEPODGROUP:
                self._recorder.native_condition(desired.key, desired.uid, condition)
            else:
                self._recorder.podgroup_condition(desired.key, desired.uid, condition)

    async def _patch(self, change: StatusPatch) -> None:
        """Write a status. A PodGroup's goes to the object itself: it has no subresource (C03 ⚠)."""
        namespace, name = split_key(change.desired.key)
        of_spec = isinstance(change.desired, DesiredUngated)
        await self._kube.patch(
            change.kind,
            namespace,
            name,
            {"spec" if of_spec else "status": change.status},
            uid=change.desired.uid,
            resource_version=change.rv,
            subresource="" if of_spec or change.kind is PODGROUP else "status",
            patch_type="strategic" if change.kind in {POD, NATIVEPODGROUP} else "merge",
        )

    async def _sign(self, desired: DesiredNodeShard) -> None:
        """Write into a NodeShard the leadership term in which its scheduler claims nodes."""
        body = {
            "metadata": {"annotations": {keys.LEADERSHIP_TERM: desired.leadership_term or None}}
        }
        await self._kube.patch(NODESHARD, "", desired.key, body, uid=desired.uid)


def compare(
    desired: Desired, present: PodGroup | NativePodGroup | Pod | Queue | NodeShard, *, now: str
) -> StatusPatch | NoPatch:
    """Return the difference between a desired status and an object of the desired uid."""
    new_conditions: list[DesiredCondition] = []
    if isinstance(desired, DesiredPodGroup) and isinstance(present, PodGroup):
        patch = podgroup_patch(desired, present, now=now)
        new_conditions = changed_conditions(desired.conditions, present.status.conditions)
    elif isinstance(desired, DesiredNativePodGroup) and isinstance(present, NativePodGroup):
        patch, new_conditions = native_patch(desired, present, now=now)
    elif isinstance(desired, DesiredUngated) and isinstance(present, Pod):
        patch = gate_patch(present)
    elif isinstance(desired, DesiredNodeShard) and isinstance(present, NodeShard):
        patch = shard_patch(desired, present, now=now)
        signed = present.metadata.annotations.get(keys.LEADERSHIP_TERM, "")
        if not patch and desired.leadership_term not in (msgspec.UNSET, signed):
            rv = present.metadata.resource_version
            return StatusPatch(desired=desired, status={}, rv=rv)
    elif isinstance(desired, DesiredPod) and isinstance(present, Pod):
        if present.spec.node_name:
            return NoPatch.OVER
        patch = pod_patch(desired, present, now=now)
        new_conditions = changed_conditions(desired.conditions, present.status.conditions)
    else:
        assert isinstance(desired, DesiredQueue), "every kind of message is handled"
        assert isinstance(present, Queue), "objects are read with the view of their kind"
        patch = queue_patch(desired, present)
    if not patch:
        return NoPatch.EQUAL
    return StatusPatch(
        desired=desired,
        status=patch,
        rv=present.metadata.resource_version,
        new_conditions=new_conditions,
    )
