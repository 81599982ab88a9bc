"""The rules of the API server and its admission for pods: defaults, checks, priority, QoS."""

import copy
import re
from typing import Any, Final

from pumice.embedded.apiserver.api_state import PRIORITIES, ApiState
from pumice.embedded.apiserver.catalogue import ApiResource
from pumice.embedded.apiserver.replies import FieldFault, Object, forbidden, invalid

_ACCOUNTS: Final = "serviceaccounts."
_TOKEN_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - a path
_EVICT_AFTER_S: Final = 300
_MODE: Final = 0o644
_TAG: Final = re.compile(r"(@|:[^/]+$)")
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SPEC: Final = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
}
_CONTAINER: Final = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_PROBE: Final = {
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
}
_IMMUTABLE_WORDS: Final = (
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set "
    "to 1 if it was previously negative)"
)
_TOLERATED: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def default_spec(spec: Object) -> None:
    """Set the defaults of a pod's or a template's spec, in place."""
    for key, value in _SPEC.items():
        if spec.get(key) in (None, ""):
            spec[key] = value
    spec.setdefault("securityContext", {})
    if spec.get("serviceAccountName") or spec.get("serviceAccount"):
        account = spec.get("serviceAccountName") or spec["serviceAccount"]
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for container in _containers(spec):
        _default_container(container, host_network=bool(spec.get("hostNetwork")))
    for volume in spec.get("volumes") or ():
        for source in ("secret", "configMap", "downwardAPI", "projected"):
            if isinstance(volume.get(source), dict):
                volume[source].setdefault("defaultMode", _MODE)


def _containers(spec: Object) -> list[Object]:
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def _default_container(container: Object, *, host_network: bool) -> None:
    for key, value in _CONTAINER.items():
        container.setdefault(key, value)
    if not container.get("imagePullPolicy"):
        image = str(container.get("image", ""))
        always = not _TAG.search(image) or image.endswith(":latest")
        container["imagePullPolicy"] = "Always" if always else "IfNotPresent"
    resources = container.setdefault("resources", {})
    for name, amount in (resources.get("limits") or {}).items():
        resources.setdefault("requests", {}).setdefault(name, amount)
    for port in container.get("ports") or ():
        if host_network and "hostPort" not in port:
            port["hostPort"] = port["containerPort"]
    _default_inner(container)


def _default_inner(container: Object) -> None:
    for env in container.get("env") or ():
        if isinstance(reference := (env.get("valueFrom") or {}).get("fieldRef"), dict):
            reference.setdefault("apiVersion", "v1")
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if isinstance(handler := container.get(probe), dict):
            for key, number in _PROBE.items():
                handler.setdefault(key, number)
            if isinstance(get := handler.get("httpGet"), dict):
                get.setdefault("scheme", "HTTP")
                get.setdefault("path", "/")


def admit(api: ApiState, resource: ApiResource, pod: Object) -> None:
    """Apply the built-in admission plugins to a new pod. Raises RequestFailure (403)."""
    spec = pod["spec"]
    _admit_account(api, resource, pod, spec)
    _admit_priority(api, resource, pod, spec)
    tolerations = spec.setdefault("tolerations", [])
    for key in _TOLERATED:
        if not any(_tolerates(entry, key) for entry in tolerations):
            tolerations.append(
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": _EVICT_AFTER_S,
                }
            )
    pod["status"] = {"phase": "Pending", "qosClass": qos(spec)}


def _tolerates(entry: Object, key: str) -> bool:
    return bool(entry.get("key", key) == key and entry.get("effect", "NoExecute") == "NoExecute")


def _admit_account(api: ApiState, resource: ApiResource, pod: Object, spec: Object) -> None:
    metadata = pod["metadata"]
    name = spec.get("serviceAccountName") or "default"
    account = api.find(_ACCOUNTS, metadata["namespace"], name)
    if account is None:
        where = f"{metadata['namespace']}/{name}"
        raise forbidden(
            resource,
            metadata["name"],
            f'error looking up service account {where}: serviceaccount "{name}" not found',
        )
    spec["serviceAccountName"] = spec["serviceAccount"] = name
    own = spec.get("automountServiceAccountToken")
    automount = account.get("automountServiceAccountToken", True) if own is None else own
    mounts = [m for c in _containers(spec) for m in c.get("volumeMounts") or ()]
    if not automount or any(m.get("mountPath") == _TOKEN_PATH for m in mounts):
        return
    volume = f"kube-api-access-{api.suffix()}"
    spec.setdefault("volumes", []).append({"name": volume, "projected": _token_sources()})
    for container in _containers(spec):
        mount = {"name": volume, "readOnly": True, "mountPath": _TOKEN_PATH}
        container.setdefault("volumeMounts", []).append(mount)


def _token_sources() -> Object:
    reference = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    return {
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {
                "configMap": {
                    "name": "kube-root-ca.crt",
                    "items": [{"key": "ca.crt", "path": "ca.crt"}],
                }
            },
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": reference}]}},
        ],
        "defaultMode": _MODE,
    }


def _admit_priority(api: ApiState, resource: ApiResource, pod: Object, spec: Object) -> None:
    name = spec.get("priorityClassName") or ""
    found: Object | None
    if name:
        found = api.find(PRIORITIES, "", name)
        if found is None:
            why = f"no PriorityClass with name {name} was found"
            raise forbidden(resource, pod["metadata"]["name"], why)
    else:
        classes = api.objects(PRIORITIES)
        found = next((entry for entry in classes if entry.get("globalDefault")), None)
        if found is not None:
            spec["priorityClassName"] = found["metadata"]["name"]
    value = found["value"] if found else 0
    if spec.get("priority", value) != value:
        why = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
            f"priority admission controller computed {value} from the given PriorityClass name"
        )
        raise forbidden(resource, pod["metadata"]["name"], why)
    spec["priority"] = value
    policy = (found or {}).get("preemptionPolicy", "PreemptLowerPriority")
    spec.setdefault("preemptionPolicy", policy)


def qos(spec: Object) -> str:
    """Return the quality of service class of a pod."""
    guaranteed, burstable = True, False
    for container in _containers(spec):
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in ("cpu", "memory"):
            burstable |= str(requests.get(name, "0")) != "0" or name in limits
            guaranteed &= name in limits and requests.get(name) == limits[name]
    if guaranteed and burstable:
        return "Guaranteed"
    return "Burstable" if burstable else "BestEffort"


def check(resource: ApiResource, pod: Object) -> None:
    """Raise RequestFailure (422) for faults of a pod's spec that the schema cannot express."""
    spec = pod.get("spec") or {}
    faults = []
    if not spec.get("containers"):
        faults.append(_required("spec.containers"))
    seen: set[str] = set()
    for group in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(group) or ()):
            faults += _container_faults(container, f"spec.{group}[{index}]", seen)
    if faults:
        raise invalid(resource, pod["metadata"].get("name", ""), faults)


def _container_faults(container: Object, path: str, seen: set[str]) -> list[FieldFault]:
    faults = []
    name = container.get("name") or ""
    if not name:
        faults.append(_required(f"{path}.name"))
    elif not _NAME.fullmatch(name):
        words = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters"
        faults.append(FieldFault(field=f"{path}.name", message=f'Invalid value: "{name}": {words}'))
    elif name in seen:
        message = f'Duplicate value: "{name}"'
        faults.append(
            FieldFault(field=f"{path}.name", message=message, reason="FieldValueDuplicate")
        )
    seen.add(name)
    if not container.get("image"):
        faults.append(_required(f"{path}.image"))
    return faults


def _required(field: str) -> FieldFault:
    return FieldFault(field=field, message="Required value", reason="FieldValueRequired")


def check_update(resource: ApiResource, pod: Object, old: Object) -> None:
    """Raise RequestFailure (422) when a field changes that may not."""
    if pod.get("spec") == old.get("spec"):
        return
    new, before = _fixed_part(pod["spec"]), _fixed_part(old["spec"])
    had = old["spec"].get("tolerations") or []
    lost = any(entry not in (pod["spec"].get("tolerations") or ()) for entry in had)
    gates = {g["name"] for g in old["spec"].get("schedulingGates") or ()}
    added = any(g["name"] not in gates for g in pod["spec"].get("schedulingGates") or ())
    if new != before or lost or added:
        fault = FieldFault(field="spec", message=_IMMUTABLE_WORDS, reason="FieldValueForbidden")
        raise invalid(resource, pod["metadata"]["name"], [fault])


def _fixed_part(spec: Object) -> Any:  # noqa: ANN401 - any JSON
    fixed = copy.deepcopy(spec)
    for field in ("activeDeadlineSeconds", "tolerations", "schedulingGates"):
        fixed.pop(field, None)
    for container in _containers(fixed):
        container.pop("image", None)
    return fixed
