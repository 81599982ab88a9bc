"""Claims for devices before a bind: their allocation, and the pod among those that may use them.

The binder is the one that writes both, as the scheduler of Kubernetes does, and before the pod is
bound: a kubelet starts no pod that its claims are not reserved for. Each step follows from the
claim as it is, so that a redelivered intent finds what is done. What a failed bind has written is
taken back: the pod from the list, and the allocation when it was made for this bind and no other
pod uses it (ADR 27).

A claim for a pod's extended resources (a use with `requests`) is created first. It belongs to the
pod, and a failed bind deletes it. One that a failed bind has left is deleted and created again.
"""

from typing import Any, Final

import msgspec

from shared.api.resource import EXACT_COUNT, RESERVED_MAX, AllocationResult, ResourceClaim
from shared.api.time import format_seconds, read
from shared.contracts.messages import Bind, DeviceUse
from shared.contracts.subjects import split_key

EXTENDED: Final = "resource.kubernetes.io/extended-resource-claim"
"""Annotation of claims for extended resources."""
FINALIZER: Final = "resource.kubernetes.io/delete-protection"
"""Keeps a claim that is allocated until its devices are given back."""


class ClaimReady(msgspec.Struct, frozen=True):
    """The claim is as the bind needs it, or as it was before."""


class Protect(msgspec.Struct, frozen=True):
    """The finalizers are to be changed."""

    body: dict[str, Any]


class ClaimCreate(msgspec.Struct, frozen=True):
    """The claim is to be created."""

    body: dict[str, Any]


class ClaimDelete(msgspec.Struct, frozen=True):
    """The claim is to be deleted."""


class ClaimWrite(msgspec.Struct, frozen=True):
    """The status is to be changed."""

    body: dict[str, Any]


class Unprepared(msgspec.Struct, frozen=True):
    """A driver is at work; `message` says on which devices."""

    message: str


class Unusable(msgspec.Struct, frozen=True):
    """The bind fails; `message` says why. The scheduler may decide otherwise."""

    message: str


Step = ClaimReady | Protect | ClaimCreate | ClaimDelete | ClaimWrite | Unprepared | Unusable
State = ClaimReady | Unprepared | Unusable
"""Of a claim that nothing is to be written to."""
_decoder = msgspec.json.Decoder(AllocationResult)


def reserve_step(item: Bind, use: DeviceUse, claim: ResourceClaim | None, *, now: float) -> Step:
    """Return what a claim needs before the pod is bound, given how it is at `now`.

    `claim` is None where one that the binder makes does not exist yet.
    """
    if claim is None:
        return ClaimCreate(_made(item, use))
    if not _is_claim_of(item, use, claim):
        return Unusable(f"resource claim {use.claim} is another one now")
    if claim.metadata.deletion_timestamp is not None:
        return Unusable(f"resource claim {use.claim} is being deleted")
    if use.requests and not _is_made_as_decided(use, claim):
        return _delete_step(claim)
    return _write_step(item, use, claim, now=now)


def _write_step(item: Bind, use: DeviceUse, claim: ResourceClaim, *, now: float) -> Step:
    meta, status = claim.metadata, claim.status
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


def _made(item: Bind, use: DeviceUse) -> dict[str, Any]:
    """Return a claim for the extended resources of a pod, as kube-scheduler makes it."""
    namespace, pod = split_key(item.pod)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": item.uid, "controller": True}
    return {
        "metadata": {
            "name": split_key(use.claim)[1],
            "namespace": namespace,
            "annotations": {EXTENDED: "true"},
            "ownerReferences": [owner],
            "finalizers": [FINALIZER],
        },
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": name,
                        "exactly": {
                            "deviceClassName": device_class,
                            "allocationMode": EXACT_COUNT,
                            "count": count,
                        },
                    }
                    for name, device_class, count in use.requests
                ]
            }
        },
    }


def status_of_pod(use: DeviceUse) -> dict[str, Any]:
    """Return the status of a pod with a claim for its extended resources."""
    mappings = [
        {"containerName": container, "resourceName": resource, "requestName": request}
        for container, resource, request in use.mappings
    ]
    name = split_key(use.claim)[1]
    claim = {"resourceClaimName": name, "requestMappings": mappings}
    return {"status": {"extendedResourceClaimStatus": claim}}


def _is_claim_of(item: Bind, use: DeviceUse, claim: ResourceClaim) -> bool:
    """Tell whether a claim is the one that was decided about."""
    if not use.requests:
        return claim.metadata.uid == use.uid
    return any(owner.uid == item.uid for owner in claim.metadata.owner_references)


def _is_made_as_decided(use: DeviceUse, claim: ResourceClaim) -> bool:
    asked = tuple(
        (request.name, asks.device_class_name, asks.count)
        for request in claim.spec.devices.requests
        for asks in request.alternatives
    )
    found = claim.status.allocation
    return asked == use.requests and (found is None or _is_as_decided(use, found))


def _delete_step(claim: ResourceClaim) -> Step:
    finalizers = [each for each in claim.metadata.finalizers if each != FINALIZER]
    if len(finalizers) < len(claim.metadata.finalizers):
        return Protect({"metadata": {"finalizers": finalizers}})
    return ClaimDelete()


def _is_going(claim: ResourceClaim) -> bool:
    """Tell whether a claim is deleted but for finalizers of others, whenever these go."""
    meta = claim.metadata
    return meta.deletion_timestamp is not None and FINALIZER not in meta.finalizers


def prepared_step(
    item: Bind, use: DeviceUse, claim: ResourceClaim, *, now: float, timeout_s: float
) -> State:
    """Return whether drivers have prepared a claim's devices (`bindingConditions`).

    The time counts from the allocation, so that neither a restart nor another pod prolongs it.
    """
    status, allocation = claim.status, claim.status.allocation
    if not _is_claim_of(item, use, claim) or allocation is None:
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
) -> Step:
    """Return what is to be taken back from a claim when its pod was not bound.

    An allocation that could not be prepared goes whichever bind it was made for. What is reserved
    for a PodGroup stays, since other pods of it may use it: its deletion ends it.
    """
    status = claim.status
    if not _is_claim_of(item, use, claim):
        return ClaimReady()
    if use.requests:
        return ClaimReady() if _is_going(claim) else _delete_step(claim)
    if status.allocation is None:
        return ClaimReady()
    others = [user for user in _users(claim) if user["uid"] != item.uid]
    desired: dict[str, Any] = {}
    if len(others) < len(status.reserved_for):
        desired["reservedFor"] = others or None
    made_here = not use.allocated and _is_as_decided(use, status.allocation)
    unusable = isinstance(prepared_step(item, use, claim, now=now, timeout_s=timeout_s), Unusable)
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
