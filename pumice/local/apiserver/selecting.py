"""Label and field selectors in the API server's notation."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from pumice.local.apiserver.answers import Object, RequestFailure, bad_request
from pumice.local.apiserver.catalogue import ApiResource
from shared.api.selectors import holds

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
    """Return the test that a label selector means, None for all. Raises Failure (400)."""
    if not selector.strip():
        return None
    tests = []
    at = 0
    while at < len(selector):
        found = _REQUIREMENT.match(selector, at)
        if found is None or found.end() == at:
            raise bad_request(f"unable to parse requirement: {selector[at:]!r}")
        tests.append(_label_test(found))
        at = found.end()
    return lambda owned: all(test(owned) for test in tests)


def _label_test(found: re.Match[str]) -> Callable[[Mapping[str, str]], bool]:
    if found["absent"]:
        absent = found["absentkey"]
        return lambda owned: absent not in owned
    key = found["key"]
    if found["op"]:
        value, negated = found["value"], found["op"] == "!="
        return lambda owned: (owned.get(key) == value) is not negated
    if found["order"]:
        bound, above = int(found["bound"]), found["order"] == ">"
        return lambda owned: _is_beyond(owned.get(key, ""), bound, above=above)
    if found["set"]:
        values = {value.strip() for value in found["values"].split(",")}
        if found["set"] == "in":
            return lambda owned: owned.get(key) in values
        return lambda owned: owned.get(key) not in values
    return lambda owned: key in owned


def _is_beyond(value: str, bound: int, *, above: bool) -> bool:
    """Compare a label as a whole number; False for one that is no number."""
    if not re.fullmatch(r"-?\d+", value):
        return False
    return int(value) > bound if above else int(value) < bound


def fields(selector: str, resource: ApiResource) -> Match | None:
    """Return the test that a field selector means, None for all. Raises Failure (400)."""
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
    pairs = dict(selector.get("matchLabels") or {})
    expressions = list(selector.get("matchExpressions") or ())

    def match(owned: Mapping[str, str]) -> bool:
        if any(owned.get(key) != value for key, value in pairs.items()):
            return False
        return all(
            holds(entry["operator"], owned.get(entry["key"]), entry.get("values") or ())
            for entry in expressions
        )

    return match
