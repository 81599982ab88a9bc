"""Columns of the built-in kinds: name, type, priority and the content of a cell."""

import re
from collections.abc import Callable
from typing import Any, Final

from pumice.embedded.apiserver.replies import Object

_STEP: Final = re.compile(r"\.([^.\[]+)|\[\?\(@\.([^=]+)==[\"']([^\"']+)[\"']\)\]|\[(\d+|\*)\]")
Column = tuple[str, str, int, Callable[[Object], Any]]
"""Name, type, priority (1: shown by `-o wide` alone), and the content of a cell."""
CREATED: Final = ".metadata.creationTimestamp"
_NONE: Final = "<none>"
_UNKNOWN: Final = "<unknown>"


def at_path(value: Any, path: str) -> Any:  # noqa: ANN401 - any JSON
    """Return what a JSON path of a printer column leads to, None if nothing."""
    for name, key, wanted_value, index in _STEP.findall(path):
        if name:
            value = value.get(name.replace("\\", "")) if isinstance(value, dict) else None
        elif key:
            items = value if isinstance(value, list) else ()
            value = next((i for i in items if str(i.get(key)) == wanted_value), None)
        elif isinstance(value, list):
            value = value[0 if index == "*" else int(index)] if value else None
    return value


def name_of(obj: Object) -> str:
    """Return the name of an object."""
    name: str = obj["metadata"]["name"]
    return name


def _statuses(pod: Object) -> list[Object]:
    statuses: list[Object] = (pod.get("status") or {}).get("containerStatuses") or []
    return statuses


def _ready(pod: Object) -> str:
    ready = sum(bool(entry.get("ready")) for entry in _statuses(pod))
    return f"{ready}/{len(pod['spec'].get('containers') or ())}"


def _pod_status(pod: Object) -> str:
    status = pod.get("status") or {}
    if "deletionTimestamp" in pod["metadata"]:
        return "Terminating"
    for entry in _statuses(pod):
        ended = (entry.get("state") or {}).get("terminated")
        if ended and ended.get("reason"):
            return str(ended["reason"])
    return str(status.get("reason") or status.get("phase", ""))


def _restarts(pod: Object) -> str:
    return str(sum(entry.get("restartCount", 0) for entry in _statuses(pod)))


def _node_status(node: Object) -> str:
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = next((c["status"] for c in conditions if c["type"] == "Ready"), "Unknown")
    text = "Ready" if ready == "True" else "NotReady"
    return f"{text},SchedulingDisabled" if node["spec"].get("unschedulable") else text


def _roles(node: Object) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels") or {}
    return ",".join(sorted(k[len(prefix) :] for k in labels if k.startswith(prefix))) or "<none>"


def value_at(path: str) -> Callable[[Object], Any]:
    """Return a cell with the value at a path."""
    return lambda obj: at_path(obj, path)


def _server(obj: Object) -> str:
    """Return the Service that an APIService leads to."""
    service = obj["spec"].get("service")
    return f"{service['namespace']}/{service['name']}" if service else "Local"


def _available(obj: Object) -> str:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    state = next((c for c in conditions if c["type"] == "Available"), None)
    if state is None:
        return "Unknown"
    return "True" if state["status"] == "True" else f"{state['status']} ({state['reason']})"


def _or(path: str, otherwise: str = _NONE) -> Callable[[Object], Any]:
    return lambda obj: at_path(obj, path) or otherwise


def _readiness_gates(pod: Object) -> str:
    gates = [gate.get("conditionType") for gate in pod["spec"].get("readinessGates") or ()]
    conditions = (pod.get("status") or {}).get("conditions") or ()
    met = {c["type"] for c in conditions if c.get("status") == "True"}
    return f"{sum(gate in met for gate in gates)}/{len(gates)}" if gates else _NONE


def _node_address(kind: str) -> Callable[[Object], str]:
    def cell(node: Object) -> str:
        addresses = (node.get("status") or {}).get("addresses") or ()
        return next((str(a["address"]) for a in addresses if a.get("type") == kind), _NONE)

    return cell


def _external(service: Object) -> str:
    """Return under which addresses a Service is found from outside."""
    spec = service["spec"]
    if spec.get("type") == "ExternalName":
        return str(spec.get("externalName") or _NONE)
    addresses = list(spec.get("externalIPs") or ())
    if spec.get("type") == "LoadBalancer":
        ingress = at_path(service, ".status.loadBalancer.ingress") or ()
        addresses += [entry.get("ip") or entry.get("hostname") or "" for entry in ingress]
        return ",".join(addresses) or "<pending>"
    return ",".join(addresses) or _NONE


def _ports(service: Object) -> str:
    shown = []
    for port in service["spec"].get("ports") or ():
        outside = f":{port['nodePort']}" if port.get("nodePort") else ""
        shown.append(f"{port.get('port')}{outside}/{port.get('protocol', 'TCP')}")
    return ",".join(shown) or _NONE


def _pairs(path: str) -> Callable[[Object], str]:
    """Return a cell with labels as one writes a selector."""
    return lambda obj: (
        ",".join(f"{key}={value}" for key, value in sorted((at_path(obj, path) or {}).items()))
        or _NONE
    )


def _of_containers(
    field: str, path: str = ".spec.template.spec.containers"
) -> Callable[[Object], str]:
    def cell(obj: Object) -> str:
        containers = at_path(obj, path) or ()
        return ",".join(str(container.get(field, "")) for container in containers)

    return cell


def _text(path: str, otherwise: str) -> Callable[[Object], str]:
    """Return a cell with a value as a text; 0 is one."""

    def cell(obj: Object) -> str:
        found = at_path(obj, path)
        return otherwise if found is None else str(found)

    return cell


def _number(path: str) -> Callable[[Object], int]:
    return lambda obj: int(at_path(obj, path) or 0)


def _count(path: str) -> Callable[[Object], int]:
    return lambda obj: len(at_path(obj, path) or ())


def _phase(obj: Object) -> str:
    deleting = "deletionTimestamp" in obj["metadata"]
    return "Terminating" if deleting else str((obj.get("status") or {}).get("phase", ""))


def _access_modes(path: str) -> Callable[[Object], str]:
    return lambda obj: ",".join(_SHORT_MODES.get(m, m) for m in at_path(obj, path) or ())


def _claim_of(volume: Object) -> str:
    claim = volume["spec"].get("claimRef")
    return f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else ""


def _quota(*, limits: bool) -> Callable[[Object], str]:
    def cell(quota: Object) -> str:
        status = quota.get("status") or {}
        hard, used = status.get("hard") or {}, status.get("used") or {}
        chosen = sorted(name for name in hard if name.startswith("limits") == limits)
        return ", ".join(f"{name}: {used.get(name, '0')}/{hard[name]}" for name in chosen)

    return cell


def _role(binding: Object) -> str:
    role = binding["roleRef"]
    return f"{role['kind']}/{role['name']}"


def _subjects(kind: str) -> Callable[[Object], str]:
    def cell(binding: Object) -> str:
        found = (s for s in binding.get("subjects") or () if s.get("kind") == kind)
        return ", ".join(
            f"{s['namespace']}/{s['name']}" if "namespace" in s else s["name"] for s in found
        )

    return cell


def _replicas(obj: Object) -> str:
    status = obj.get("status") or {}
    return f"{status.get('readyReplicas', 0)}/{obj['spec'].get('replicas', 0)}"


def class_name(obj: Object) -> str:
    """Return the name of a storage class, which says whether it is the default one."""
    default = (obj["metadata"].get("annotations") or {}).get(_DEFAULT_CLASS) == "true"
    return f"{name_of(obj)} (default)" if default else name_of(obj)


WITHOUT_TIME: Final = frozenset(("podtemplates",))
"""Kinds for which kube-apiserver shows no time."""
WITH_TIME: Final = frozenset(("limitranges", "customresourcedefinitions", "roles", "clusterroles"))
"""Kinds for which kube-apiserver shows the time of creation in place of the age."""
_SHORT_MODES: Final = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}
_UNSET: Final = "<unset>"
_DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
_BINDINGS: Final = (
    (("Role", "string", 0, _role),),
    (
        ("Users", "string", 1, _subjects("User")),
        ("Groups", "string", 1, _subjects("Group")),
        ("ServiceAccounts", "string", 1, _subjects("ServiceAccount")),
    ),
)
_WEBHOOKS: Final = ((("Webhooks", "integer", 0, _count(".webhooks")),), ())
BUILTIN: Final[dict[str, tuple[tuple[Column, ...], tuple[Column, ...]]]] = {
    "pods": (
        (
            ("Ready", "string", 0, _ready),
            ("Status", "string", 0, _pod_status),
            ("Restarts", "string", 0, _restarts),
        ),
        (
            ("IP", "string", 1, _or(".status.podIP")),
            ("Node", "string", 1, _or(".spec.nodeName")),
            ("Nominated Node", "string", 1, _or(".status.nominatedNodeName")),
            ("Readiness Gates", "string", 1, _readiness_gates),
        ),
    ),
    "nodes": (
        (("Status", "string", 0, _node_status), ("Roles", "string", 0, _roles)),
        (
            ("Version", "string", 0, value_at(".status.nodeInfo.kubeletVersion")),
            ("Internal-IP", "string", 1, _node_address("InternalIP")),
            ("External-IP", "string", 1, _node_address("ExternalIP")),
            ("OS-Image", "string", 1, _or(".status.nodeInfo.osImage", _UNKNOWN)),
            ("Kernel-Version", "string", 1, _or(".status.nodeInfo.kernelVersion", _UNKNOWN)),
            (
                "Container-Runtime",
                "string",
                1,
                _or(".status.nodeInfo.containerRuntimeVersion", _UNKNOWN),
            ),
        ),
    ),
    "namespaces": ((("Status", "string", 0, value_at(".status.phase")),), ()),
    "configmaps": ((("Data", "string", 0, lambda obj: len(obj.get("data") or ())),), ()),
    "secrets": (
        (
            ("Type", "string", 0, value_at(".type")),
            ("Data", "string", 0, lambda obj: len(obj.get("data") or ())),
        ),
        (),
    ),
    "services": (
        (
            ("Type", "string", 0, value_at(".spec.type")),
            ("Cluster-IP", "string", 0, _or(".spec.clusterIP")),
            ("External-IP", "string", 0, _external),
            ("Port(s)", "string", 0, _ports),
        ),
        (("Selector", "string", 1, _pairs(".spec.selector")),),
    ),
    "apiservices": (
        (("Service", "string", 0, _server), ("Available", "string", 0, _available)),
        (),
    ),
    "priorityclasses": (
        (
            ("Value", "integer", 0, value_at(".value")),
            ("Global-Default", "boolean", 0, lambda obj: bool(obj.get("globalDefault"))),
        ),
        (("PreemptionPolicy", "string", 0, _or(".preemptionPolicy", "PreemptLowerPriority")),),
    ),
    "poddisruptionbudgets": (
        (
            ("Min Available", "string", 0, _text(".spec.minAvailable", "N/A")),
            ("Max Unavailable", "string", 0, _text(".spec.maxUnavailable", "N/A")),
            ("Allowed Disruptions", "integer", 0, _number(".status.disruptionsAllowed")),
        ),
        (),
    ),
    "replicasets": (
        (
            ("Desired", "integer", 0, _number(".spec.replicas")),
            ("Current", "integer", 0, _number(".status.replicas")),
            ("Ready", "integer", 0, _number(".status.readyReplicas")),
        ),
        (
            ("Containers", "string", 1, _of_containers("name")),
            ("Images", "string", 1, _of_containers("image")),
            ("Selector", "string", 1, _pairs(".spec.selector.matchLabels")),
        ),
    ),
    "statefulsets": (
        (("Ready", "string", 0, _replicas),),
        (
            ("Containers", "string", 1, _of_containers("name")),
            ("Images", "string", 1, _of_containers("image")),
        ),
    ),
    "daemonsets": (
        (
            ("Desired", "integer", 0, _number(".status.desiredNumberScheduled")),
            ("Current", "integer", 0, _number(".status.currentNumberScheduled")),
            ("Ready", "integer", 0, _number(".status.numberReady")),
            ("Up-to-date", "integer", 0, _number(".status.updatedNumberScheduled")),
            ("Available", "integer", 0, _number(".status.numberAvailable")),
            ("Node Selector", "string", 0, _pairs(".spec.template.spec.nodeSelector")),
        ),
        (
            ("Containers", "string", 1, _of_containers("name")),
            ("Images", "string", 1, _of_containers("image")),
            ("Selector", "string", 1, _pairs(".spec.selector.matchLabels")),
        ),
    ),
    "podtemplates": (
        (
            ("Containers", "string", 0, _of_containers("name", ".template.spec.containers")),
            ("Images", "string", 0, _of_containers("image", ".template.spec.containers")),
            ("Pod Labels", "string", 0, _pairs(".template.metadata.labels")),
        ),
        (),
    ),
    "resourcequotas": (
        (
            ("Request", "string", 0, _quota(limits=False)),
            ("Limit", "string", 0, _quota(limits=True)),
        ),
        (),
    ),
    "persistentvolumeclaims": (
        (
            ("Status", "string", 0, _phase),
            ("Volume", "string", 0, _or(".spec.volumeName", "")),
            ("Capacity", "string", 0, _or(".status.capacity.storage", "")),
            ("Access Modes", "string", 0, _access_modes(".status.accessModes")),
            ("StorageClass", "string", 0, _or(".spec.storageClassName", "")),
            ("VolumeAttributesClass", "string", 0, _or(".spec.volumeAttributesClassName", _UNSET)),
        ),
        (("VolumeMode", "string", 1, _or(".spec.volumeMode", _UNSET)),),
    ),
    "persistentvolumes": (
        (
            ("Capacity", "string", 0, _or(".spec.capacity.storage", "")),
            ("Access Modes", "string", 0, _access_modes(".spec.accessModes")),
            ("Reclaim Policy", "string", 0, _or(".spec.persistentVolumeReclaimPolicy", "")),
            ("Status", "string", 0, _phase),
            ("Claim", "string", 0, _claim_of),
            ("StorageClass", "string", 0, _or(".spec.storageClassName", "")),
            ("VolumeAttributesClass", "string", 0, _or(".spec.volumeAttributesClassName", _UNSET)),
            ("Reason", "string", 0, _or(".status.reason", "")),
        ),
        (("VolumeMode", "string", 1, _or(".spec.volumeMode", _UNSET)),),
    ),
    "storageclasses": (
        (
            ("Provisioner", "string", 0, _or(".provisioner", "")),
            ("ReclaimPolicy", "string", 0, _or(".reclaimPolicy", "")),
            ("VolumeBindingMode", "string", 0, _or(".volumeBindingMode", "")),
            (
                "AllowVolumeExpansion",
                "string",
                0,
                lambda obj: bool(obj.get("allowVolumeExpansion")),
            ),
        ),
        (),
    ),
    "csinodes": ((("Drivers", "integer", 0, _count(".spec.drivers")),), ()),
    "networkpolicies": (
        (("Pod-Selector", "string", 0, _pairs(".spec.podSelector.matchLabels")),),
        (),
    ),
    "leases": ((("Holder", "string", 0, _or(".spec.holderIdentity", "")),), ()),
    "rolebindings": _BINDINGS,
    "clusterrolebindings": _BINDINGS,
    "mutatingwebhookconfigurations": _WEBHOOKS,
    "validatingwebhookconfigurations": _WEBHOOKS,
}
"""Columns of kinds before and behind the age, as kubectl shows them of kube-apiserver."""
