"""Pods: resource groups (W30), and budgets in annotations that can be read (W32)."""

from collections.abc import Iterator
from typing import Any, Final

from services.admission.rules.groups import ResourceGroup
from services.admission.rules.review import (
    ALLOWED,
    Facts,
    Json,
    Request,
    Terms,
    Verdict,
    mutated,
    refused,
    unexpected,
)
from shared.api import keys
from shared.jobs.problems import Problem, Problems

BUDGETS: Final = (keys.JDB_MIN_AVAILABLE, keys.JDB_MAX_UNAVAILABLE)
_CREATE: Final = "CREATE"
_ALL: Final = 100


def mutate(request: Request, facts: Facts, terms: Terms) -> Verdict:
    """Give a pod what the first resource group that it belongs to says (W30)."""
    del facts
    if wrong := unexpected(request, _CREATE):
        return wrong
    annotations = _metadata(request.object).get("annotations") or {}
    namespace = _metadata(request.object).get("namespace") or request.namespace
    for group in terms.resource_groups:
        if group.has(namespace, annotations):
            return mutated(_patch(request.object.get("spec") or {}, group))
    return ALLOWED


def _patch(spec: Json, group: ResourceGroup) -> Iterator[Json]:
    if group.labels:
        selector = {**(spec.get("nodeSelector") or {}), **group.labels}
        yield {"op": "add", "path": "/spec/nodeSelector", "value": selector}
    affinity = group.parsed_affinity()
    if affinity is not None and not spec.get("affinity"):
        yield {"op": "add", "path": "/spec/affinity", "value": affinity}
    if group.tolerations:
        tolerations = [*(spec.get("tolerations") or ()), *group.tolerations]
        yield {"op": "add", "path": "/spec/tolerations", "value": tolerations}
    if group.scheduler_name:
        yield {"op": "add", "path": "/spec/schedulerName", "value": group.scheduler_name}


def validate(request: Request, facts: Facts, terms: Terms) -> Verdict:
    """Refuse a pod of ours whose disruption budget cannot be read (W32)."""
    del facts
    if wrong := unexpected(request, _CREATE):
        return wrong
    spec = request.object.get("spec") or {}
    if spec.get("schedulerName") not in terms.scheduler_names:
        return ALLOWED
    return refused(_budgets(_metadata(request.object).get("annotations") or {}))


def _budgets(annotations: dict[str, Any]) -> Problems:
    given = [key for key in BUDGETS if key in annotations]
    for key in given:
        if why := _wrong_budget(key, str(annotations[key])):
            yield Problem(f"metadata.annotations[{key}]", why)
    if len(given) > 1:
        yield Problem(
            "metadata.annotations",
            f"not allow configure multiple annotations <[{' '.join(given)}]> at same time",
        )


def _wrong_budget(key: str, value: str) -> str:
    number = value.removesuffix("%")
    if not number.lstrip("+-").isdecimal() or not number.isascii():
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


def _metadata(stated: Json) -> Json:
    metadata = stated.get("metadata")
    return metadata if isinstance(metadata, dict) else {}
