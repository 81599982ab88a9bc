"""Kubernetes' own PodGroups as scheduling reads and writes them. Pure.

A native PodGroup is scheduled as the PodGroup of Volcano that it amounts to (`as_podgroup`). What
scheduling keeps in that one's status is in conditions of the native one: `pumice.dev/Phase` has the
phase as its reason, and each condition of Volcano's has the prefix `pumice.dev/`. Reading them back
gives the same status, so that the scheduler recognises its own writes.

For others there is `PodGroupInitiallyScheduled` (scheduling.k8s.io/v1beta1): once True it stays so,
even when the gang later falls below its minimum.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from shared.api import keys
from shared.api.native_groups import NativePodGroup
from shared.api.scheduling import (
    DEFAULT_QUEUE,
    PodGroup,
    PodGroupCondition,
    PodGroupConditionType,
    PodGroupPhase,
    PodGroupSpec,
    PodGroupStatus,
)
from shared.contracts.messages import DesiredCondition

INITIALLY_SCHEDULED: Final = "PodGroupInitiallyScheduled"
PREFIX: Final = "pumice.dev/"
"""Of the conditions that hold what a PodGroup of Volcano has in its status."""
_PHASE: Final = f"{PREFIX}Phase"
SCHEDULED: Final = f"{PREFIX}{PodGroupConditionType.SCHEDULED}"
UNSCHEDULABLE: Final = f"{PREFIX}{PodGroupConditionType.UNSCHEDULABLE}"
_PHASES: Final = {phase.value: phase for phase in PodGroupPhase}
_QUARANTINED: Final = "Quarantined"
_REASON: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
"""Reasons that the API server accepts; it wants one in each condition."""
_IN_MESSAGE: Final = "SeeMessage"
"""Reason of a condition whose own one is the first line of the message."""


class NativeTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What a native PodGroup has beyond the PodGroup of Volcano that it amounts to."""

    conditions: Mapping[str, PodGroupCondition]
    """As it shows them, by type."""
    domain_key: str = ""
    """Label of which all nodes of its pods must have one value; empty: none."""
    disrupted_together: bool = False
    """Whether evictions take all of its pods or none."""
    preempts: bool = True
    """Whether others are evicted for it."""
    priority: int | None = None
    """In place of that of its class, unless None."""
    claims: frozenset[str] = frozenset()
    """Keys of the ResourceClaims that are reserved for the group in place of its pods."""


def terms_of(group: NativePodGroup) -> NativeTerms:
    """Return the terms of a native PodGroup; the API server allows one topology constraint."""
    spec = group.spec
    topology = spec.scheduling_constraints.topology
    return NativeTerms(
        conditions=shown_conditions(group),
        domain_key=topology[0].key if topology else "",
        disrupted_together=spec.disruption_mode.together is not None,
        preempts=spec.preemption_policy != "Never",
        priority=spec.priority,
        claims=frozenset(_claims(group)),
    )


def _claims(group: NativePodGroup) -> Iterator[str]:
    """Yield the keys of a group's ResourceClaims that exist, also those made of templates."""
    made = {each.name: each.resource_claim_name for each in group.status.resource_claim_statuses}
    for claim in group.spec.resource_claims:
        if name := claim.resource_claim_name or made.get(claim.name):
            yield f"{group.metadata.namespace}/{name}"


def as_podgroup(group: NativePodGroup, *, queue: str = DEFAULT_QUEUE) -> PodGroup:
    """Return the PodGroup of Volcano that a native one amounts to.

    Without a gang policy its pods are placed one by one, which is a minimum of one pod.

    Args:
        group: The native PodGroup.
        queue: The queue of its namespace, which an annotation of the group overrides.
    """
    gang = group.spec.scheduling_policy.gang
    return PodGroup(
        metadata=group.metadata,
        spec=PodGroupSpec(
            min_member=1 if gang is None else gang.min_count,
            queue=group.metadata.annotations.get(keys.SCHEDULING_QUEUE_NAME) or queue,
            priority_class_name=group.spec.priority_class_name,
        ),
        status=_status_of(shown_conditions(group)),
    )


def shown_conditions(group: NativePodGroup) -> dict[str, PodGroupCondition]:
    """Return the conditions of a native PodGroup by type."""
    return {condition.type: condition for condition in group.status.conditions}


def _status_of(shown: Mapping[str, PodGroupCondition]) -> PodGroupStatus:
    phase = shown[_PHASE].reason if _PHASE in shown else ""
    conditions = [
        _volcanos(condition)
        for condition in shown.values()
        if condition.type.startswith(PREFIX) and condition.type != _PHASE
    ]
    first = shown.get(INITIALLY_SCHEDULED)
    if first is not None and first.status == "True" and SCHEDULED not in shown:
        conditions.append(  # another scheduler placed it, or wrote only this
            PodGroupCondition(
                type=PodGroupConditionType.SCHEDULED,
                status="True",
                reason=first.reason,
                last_transition_time=first.last_transition_time,
            )
        )
    return PodGroupStatus(
        phase=_PHASES.get(phase),
        conditions=tuple(conditions),
    )


def _volcanos(condition: PodGroupCondition) -> PodGroupCondition:
    """Return a condition of Volcano's as it was before `_natives`."""
    reason, message = condition.reason, condition.message
    if reason == _IN_MESSAGE:
        reason, _, message = message.partition("\n")
    return PodGroupCondition(
        type=condition.type.removeprefix(PREFIX),
        status=condition.status,
        reason=reason,
        message=message,
        last_transition_time=condition.last_transition_time,
    )


def desired_conditions(
    phase: str,
    conditions: Iterable[DesiredCondition],
    shown: Mapping[str, PodGroupCondition],
) -> tuple[DesiredCondition, ...]:
    """Return the conditions to write into a native PodGroup: those that say something else.

    Args:
        phase: Phase of the PodGroup of Volcano that it amounts to.
        conditions: All conditions of that PodGroup.
        shown: Conditions of the native one by type; a status that stays keeps its time.
    """
    desired = [DesiredCondition(type=_PHASE, status="True", reason=phase)]
    desired += map(_natives, conditions)
    desired += _initially_scheduled({condition.type: condition for condition in desired})
    return changed_conditions(desired, shown)


def changed_conditions(
    desired: Iterable[DesiredCondition], shown: Mapping[str, PodGroupCondition]
) -> tuple[DesiredCondition, ...]:
    """Return the conditions that a native PodGroup does not show; one that is final stays."""
    found = []
    for condition in desired:
        before = shown.get(condition.type)
        if before is None:
            found.append(condition)
        elif not _is_final(before) and _meaning(before) != _meaning(condition):
            kept = before.last_transition_time if before.status == condition.status else None
            found.append(msgspec.structs.replace(condition, last_transition_time=kept or ""))
    return tuple(found)


def _is_final(shown: PodGroupCondition) -> bool:
    return shown.type == INITIALLY_SCHEDULED and shown.status == "True"


def _meaning(condition: PodGroupCondition | DesiredCondition) -> tuple[str, str, str]:
    return condition.status, condition.reason, condition.message


def _natives(condition: DesiredCondition) -> DesiredCondition:
    """Return a condition of Volcano's as the API server accepts it."""
    reason, message = condition.reason, condition.message
    if not _REASON.fullmatch(reason) or reason == _IN_MESSAGE:
        reason, message = _IN_MESSAGE, f"{reason}\n{message}" if message else reason
    return DesiredCondition(
        type=f"{PREFIX}{condition.type}", status=condition.status, reason=reason, message=message
    )


def _initially_scheduled(by_type: Mapping[str, DesiredCondition]) -> Iterator[DesiredCondition]:
    """Yield the condition of Kubernetes' own, if scheduling has come to a result."""
    scheduled, waits = by_type.get(SCHEDULED), by_type.get(UNSCHEDULABLE)
    if scheduled is not None and scheduled.status == "True":
        yield DesiredCondition(type=INITIALLY_SCHEDULED, status="True", reason="Scheduled")
    elif waits is not None and waits.status == "True":
        yield DesiredCondition(
            type=INITIALLY_SCHEDULED,
            status="False",
            reason="SchedulerError" if waits.reason == _QUARANTINED else "Unschedulable",
            message=waits.message,
        )
