"""Rules of single built-in kinds on a write, beyond their schema: status, defaults, checks."""

import base64
import re
from collections.abc import Callable
from typing import Final

import msgspec

from pumice.embedded.apiserver import podrules
from pumice.embedded.apiserver.api_state import ApiState
from pumice.embedded.apiserver.catalogue import ApiResource
from pumice.embedded.apiserver.expressions import compiled
from pumice.embedded.apiserver.replies import FieldFault, Object, invalid

_ALL: Final = 100
"""Percent."""
_WEBHOOKS: Final = frozenset(("mutatingwebhookconfigurations", "validatingwebhookconfigurations"))
_CONDITIONS_MOST: Final = 64
"""Match conditions of a webhook."""
Rule = Callable[[ApiState, ApiResource, Object], None]
KEEPS_STATUS: Final = frozenset(("nodes",))
"""Kinds that are created with the status they bring, although it is a subresource."""
RETURNS_DELETED: Final = frozenset(
    (
        "pods",
        "services",
        "serviceaccounts",
        "persistentvolumeclaims",
        "persistentvolumes",
        "podtemplates",
        "resourcequotas",
        "storageclasses",
    )
)
"""Kinds whose delete returns the object instead of a Status."""


def default(resource: ApiResource, obj: Object) -> None:
    """Fill in omitted fields, in place; done on every write."""
    rule = None if resource.custom else _DEFAULTS.get(resource.plural)
    if rule is not None:
        rule(obj)


def admit(api: ApiState, resource: ApiResource, obj: Object) -> None:
    """Finish a new object, in place. Raises RequestFailure."""
    rule = None if resource.custom else _ADMIT.get(resource.plural)
    if rule is not None:
        rule(api, resource, obj)


def check(resource: ApiResource, obj: Object, old: Object | None) -> None:
    """Raise RequestFailure (422) for faults that the schema cannot express."""
    if resource.custom:
        return
    if resource.plural == "pods":
        podrules.check(resource, obj)
        if old is not None:
            podrules.check_update(resource, obj, old)
        return
    if resource.plural == "poddisruptionbudgets":
        _check_budget(resource, obj)
    if resource.plural in _WEBHOOKS:
        _check_match_conditions(resource, obj)
    if old is not None:
        _check_immutable(resource, obj, old)


def _check_budget(resource: ApiResource, obj: Object) -> None:
    spec = obj.get("spec") or {}
    shares = {f: spec[f] for f in ("minAvailable", "maxUnavailable") if spec.get(f) is not None}
    faults = []
    if len(shares) > 1:
        message = "Invalid value: minAvailable and maxUnavailable cannot be both set"
        faults.append(FieldFault(field="spec", message=message))
    for field, share in shares.items():
        if fault := _share_fault(share):
            shown = msgspec.json.encode(share).decode()
            message = f"Invalid value: {shown}: {fault}"
            faults.append(FieldFault(field=f"spec.{field}", message=message))
    if faults:
        raise invalid(resource, obj["metadata"]["name"], faults)


def _check_match_conditions(resource: ApiResource, obj: Object) -> None:
    faults = []
    for number, webhook in enumerate(obj.get("webhooks") or ()):
        conditions = webhook.get("matchConditions") or ()
        path = f"webhooks[{number}].matchConditions"
        if len(conditions) > _CONDITIONS_MOST:
            message = f"Too many: {len(conditions)}: must have at most {_CONDITIONS_MOST} items"
            faults.append(FieldFault(field=path, message=message, reason="FieldValueTooMany"))
            continue
        for at, condition in enumerate(conditions):
            text = condition["expression"]
            try:
                compiled(text)
            except ValueError as error:
                message = f'Invalid value: "{text}": compilation failed: {error}'
                faults.append(FieldFault(field=f"{path}[{at}].expression", message=message))
    if faults:
        raise invalid(resource, obj["metadata"]["name"], faults)


def _share_fault(share: int | str) -> str:
    """Return why a budget cannot have this count or percentage; "": it can."""
    if isinstance(share, int):
        return "" if share >= 0 else "must be greater than or equal to 0"
    if not re.fullmatch("[0-9]+%", share):
        return "a valid percent string must be a numeric string followed by an ending '%'"
    return "" if int(share[:-1]) <= _ALL else "must not be greater than 100%"


def _pod(obj: Object) -> None:
    if isinstance(obj.get("spec"), dict):
        podrules.default_spec(obj["spec"])
        if obj["spec"].get("enableServiceLinks") is None:  # templates have no such default
            obj["spec"]["enableServiceLinks"] = True


def _workload(obj: Object) -> None:
    _template(obj.get("spec") or {})


def _template(owner: Object) -> None:
    inner = (owner.get("template") or {}).get("spec")
    if isinstance(inner, dict):
        podrules.default_spec(inner)


def _replicated(obj: Object) -> None:
    _workload(obj)
    if isinstance(obj.get("spec"), dict):
        obj["spec"].setdefault("replicas", 1)


def _namespace(obj: Object) -> None:
    obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = obj["metadata"].get(
        "name", ""
    )


def _secret(obj: Object) -> None:
    obj.setdefault("type", "Opaque")
    texts = obj.pop("stringData", None)
    if texts:
        data = obj.setdefault("data", {})
        data.update({k: base64.b64encode(v.encode()).decode() for k, v in texts.items()})


def _priority(obj: Object) -> None:
    obj.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _service(obj: Object) -> None:
    spec = obj.get("spec") or {}
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    spec.setdefault("internalTrafficPolicy", "Cluster")
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))


def _claim(obj: Object) -> None:
    if isinstance(obj.get("spec"), dict):
        obj["spec"].setdefault("volumeMode", "Filesystem")


def _volume(obj: Object) -> None:
    if isinstance(obj.get("spec"), dict):
        obj["spec"].setdefault("volumeMode", "Filesystem")
        obj["spec"].setdefault("persistentVolumeReclaimPolicy", "Retain")
        if isinstance(obj["spec"].get("hostPath"), dict):
            obj["spec"]["hostPath"].setdefault("type", "")


def _storage_class(obj: Object) -> None:
    obj.setdefault("reclaimPolicy", "Delete")
    obj.setdefault("volumeBindingMode", "Immediate")


def _crd(obj: Object) -> None:
    names = (obj.get("spec") or {}).get("names") or {}
    if names.get("kind"):
        names.setdefault("listKind", f"{names['kind']}List")
        names.setdefault("singular", names["kind"].lower())
    if isinstance(obj.get("spec"), dict):
        obj["spec"].setdefault("conversion", {"strategy": "None"})


def _webhooks(obj: Object) -> None:
    for hook in obj.get("webhooks") or ():
        for key, value in (
            ("failurePolicy", "Fail"),
            ("matchPolicy", "Equivalent"),
            ("namespaceSelector", {}),
            ("objectSelector", {}),
            ("timeoutSeconds", 10),
        ):
            hook.setdefault(key, value)
        if obj["kind"].startswith("Mutating"):
            hook.setdefault("reinvocationPolicy", "Never")
        for rule in hook.get("rules") or ():
            rule.setdefault("scope", "*")
        service = (hook.get("clientConfig") or {}).get("service")
        if isinstance(service, dict):
            service.setdefault("port", 443)


def _event(obj: Object) -> None:
    obj.setdefault("source", {})
    for key in ("reportingComponent", "reportingInstance"):
        obj.setdefault(key, "")
    for key in ("firstTimestamp", "lastTimestamp", "eventTime"):
        obj.setdefault(key, None)


_DEFAULTS: Final[dict[str, Callable[[Object], None]]] = {
    "pods": _pod,
    "podtemplates": _template,
    "replicasets": _replicated,
    "statefulsets": _replicated,
    "daemonsets": _workload,
    "jobs": _workload,
    "namespaces": _namespace,
    "secrets": _secret,
    "priorityclasses": _priority,
    "services": _service,
    "persistentvolumeclaims": _claim,
    "persistentvolumes": _volume,
    "storageclasses": _storage_class,
    "customresourcedefinitions": _crd,
    "mutatingwebhookconfigurations": _webhooks,
    "validatingwebhookconfigurations": _webhooks,
    "events": _event,
}


def _admit_namespace(api: ApiState, resource: ApiResource, obj: Object) -> None:
    del api, resource
    obj["spec"] = {"finalizers": ["kubernetes"]}
    obj["status"] = {"phase": "Active"}


def _admit_node(api: ApiState, resource: ApiResource, obj: Object) -> None:
    """Taint a new node until it is ready, as the admission plugin TaintNodesByCondition does."""
    del api, resource
    spec = obj.setdefault("spec", {})
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    taints = spec.setdefault("taints", [])
    if taint not in taints:
        taints.append(taint)


def _admit_phase(api: ApiState, resource: ApiResource, obj: Object) -> None:
    del api, resource
    obj["status"] = {"phase": "Pending"}


def _admit_service(api: ApiState, resource: ApiResource, obj: Object) -> None:
    """Give a service its address, counted up in the range of the local stack."""
    del resource
    spec = obj.setdefault("spec", {})
    if spec.get("type") != "ExternalName":
        if not spec.get("clusterIP"):
            number = api.store.version % 65_000 + 2
            spec["clusterIP"] = f"10.96.{number // 256}.{number % 256}"
        spec["clusterIPs"] = [spec["clusterIP"]]
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
    obj["status"] = {"loadBalancer": {}}


_ADMIT: Final[dict[str, Rule]] = {
    "pods": podrules.admit,
    "namespaces": _admit_namespace,
    "nodes": _admit_node,
    "persistentvolumeclaims": _admit_phase,
    "persistentvolumes": _admit_phase,
    "services": _admit_service,
}
_IMMUTABLE: Final[dict[str, tuple[str, ...]]] = {
    "priorityclasses": ("value", "preemptionPolicy"),
    "secrets": ("type",),
    "storageclasses": ("provisioner", "parameters", "reclaimPolicy"),
}


def _check_immutable(resource: ApiResource, obj: Object, old: Object) -> None:
    faults = []
    if resource.plural in ("configmaps", "secrets") and old.get("immutable"):
        words = "Forbidden: field is immutable when `immutable` is set"
        if obj.get("data") != old.get("data"):
            faults.append(FieldFault(field="data", message=words, reason="FieldValueForbidden"))
    for field in _IMMUTABLE.get(resource.plural, ()):
        if obj.get(field) != old.get(field):
            shown = msgspec.json.encode(obj.get(field)).decode()
            message = f"Invalid value: {shown}: field is immutable"
            faults.append(FieldFault(field=field, message=message))
    if faults:
        raise invalid(resource, obj["metadata"]["name"], faults)
