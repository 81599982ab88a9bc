"""Claims for devices before a bind: their allocation, and the pod among those that may use them.

The binder is the one that writes both, as the scheduler of Kubernetes does, and before the pod is
bound: a kubelet starts no pod that its claims are not reserved for. Each step follows from the
claim as it is, so that a redelivered intent finds what is done. What a failed bind has written is
taken back: the pod from the list, and the allocation when it was made for this bind and no other
pod uses it (ADR 27).
"""

from typing import Any, Final

import msgspec

from shared.api.resource import RESERVED_MAX, AllocationResult, ResourceClaim
from shared.api.time import format_seconds, read
from shared.contracts.messages import Bind, DeviceUse
from shared.contracts.subjects import split_key

FINALIZER: Final = "resource.kubernetes.io/delete-protection"
"""Keeps a claim that is allocated until its devices are given back."""


class ClaimReady(msgspec.Struct, frozen=True):
    """The claim is as the bind needs it, or as it was before."""


class Protect(msgspec.Struct, frozen=True):
    """The finalizer is to be added."""

    body: dict[str, Any]


class ClaimWrite(msgspec.Struct, frozen=True):
    """The status is to be changed."""

    body: dict[str, Any]


class Unprepared(msgspec.Struct, frozen=True):
    """A driver is at work; `message` says on which devices."""

    message: str


class Unusable(msgspec.Struct, frozen=True):
    """The bind fails; `message` says why. The scheduler may decide otherwise."""

    message: str


Step = ClaimReady | Protect | ClaimWrite | Unprepared | Unusable
State = ClaimReady | Unprepared | Unusable
"""Of a claim that nothing is to be written to."""
_decoder = msgspec.json.Decoder(AllocationResult)


def reserve_step(item: Bind, use: DeviceUse, claim: ResourceClaim, *, now: float) -> Step:
    """Return what a claim needs before the pod is bound, given how it is at `now`."""
    meta, status = claim.metadata, claim.status
    if meta.uid != use.uid:
        return Unusable(f"resource claim {use.claim} is another one now")
    if meta.deletion_timestamp is not None:
        return Unusable(f"resource claim {use.claim} is being deleted")
    desired: dict[str, Any] = {}
    if status.allocation is None:
        if use.allocated:
            return Unusable(f"resource claim {use.claim} has lost its devices")
        if FINALIZER not in meta.finalizers:
            return Protect({"metadata": {"finalizers": [*meta.finalizers, FINALIZER]}})
        written = {"allocationTimestamp": format_seconds(now)}
        desired["allocation"] = msgspec.json.decode(use.allocation) | written
    elif not _is_as_decided(use, status.allocation):
        return Unusable(f"resource claim {use.claim} has got other devices")
    mine = _user(item, use)
    if mine["uid"] not in status.users:
        if len(status.reserved_for) >= RESERVED_MAX:
            return Unusable(f"resource claim {use.claim} is used by {RESERVED_MAX} pods")
        desired["reservedFor"] = [*_users(claim), mine]
    return ClaimWrite({"status": desired}) if desired else ClaimReady()


def prepared_step(use: DeviceUse, claim: ResourceClaim, *, now: float, timeout_s: float) -> State:
    """Return whether drivers have prepared a claim's devices (`bindingConditions`).

    The time counts from the allocation, so that neither a restart nor another pod prolongs it.
    """
    status, allocation = claim.status, claim.status.allocation
    if claim.metadata.uid != use.uid or allocation is None:
        return Unusable(f"resource claim {use.claim} has lost its devices")
    failure = status.failure(allocation)
    if failure:
        return Unusable(f"a device of resource claim {use.claim} cannot be prepared: {failure}")
    unmet = status.unmet(allocation)
    if not unmet:
        return ClaimReady()
    began = read(allocation.allocation_timestamp)
    message = f"devices of resource claim {use.claim} are not prepared: {', '.join(unmet)}"
    if began is not None and now >= began + timeout_s:
        return Unusable(f"{message}; {timeout_s:g} s have passed")
    return Unprepared(message)


def release_step(
    item: Bind, use: DeviceUse, claim: ResourceClaim, *, now: float, timeout_s: float
) -> ClaimReady | ClaimWrite:
    """Return what is to be taken back from a claim when its pod was not bound.

    An allocation that could not be prepared goes whichever bind it was made for. What is reserved
    for a PodGroup stays, since other pods of it may use it: its deletion ends it.
    """
    status = claim.status
    if claim.metadata.uid != use.uid or status.allocation is None:
        return ClaimReady()
    others = [user for user in _users(claim) if user["uid"] != item.uid]
    desired: dict[str, Any] = {}
    if len(others) < len(status.reserved_for):
        desired["reservedFor"] = others or None
    made_here = not use.allocated and _is_as_decided(use, status.allocation)
    unusable = isinstance(prepared_step(use, claim, now=now, timeout_s=timeout_s), Unusable)
    if not others and (made_here or unusable):
        desired |= {"allocation": None} | ({"devices": None} if status.devices else {})
    return ClaimWrite({"status": desired}) if desired else ClaimReady()


def _user(item: Bind, use: DeviceUse) -> dict[str, str]:
    """Return whom a claim is reserved for: the pod, or its PodGroup (KEP-5729)."""
    if use.group:
        group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups"}
        return {**group, "name": use.group, "uid": use.group_uid}
    return {"resource": "pods", "name": split_key(item.pod)[1], "uid": item.uid}


def _is_as_decided(use: DeviceUse, found: AllocationResult) -> bool:
    """Tell whether a claim has the devices that were decided on; parameters do not matter."""
    decided = _decoder.decode(use.allocation)
    return _devices(decided) == _devices(found) and decided.node_selector == found.node_selector


def _devices(allocation: AllocationResult) -> list[tuple[str, str, str, str]]:
    return sorted(
        (result.request, result.driver, result.pool, result.device)
        for result in allocation.devices.results
    )


def _users(claim: ResourceClaim) -> list[dict[str, str]]:
    return [msgspec.to_builtins(user) for user in claim.status.reserved_for]
