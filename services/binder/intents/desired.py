"""Patches from the status that an object has to the status that the scheduler desires. Pure.

A status is written only if its meaning changes: times and transition ids do not count. The
scheduler is the only writer of PodGroup conditions, so conditions that are no longer desired are
removed. Pod conditions have other writers too, so only the desired types are changed.

A message with a resourceVersion is written without a comparison (`as_decided`). If the API server
refuses it because the object has changed, the object is read and compared (`podgroup_patch`,
`pod_patch`, `queue_patch`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from shared.api import keys
from shared.api.core import Pod, PodCondition
from shared.api.native_groups import NativePodGroup
from shared.api.scheduling import NodeShard, PodGroup, PodGroupCondition, Queue
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
from shared.jobs import native_groups

_COUNTS: Final = ("running", "succeeded", "failed")

Patch = dict[str, Any]
"""The `status` part of a merge patch (of an admitted pod the `spec`); empty: nothing to write."""
_UNGATED: Final[Patch] = {"schedulingGates": [{"name": keys.QUEUE_GATE, "$patch": "delete"}]}


def as_decided(desired: Desired, *, now: str) -> tuple[Patch, list[DesiredCondition]]:
    """Return the patch of an object that is unchanged since the decision, and its new conditions.

    The scheduler only desires statuses that differ from the observed one. A count of 0 is removed,
    like in Volcano.
    """
    if isinstance(desired, DesiredQueue):
        allocated = {**dict.fromkeys(desired.released), **_plain(desired.allocated)}
        return {"allocated": allocated, "pending": desired.pending}, []
    if isinstance(desired, DesiredNodeShard):
        return _shard_status(desired.in_use, desired.to_add, desired.to_remove, now), []
    if isinstance(desired, DesiredPod | DesiredNativePodGroup):
        conditions = [_pod_condition(condition, None, now) for condition in desired.conditions]
        return {"conditions": conditions}, list(desired.conditions)
    if isinstance(desired, DesiredUngated):
        return dict(_UNGATED), []
    patch = {
        "phase": desired.phase,
        **{name: getattr(desired, name) or None for name in _COUNTS},
        "conditions": [
            _podgroup_condition(c, None, desired.cycle, now) for c in desired.conditions
        ],
    }
    return patch, [condition for condition in desired.conditions if not _is_known(condition)]


def _is_known(condition: DesiredCondition) -> bool:
    return bool(condition.transition_id or condition.last_transition_time)


def podgroup_patch(desired: DesiredPodGroup, present: PodGroup, *, now: str) -> Patch:
    """Return what to write into a PodGroup's status (SS03, SS04, D01, CA09); `now` is RFC 3339.

    A condition whose meaning stays keeps its time and transition id.
    """
    status = present.status
    patch: Patch = {}
    if desired.phase != (status.phase.value if status.phase else ""):
        patch["phase"] = desired.phase
    for name in _COUNTS:
        if getattr(desired, name) != getattr(status, name):
            patch[name] = getattr(desired, name)
    before = {condition.type: condition for condition in status.conditions}
    conditions = [
        _podgroup_condition(condition, before.get(condition.type), desired.cycle, now)
        for condition in desired.conditions
    ]
    if [_meaning(c) for c in desired.conditions] != [_meaning(c) for c in status.conditions]:
        patch["conditions"] = conditions
    return patch


def _podgroup_condition(
    desired: DesiredCondition, before: PodGroupCondition | None, cycle: int, now: str
) -> dict[str, str]:
    same = before is not None and _meaning(before) == _meaning(desired)
    kept = before if same else None
    return {
        "type": desired.type,
        "status": desired.status,
        "reason": desired.reason,
        "message": desired.message,
        "transitionID": kept.transition_id if kept else desired.transition_id or str(cycle),
        "lastTransitionTime": (kept.last_transition_time if kept else None)
        or desired.last_transition_time
        or now,
    }


def changed_conditions(
    desired: Sequence[DesiredCondition], present: Sequence[PodGroupCondition | PodCondition]
) -> list[DesiredCondition]:
    """Return the desired conditions that are new: each is worth a Kubernetes Event."""
    known = {_meaning(condition) for condition in present}
    return [condition for condition in desired if _meaning(condition) not in known]


def pod_patch(desired: DesiredPod, present: Pod, *, now: str) -> Patch:
    """Return what to write into a pod's status (D02): conditions, merged by type.

    Nothing for a pod that has a node: why it was not scheduled is history, and the API server has
    set PodScheduled itself. A condition whose status stays keeps its time.
    """
    if present.spec.node_name or present.metadata.deletion_timestamp:
        return {}
    before = {condition.type: condition for condition in present.status.conditions}
    conditions = [
        _pod_condition(condition, before.get(condition.type), now)
        for condition in changed_conditions(desired.conditions, present.status.conditions)
    ]
    return {"conditions": conditions} if conditions else {}


def native_patch(
    desired: DesiredNativePodGroup, present: NativePodGroup, *, now: str
) -> tuple[Patch, list[DesiredCondition]]:
    """Return what to write into a native PodGroup's status, and its new conditions."""
    shown = native_groups.shown_conditions(present)
    changed = native_groups.changed_conditions(desired.conditions, shown)
    patches = [_pod_condition(condition, None, now) for condition in changed]
    return {"conditions": patches} if patches else {}, list(changed)


def gate_patch(present: Pod) -> Patch:
    """Return what to write into a pod's spec to lift the gate of its queue (CA14)."""
    gates = [gate.name for gate in present.spec.scheduling_gates]
    return dict(_UNGATED) if keys.QUEUE_GATE in gates else {}


def _pod_condition(
    desired: DesiredCondition, before: PodCondition | None, now: str
) -> dict[str, str]:
    since = before.last_transition_time if before and before.status == desired.status else None
    return {
        "type": desired.type,
        "status": desired.status,
        "reason": desired.reason,
        "message": desired.message,
        "lastTransitionTime": since or desired.last_transition_time or now,
    }


def queue_patch(desired: DesiredQueue, present: Queue) -> Patch:
    """Return what to write into a queue's status: `allocated` and `pending` (SS03, CA09).

    A resource that no job holds any more is removed by null, as merge patches do.
    """
    patch: Patch = {}
    before = {name: str(amount) for name, amount in present.status.allocated.items()}
    if dict(desired.allocated) != before:
        patch["allocated"] = {**dict.fromkeys(before), **_plain(desired.allocated)}
    if desired.pending != present.status.pending:
        patch["pending"] = desired.pending
    return patch


def shard_patch(desired: DesiredNodeShard, present: NodeShard, *, now: str) -> Patch:
    """Return what to write into a NodeShard's status, at its current version (CA12).

    A node is newly in use only at a version that desires it: it may be another scheduler's since.
    """
    nodes, status = set(present.spec.nodes_desired), present.status
    in_use = set(desired.in_use) & (nodes | set(status.nodes_in_use))
    found = (in_use, nodes - in_use, in_use - nodes)
    shown = (status.nodes_in_use, status.nodes_to_add, status.nodes_to_remove)
    return _shard_status(*found, now) if found != tuple(map(set, shown)) else {}


def _shard_status(
    in_use: Iterable[str], to_add: Iterable[str], to_remove: Iterable[str], now: str
) -> Patch:
    return {
        "nodesInUse": sorted(in_use),
        "nodesToAdd": sorted(to_add),
        "nodesToRemove": sorted(to_remove),
        "lastUpdateTime": now,
    }


def _plain(amounts: Mapping[str, str]) -> dict[str, str | None]:
    return dict(sorted(amounts.items()))


def _meaning(
    condition: DesiredCondition | PodGroupCondition | PodCondition,
) -> tuple[str, str, str, str]:
    return (condition.type, condition.status, condition.reason, condition.message)
