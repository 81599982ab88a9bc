"""Brings one object's status to what is wanted: get, compare, patch what differs.

The object is read from the API server and not from STATE: another binder may have written since,
and a copy that lags would make "nothing to do" a lie that nobody corrects. One small read per
change of a status is cheap; only changes are published.
"""

import enum
from typing import Any, assert_never

from services.binder.adapters.recorder import Recorder
from services.binder.intents.desired import (
    Patch,
    changed_conditions,
    pod_patch,
    podgroup_patch,
    queue_patch,
)
from shared.api.core import Pod
from shared.api.kinds import POD, PODGROUP, QUEUE, Kind, decode
from shared.api.scheduling import PodGroup, Queue
from shared.api.time import format_seconds
from shared.contracts.messages import Desired, DesiredPod, DesiredPodGroup, DesiredQueue
from shared.contracts.subjects import split_key
from shared.kube.client import Kube
from shared.runtime.clock import Clock
from shared.runtime.errors import Gone


class Applied(enum.Enum):
    """What became of a wanted status."""

    WRITTEN = "written"
    EQUAL = "equal"
    OVER = "over"
    """The object is gone, or (a pod) beyond the point where the status means anything."""


class Statuses:
    """Applies wanted statuses. Raises Retryable, Conflict (look again) or Rejected."""

    def __init__(self, kube: Kube, *, recorder: Recorder, clock: Clock) -> None:
        self._kube = kube
        self._recorder = recorder
        self._clock = clock

    async def apply(self, wanted: Desired) -> Applied:
        """Make the object's status what is wanted."""
        try:
            if isinstance(wanted, DesiredPodGroup):
                return await self._podgroup(wanted)
            if isinstance(wanted, DesiredPod):
                return await self._pod(wanted)
            if isinstance(wanted, DesiredQueue):
                return await self._queue(wanted)
        except Gone:
            return Applied.OVER
        assert_never(wanted)

    async def _podgroup(self, wanted: DesiredPodGroup) -> Applied:
        """Patch the object itself: a PodGroup has no status subresource (C03 ⚠)."""
        present: PodGroup = await self._get(PODGROUP, wanted.key, wanted.uid)
        patch = podgroup_patch(wanted, present, now=self._now())
        if not patch:
            return Applied.EQUAL
        await self._patch(PODGROUP, wanted, patch)
        for condition in changed_conditions(wanted.conditions, present.status.conditions):
            self._recorder.podgroup_condition(wanted.key, wanted.uid, condition)
        return Applied.WRITTEN

    async def _pod(self, wanted: DesiredPod) -> Applied:
        """Patch with the version that was read, so that a pod bound since is a Conflict."""
        present: Pod = await self._get(POD, wanted.key, wanted.uid)
        if present.spec.node_name:
            return Applied.OVER
        patch = pod_patch(wanted, present, now=self._now())
        if not patch:
            return Applied.EQUAL
        namespace, name = split_key(wanted.key)
        await self._kube.patch(
            POD,
            namespace,
            name,
            {
                "metadata": {"resourceVersion": present.metadata.resource_version},
                "status": patch,
            },
            uid=wanted.uid,
            subresource="status",
            patch_type="strategic",
        )
        for condition in changed_conditions(wanted.conditions, present.status.conditions):
            self._recorder.pod_condition(wanted.key, wanted.uid, condition)
        return Applied.WRITTEN

    async def _queue(self, wanted: DesiredQueue) -> Applied:
        present: Queue = await self._get(QUEUE, wanted.key, wanted.uid)
        patch = queue_patch(wanted, present)
        if not patch:
            return Applied.EQUAL
        await self._patch(QUEUE, wanted, patch, subresource="status")
        return Applied.WRITTEN

    async def _get(self, kind: Kind, key: str, uid: str) -> Any:  # noqa: ANN401 - its view
        namespace, name = split_key(key)
        present = decode(kind, await self._kube.get(kind, namespace, name))
        if present.metadata.uid != uid:
            raise Gone(f"{kind.kind} {key} has another uid")
        return present

    async def _patch(
        self, kind: Kind, wanted: Desired, patch: Patch, *, subresource: str = ""
    ) -> None:
        namespace, name = split_key(wanted.key)
        await self._kube.patch(
            kind, namespace, name, {"status": patch}, uid=wanted.uid, subresource=subresource
        )

    def _now(self) -> str:
        return format_seconds(self._clock.now())
