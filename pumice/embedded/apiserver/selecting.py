"""Label and field selectors in the API server's notation."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from pumice.embedded.apiserver.catalogue import ApiResource
from pumice.embedded.apiserver.replies import Object, RequestFailure, bad_request
from shared.api.selectors import (
    BadSelector,
    LabelSelector,
    LabelSelectorRequirement,
    holds,
    matches,
)
from shared.api.selectors import SelectorOperator as Operator

Match = Callable[[Object], bool]

_REQUIREMENT: Final = re.compile(
    r"\s*(?:(?P<absent>!)\s*(?P<absentkey>[^\s=!,()]+)"
    r"|(?P<key>[^\s=!<>,()]+)(?:\s*(?P<op>==|=|!=)\s*(?P<value>[^\s,()=!]*)"
    r"|\s*(?P<order>[<>])\s*(?P<bound>-?\d+)"
    r"|\s+(?P<set>in|notin)\s*\((?P<values>[^()]*)\))?)\s*(?:,|$)"
)
_PARTS: Final = {
    "pods": (
        "spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName "
        "spec.hostNetwork status.phase status.podIP status.podIPs status.nominatedNodeName"
    ),
    "nodes": "spec.unschedulable",
    "events": (
        "involvedObject.kind involvedObject.namespace involvedObject.name involvedObject.uid "
        "involvedObject.apiVersion involvedObject.resourceVersion involvedObject.fieldPath "
        "reason reportingComponent source type"
    ),
    "secrets": "type",
    "namespaces": "status.phase",
    "jobs": "status.successful",
    "replicasets": "status.replicas",
}


def labels(selector: str) -> Callable[[Mapping[str, str]], bool] | None:
    """Return the test that a label selector means, None for all. Raises RequestFailure (400)."""
    if not selector.strip():
        return None
    needs = []
    at = 0
    while at < len(selector):
        found = _REQUIREMENT.match(selector, at)
        if found is None or found.end() == at:
            raise bad_request(f"unable to parse requirement: {selector[at:]!r}")
        needs.append(_requirement(found))
        at = found.end()
    return lambda owned: all(
        holds(need.operator, owned.get(need.key), need.values) for need in needs
    )


def _requirement(found: re.Match[str]) -> LabelSelectorRequirement:
    operator, values = Operator.EXISTS, tuple[str, ...]()
    if found["absent"]:
        return LabelSelectorRequirement(key=found["absentkey"], operator=Operator.DOES_NOT_EXIST)
    if found["op"]:
        operator = Operator.NOT_IN if found["op"] == "!=" else Operator.IN
        values = (found["value"],)
    elif found["order"]:
        operator = Operator.GT if found["order"] == ">" else Operator.LT
        values = (found["bound"],)
    elif found["set"]:
        operator = Operator.IN if found["set"] == "in" else Operator.NOT_IN
        values = tuple(value.strip() for value in found["values"].split(","))
    return LabelSelectorRequirement(key=found["key"], operator=operator, values=values)


def fields(selector: str, resource: ApiResource) -> Match | None:
    """Return the test that a field selector means, None for all. Raises RequestFailure (400)."""
    if not selector.strip():
        return None
    own = "" if resource.custom else _PARTS.get(resource.plural, "")
    known = {"metadata.name", *own.split()}
    if resource.namespaced:
        known.add("metadata.namespace")
    tests: list[tuple[str, str, bool]] = []
    for term in selector.split(","):
        negated = "!=" in term
        key, _, value = term.partition("!=" if negated else "=")
        if not term.strip() or (not negated and "=" not in term):
            raise bad_request(f"invalid field selector: {selector!r}")
        if key.strip() not in known:
            raise RequestFailure(
                400,
                "BadRequest",
                f"field label not supported: {key.strip()}",
            )
        tests.append((key.strip(), value.removeprefix("=").strip(), negated))

    def match(obj: Object) -> bool:
        return all((_field(obj, key) == value) is not negated for key, value, negated in tests)

    return match


def _field(obj: Object, path: str) -> str:
    if path == "source" and isinstance(obj.get("source"), dict):
        return str(obj["source"].get("component") or obj.get("reportingComponent", ""))
    found: Any = obj
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    if isinstance(found, bool) or path in ("spec.unschedulable", "spec.hostNetwork"):
        return "true" if found else "false"
    return "" if found is None else str(found)


def of_spec(selector: Mapping[str, Any] | None) -> Callable[[Mapping[str, str]], bool]:
    """Return the test of a LabelSelector object; None matches nothing."""
    if selector is None:
        return lambda _: False
    given = {name: value for name, value in selector.items() if value is not None}
    converted = msgspec.convert(given, LabelSelector)

    def match(owned: Mapping[str, str]) -> bool:
        try:
            return matches(converted, owned)
        except BadSelector:
            return False

    return match
