"""Volumes before a bind: what to ask of a claim, and when it is ready (CA11).

A claim of a class with `WaitForFirstConsumer` waits for its pod's node. The binder says which: it
reserves the volume that the scheduler chose (`spec.claimRef`), or names the node
(`volume.kubernetes.io/selected-node`) so that a provisioner makes one there. Then Kubernetes' own
controllers bind claim and volume, and the pod is bound when they have. Deciding again is left to
the scheduler: a provisioner that cannot serve the node takes the annotation away, and the bind
fails for now.
"""

from typing import Any, Final

import msgspec

from shared.api.storage import PersistentVolume, PersistentVolumeClaim
from shared.contracts.messages import ClaimUse
from shared.contracts.subjects import split_key

SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
_BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"


class VolumeReady(msgspec.Struct, frozen=True):
    """The claim has its volume."""


class AskForVolume(msgspec.Struct, frozen=True):
    """Neither node nor volume was requested yet."""


class VolumePending(msgspec.Struct, frozen=True):
    """It was requested; other controllers work on it."""


class Unbindable(msgspec.Struct, frozen=True):
    """The bind fails; `message` says why. The scheduler may decide otherwise."""

    message: str


Step = VolumeReady | AskForVolume | VolumePending | Unbindable


def claim_step(
    use: ClaimUse, node: str, claim: PersistentVolumeClaim, *, was_requested: bool
) -> Step:
    """Return the next step of a claim; `was_requested`: this bind has set its node already."""
    meta = claim.metadata
    if meta.uid != use.uid:
        return Unbindable(f"claim {use.claim} is another one now")
    if meta.deletion_timestamp is not None:
        return Unbindable(f"claim {use.claim} is being deleted")
    if claim.status.phase == "Lost":
        return Unbindable(f"claim {use.claim} has lost its volume")
    if claim.spec.volume_name:
        if use.volume and claim.spec.volume_name != use.volume:
            return Unbindable(f"claim {use.claim} has got volume {claim.spec.volume_name}")
        done = claim.status.phase == "Bound" and _BIND_COMPLETED in meta.annotations
        return VolumeReady() if done else VolumePending()
    selected = meta.annotations.get(SELECTED_NODE, "")
    if selected not in {"", node}:
        return Unbindable(f"the volume of claim {use.claim} is being made for node {selected}")
    if use.volume:
        return VolumePending() if was_requested else AskForVolume()
    if selected:
        return VolumePending()
    if was_requested:
        return Unbindable(f"no volume for claim {use.claim} could be made for node {node}")
    return AskForVolume()


def select(node: str) -> dict[str, Any]:
    """Return the patch that names a claim's node."""
    return {"metadata": {"annotations": {SELECTED_NODE: node}}}


def may_reserve(use: ClaimUse, volume: PersistentVolume) -> Step:
    """Return whether a volume can be reserved for a claim, or is so already."""
    holder = volume.spec.claim_ref
    if volume.metadata.uid != use.volume_uid:
        return Unbindable(f"volume {use.volume} is another one now")
    if volume.metadata.deletion_timestamp is not None:
        return Unbindable(f"volume {use.volume} is being deleted")
    if holder is None:
        return AskForVolume()
    mine = f"{holder.namespace}/{holder.name}" == use.claim and holder.uid in {"", use.uid}
    if mine and holder.uid:
        return VolumePending()
    return AskForVolume() if mine else Unbindable(f"volume {use.volume} is another claim's")


def reserve(use: ClaimUse) -> dict[str, Any]:
    """Return the patch that reserves a volume for a claim."""
    namespace, name = split_key(use.claim)
    reference = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": namespace,
        "name": name,
        "uid": use.uid,
    }
    return {
        "metadata": {"annotations": {_BY_CONTROLLER: "yes"}},
        "spec": {"claimRef": reference},
    }
