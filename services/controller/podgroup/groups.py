"""PodGroups for bare pods: pods of our schedulers that nobody has put into a group (P01, P02, P03).

Pods of one controlling owner share a group, a pod without one has its own. `group_for` gives the
group that a pod needs; the shell creates it and then writes its name into the pod's annotation, in
this order, so that a crash between the two leaves a group that the next look finds.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from services.controller.job.minresources import Milli, as_texts, pod_usage
from shared.api import keys, kinds
from shared.api.core import Pod
from shared.api.scheduling import DEFAULT_QUEUE

COPIED: Final = (
    keys.PREEMPTABLE,
    keys.COOLDOWN_TIME,
    keys.REVOCABLE_ZONE,
    keys.JDB_MIN_AVAILABLE,
    keys.JDB_MAX_UNAVAILABLE,
)
"""Annotations of a pod that its group carries too (P03)."""


class GroupFor(msgspec.Struct, frozen=True, kw_only=True):
    """The group that a bare pod needs."""

    name: str
    owner_uid: str
    body: dict[str, Any]


def needs_group(pod: Pod, scheduler_names: Collection[str]) -> bool:
    """Whether `pod` is ours to schedule and has no group yet (P01)."""
    return (
        pod.spec.scheduler_name in scheduler_names
        and keys.GROUP_NAME not in pod.metadata.annotations
        and pod.metadata.deletion_timestamp is None
    )


def group_for(pod: Pod, owner_annotations: Mapping[str, str], *, inherit: bool = True) -> GroupFor:
    """Return the group of a bare pod.

    `owner_annotations` are those of its controlling owner as far as they are known; with `inherit`
    the ones of Volcano's prefix go on to the group.
    """
    meta = pod.metadata
    owner = meta.controller
    owner_uid = owner.uid if owner is not None else meta.uid
    name = f"podgroup-{owner_uid}"
    least = owner_annotations.get(keys.GROUP_MIN_MEMBER, "")
    min_member = int(least) if least.isascii() and least.isdecimal() else 1
    inherited = {
        k: v
        for k, v in owner_annotations.items()
        if inherit and k.startswith(keys.INHERITED_PREFIX)
    }
    copied = {k: meta.annotations[k] for k in COPIED if k in meta.annotations}
    usage: Milli = {k: amount * min_member for k, amount in pod_usage(pod.spec).items()}
    spec: dict[str, Any] = {
        "minMember": min_member,
        "queue": meta.annotations.get(keys.SCHEDULING_QUEUE_NAME) or DEFAULT_QUEUE,
        "minResources": as_texts(usage),
    }
    if pod.spec.priority_class_name:
        spec["priorityClassName"] = pod.spec.priority_class_name
    if topology := _topology(meta.annotations):
        spec["networkTopology"] = topology
    body = {
        "apiVersion": kinds.PODGROUP.api_version,
        "kind": kinds.PODGROUP.kind,
        "metadata": {
            "name": name,
            "namespace": meta.namespace,
            "annotations": {**inherited, **copied},
            "ownerReferences": [_owner(pod)],
        },
        "spec": spec,
    }
    return GroupFor(name=name, owner_uid=owner_uid, body=body)


def _owner(pod: Pod) -> dict[str, Any]:
    """P05: the pod's controller, or the pod itself."""
    owner = pod.metadata.controller
    if owner is not None:
        return dict(msgspec.to_builtins(owner))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": pod.metadata.name,
        "uid": pod.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _topology(annotations: Mapping[str, str]) -> dict[str, Any]:
    mode = annotations.get(keys.NETWORK_TOPOLOGY_MODE)
    if mode not in {"hard", "soft"}:
        return {}
    tier = annotations.get(keys.NETWORK_TOPOLOGY_HIGHEST_TIER, "")
    bound = {"highestTierAllowed": int(tier)} if tier.isascii() and tier.isdecimal() else {}
    return {"mode": mode, **bound}
