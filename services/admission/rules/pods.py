"""Pods: resource groups (W30), gates of queues (W31), budgets in annotations (W32)."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from services.admission.rules.groups import ResourceGroup
from services.admission.rules.review import (
    ALLOWED,
    AdmissionRequest,
    ReviewFacts,
    Terms,
    Verdict,
    mutated,
    read,
    refused,
)
from shared.api import keys
from shared.api.base import Json, View
from shared.api.meta import ObjectMeta
from shared.jobs.problems import Problem, Problems

BUDGETS: Final = (keys.JDB_MIN_AVAILABLE, keys.JDB_MAX_UNAVAILABLE)
_CREATE: Final = "CREATE"
_ALL: Final = 100
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}")

Affinity = dict[str, Any]
Toleration = dict[str, Any]


class _Gate(View, frozen=True, kw_only=True):
    """A scheduling gate."""

    name: str = ""


class _Spec(View, frozen=True, kw_only=True):
    """The part of a pod's spec that rules read."""

    scheduler_name: str = ""
    node_selector: Mapping[str, str] = msgspec.field(default_factory=dict)
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    scheduling_gates: tuple[_Gate, ...] | None = None


class _Pod(View, frozen=True, kw_only=True):
    """The part of a pod that rules read."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()


def mutate(request: AdmissionRequest, facts: ReviewFacts, terms: Terms) -> Verdict:
    """Add a pod's gate (W31), and the settings of its first resource group (W30)."""
    del facts
    pod = read(request, _Pod, _CREATE)
    if isinstance(pod, Verdict):
        return pod
    if not isinstance(request.object.get("spec"), dict):
        return ALLOWED
    namespace = pod.metadata.namespace or request.namespace
    patch = list(_gate(pod)) if terms.queue_gates else []
    for group in terms.resource_groups:
        if group.has(namespace, pod.metadata.annotations):
            patch += _patch(pod.spec, group)
            break
    return mutated(patch) if patch else ALLOWED


def _gate(pod: _Pod) -> Iterator[Json]:
    """Add the queue's gate to a pod that requests it, once."""
    gates, queue_gate = pod.spec.scheduling_gates, {"name": keys.QUEUE_GATE}
    if pod.metadata.annotations.get(keys.QUEUE_GATE) != "true":
        return
    if gates is None:
        yield {"op": "add", "path": "/spec/schedulingGates", "value": [queue_gate]}
    elif all(gate.name != keys.QUEUE_GATE for gate in gates):
        yield {"op": "add", "path": "/spec/schedulingGates/-", "value": queue_gate}


def _patch(spec: _Spec, group: ResourceGroup) -> Iterator[Json]:
    if group.labels:
        selector = {**spec.node_selector, **group.labels}
        yield {"op": "add", "path": "/spec/nodeSelector", "value": selector}
    affinity = group.parsed_affinity()
    if affinity is not None and not spec.affinity:
        yield {"op": "add", "path": "/spec/affinity", "value": affinity}
    if group.tolerations:
        tolerations = [*spec.tolerations, *group.tolerations]
        yield {"op": "add", "path": "/spec/tolerations", "value": tolerations}
    if group.scheduler_name:
        yield {"op": "add", "path": "/spec/schedulerName", "value": group.scheduler_name}


def validate(request: AdmissionRequest, facts: ReviewFacts, terms: Terms) -> Verdict:
    """Refuse a pod of ours whose disruption budget cannot be read (W32)."""
    del facts
    pod = read(request, _Pod, _CREATE)
    if isinstance(pod, Verdict):
        return pod
    if pod.spec.scheduler_name not in terms.scheduler_names:
        return ALLOWED
    return refused(_budgets(pod.metadata.annotations))


def _budgets(annotations: Mapping[str, str]) -> Problems:
    given = [key for key in BUDGETS if key in annotations]
    for key in given:
        if why := _wrong_budget(key, annotations[key]):
            yield Problem(f"metadata.annotations[{key}]", why)
    if len(given) > 1:
        yield Problem(
            "metadata.annotations",
            f"not allow configure multiple annotations <[{' '.join(given)}]> at same time",
        )


def _wrong_budget(key: str, value: str) -> str:
    number = value.removesuffix("%")
    if not _NUMBER.fullmatch(number):
        return f'invalid value <"{value}"> for {key}, it must be a positive integer or a percentage'
    if number == value:
        whole = int(number) > 0
        return (
            "" if whole else f'invalid value <"{value}"> for {key}, it must be a positive integer'
        )
    if 0 < int(number) < _ALL:
        return ""
    return (
        f'invalid value <"{value}"> for {key}, it must be a valid percentage which between 1% ~ 99%'
    )
