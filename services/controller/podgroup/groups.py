"""PodGroups for bare pods: pods of our schedulers without a PodGroup (P01 to P05).

Pods of one controlling owner share a group, a pod without one has its own. `change_for` compares
the existing group with its pods and their owner; the reconciler writes the difference, and calls it
again on the next change. The group is made before its name is written into the pods' annotations,
so that a crash between the two leaves a group that the next reconciliation finds.
"""

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from services.controller.job.minresources import Milli, as_texts, pod_usage
from shared.api import keys, kinds
from shared.api.base import Json
from shared.api.core import Pod, PodSpec
from shared.api.patch import merge_patch
from shared.api.scheduling import DEFAULT_QUEUE, PodGroup, PodGroupPhase, PodGroupSpec
from shared.api.workloads import Workload
from shared.jobs.users import without_user
from shared.model.numbers import whole
from shared.model.quantity import BadQuantity

_COPIED: Final = (keys.PREEMPTABLE, keys.COOLDOWN_TIME, keys.REVOCABLE_ZONE, keys.USER)
_BUDGETS: Final = (keys.JDB_MIN_AVAILABLE, keys.JDB_MAX_UNAVAILABLE)
"""Annotations of a pod's disruption budget; the first one present counts."""
_COPIED_LABELS: Final = (keys.PREEMPTABLE, keys.COOLDOWN_TIME)
_MODES: Final = ("hard", "soft")


class GroupFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about one group of bare pods."""

    pods: tuple[Pod, ...]
    """Its pods that are not being deleted, whether or not they name it yet."""
    owners: tuple[Workload, ...] = ()
    """Owners of the pods, in the order of their references, as far as their kinds are watched.

    Without pods: the controlling owner.
    """
    group: PodGroup | None = None


class GroupChange(msgspec.Struct, frozen=True, kw_only=True):
    """Writes that a group needs, in the order of the fields; empty when all is well."""

    create: Json | None = None
    patch: Json = {}
    annotate: tuple[tuple[Pod, Mapping[str, str]], ...] = ()
    """Pods that do not name their group yet, with the missing annotations."""
    delete: bool = False


def is_bare(pod: Pod, scheduler_names: Collection[str]) -> bool:
    """Whether `pod` is ours to schedule and in no group but one of this module's making (P01).

    A pod in a native PodGroup needs none of Volcano's.
    """
    if pod.spec.scheduler_name not in scheduler_names or pod.spec.scheduling_group is not None:
        return False
    named = pod.metadata.annotations.get(keys.GROUP_NAME)
    return not named or named == group_name(pod)


def group_name(pod: Pod) -> str:
    """Return the name of a bare pod's group: after its controlling owner, else after itself.

    Pods of a workload of the table (`rows`) have been given the group of that.
    """
    named = pod.metadata.annotations.get(keys.GROUP_NAME)
    if named and keys.WORKLOAD_GROUP in pod.metadata.annotations:
        return named
    return f"podgroup-{owner_uid(pod)}"


def owner_uid(pod: Pod) -> str:
    """Return the uid of what a bare pod's group stands for."""
    owner = pod.metadata.controller
    return owner.uid if owner is not None else pod.metadata.uid


def change_for(facts: GroupFacts, *, inherit: bool = True) -> GroupChange:
    """Return the writes that one group of bare pods needs.

    With `inherit` the annotations of all owners are merged; that of a later reference wins.
    Those of Volcano's prefix go on to the group (P02, P03).
    """
    if not facts.pods:
        wants_none = any(owner.spec.replicas == 0 for owner in facts.owners)
        return GroupChange(delete=wants_none and facts.group is not None)  # P04
    of_owners: dict[str, str] = {}
    for owner in facts.owners if inherit else ():
        of_owners.update(owner.metadata.annotations)
    body = group_for(model(facts.pods), of_owners)
    annotate = tuple(
        (pod, {keys.GROUP_NAME: group_name(pod)})
        for pod in facts.pods
        if keys.GROUP_NAME not in pod.metadata.annotations
    )
    if facts.group is None:
        return GroupChange(create=body, annotate=annotate)
    return GroupChange(patch=patch_of(facts.group, body), annotate=annotate)


def model(pods: tuple[Pod, ...]) -> Pod:
    """Return the pod that a group follows: the newest, so of the owner's last revision.

    Volcano takes any pod of a ReplicaSet, and of a StatefulSet one of its present revision (P04).
    """
    return max(pods, key=lambda p: (p.metadata.creation_timestamp or "", p.metadata.name))


def usage(spec: PodSpec) -> Milli:
    """Return the resources of one pod; nothing if an amount cannot be read."""
    try:
        return pod_usage(spec)
    except BadQuantity:
        return {}


def group_for(pod: Pod, of_owners: Mapping[str, str]) -> Json:
    """Return the group of a bare pod, whose owners have the annotations `of_owners` (P02, P03).

    For an owner of a kind that is not watched, its pods' annotations are used.
    """
    meta = pod.metadata
    inherited = {k: v for k, v in of_owners.items() if k.startswith(keys.INHERITED_PREFIX)}
    budget = [k for k in _BUDGETS if k in meta.annotations][:1]
    copied = {k: meta.annotations[k] for k in (*_COPIED, *budget) if k in meta.annotations}
    labels = {k: meta.labels[k] for k in _COPIED_LABELS if k in meta.labels}
    annotations = {**of_owners, **meta.annotations}
    least = (
        whole(of_owners.get(keys.GROUP_MIN_MEMBER) or annotations.get(keys.GROUP_MIN_MEMBER, ""))
        or 1
    )
    least_usage: Milli = {k: amount * least for k, amount in usage(pod.spec).items()}
    spec: Json = {
        "minMember": least,
        "queue": annotations.get(keys.SCHEDULING_QUEUE_NAME) or DEFAULT_QUEUE,
        "minResources": as_texts(least_usage),
    }
    if pod.spec.priority_class_name:
        spec["priorityClassName"] = pod.spec.priority_class_name
    if topology := _topology(annotations):
        spec["networkTopology"] = topology
    return {
        "apiVersion": kinds.PODGROUP.api_version,
        "kind": kinds.PODGROUP.kind,
        "metadata": {
            "name": group_name(pod),
            "namespace": meta.namespace,
            **({"labels": labels} if labels else {}),
            "annotations": {**inherited, **copied},
            "ownerReferences": _owners(pod),
        },
        "spec": spec,
        "status": {"phase": PodGroupPhase.PENDING},
    }


def patch_of(group: PodGroup, body: Json) -> Json:
    """Return the merge patch by which a group follows its newest pod and its owner (P05).

    Fields that neither sets stay, such as a queue set by a webhook or a user. The user of the group
    is that of the pod that it was made for.
    """
    patch: Json = {}
    annotations = without_user(body["metadata"]["annotations"])
    if changed := {k: v for k, v in annotations.items() if group.metadata.annotations.get(k) != v}:
        patch["metadata"] = {"annotations": changed}
    stated = {k: v for k, v in body["spec"].items() if (k, v) != ("queue", DEFAULT_QUEUE)}
    desired = msgspec.to_builtins(msgspec.convert(stated, PodGroupSpec))
    there = {k: v for k, v in msgspec.to_builtins(group.spec).items() if k in stated}
    spec = merge_patch(there, desired)
    return {**patch, "spec": spec} if spec else patch


def _owners(pod: Pod) -> list[Json]:
    """Return the pod's own references if a controller is among them, else the pod itself (P05).

    References are copied as they are. Where OwnerReferencesPermissionEnforcement is on, one that
    blocks its owner's deletion takes the right to update `finalizers` of the owner's kind.
    """
    if pod.metadata.controller is not None:
        return [msgspec.to_builtins(owner) for owner in pod.metadata.owner_references]
    return [msgspec.to_builtins(kinds.POD.controller_reference(pod.metadata))]


def _topology(annotations: Mapping[str, str]) -> Json:
    """Return the network topology that annotations ask for; one that is no mode is hard (P03)."""
    mode = annotations.get(keys.NETWORK_TOPOLOGY_MODE)
    highest = annotations.get(keys.NETWORK_TOPOLOGY_HIGHEST_TIER)
    if mode is None and highest is None:
        return {}
    known = (mode or "").lower()
    tier = whole(highest or "")
    return {
        "mode": known if known in _MODES else _MODES[0],
        **({} if tier is None else {"highestTierAllowed": tier}),
    }
