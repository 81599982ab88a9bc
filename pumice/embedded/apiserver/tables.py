"""Responses as tables, for `kubectl get`: columns and one row per object."""

import datetime as dt
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from pumice.embedded.apiserver.api_state import ApiState
from pumice.embedded.apiserver.catalogue import ApiResource
from pumice.embedded.apiserver.replies import ApiRequest, Object

_WANTED: Final = re.compile(r"application/json;as=Table;v=(v1|v1beta1);g=meta\.k8s\.io")
_STEP: Final = re.compile(r"\.([^.\[]+)|\[\?\(@\.([^=]+)==[\"']([^\"']+)[\"']\)\]|\[(\d+|\*)\]")
Column = tuple[str, str, int, Callable[[Object], Any]]
"""Name, type, priority (1: shown by `-o wide` alone), and the content of a cell."""
_CREATED: Final = ".metadata.creationTimestamp"
_NONE: Final = "<none>"
_UNKNOWN: Final = "<unknown>"


def wanted(request: ApiRequest) -> str:
    """Return the part of the object that each row carries, "" when no table is requested."""
    first = request.headers.get("accept", "").partition(",")[0].replace(" ", "")
    if not _WANTED.fullmatch(first):
        return ""
    return request.query.get("includeObject", "Metadata") or "Metadata"


def table(
    api: ApiState,
    resource: ApiResource,
    objects: Sequence[Object],
    *,
    include: str,
    headed: bool = True,
) -> Object:
    """Return objects as a Table."""
    columns = _columns(api, resource)
    definitions = [
        {
            "name": name,
            "type": kind,
            "format": "name" if name == "Name" else "",
            "description": "",
            "priority": priority,
        }
        for name, kind, priority, _ in columns
    ]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {},
        "columnDefinitions": definitions if headed else [],
        "rows": [_row(columns, obj, include) for obj in objects],
    }


def _row(columns: Sequence[Any], obj: Object, include: str) -> Object:
    row: Object = {"cells": [cell(obj) for _, _, _, cell in columns]}
    if include == "Object":
        row["object"] = obj
    elif include == "Metadata":
        row["object"] = {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": obj["metadata"],
        }
    return row


def _columns(api: ApiState, resource: ApiResource) -> list[Column]:
    own: list[Column] = [("Name", "string", 0, _name)]
    if resource.custom:
        own += [(c.name, c.type, c.priority, _from_path(api, c)) for c in resource.columns]
        return own if resource.columns else [*own, ("Age", "date", 0, _since(api, _CREATED))]
    if resource.plural == "events":
        return _of_events(api)
    age = ("Age", "string", 0, _since(api, _CREATED))
    before, after = _BUILTIN.get(resource.plural, ((), ()))
    return [*own, *before, age, *after]


def _since(api: ApiState, *paths: str) -> Callable[[Object], str]:
    """Return a cell with the age of the first of the paths that has a time."""

    def cell(obj: Object) -> str:
        found = next((time for path in paths if (time := _at_path(obj, path))), None)
        return _age(api, found) if found else "<unknown>"

    return cell


def _from_path(api: ApiState, column: Any) -> Callable[[Object], Any]:  # noqa: ANN401 - a Column
    def cell(obj: Object) -> Any:  # noqa: ANN401 - any JSON
        found = _at_path(obj, column.path)
        if column.type == "date":
            return _age(api, found) if found else "<unknown>"
        if column.type == "string" and isinstance(found, dict | list):
            return json.dumps(found, separators=(",", ":"), sort_keys=True)
        return found

    return cell


def _at_path(value: Any, path: str) -> Any:  # noqa: ANN401 - any JSON
    for name, key, wanted_value, index in _STEP.findall(path):
        if name:
            value = value.get(name.replace("\\", "")) if isinstance(value, dict) else None
        elif key:
            items = value if isinstance(value, list) else ()
            value = next((i for i in items if str(i.get(key)) == wanted_value), None)
        elif isinstance(value, list):
            value = value[0 if index == "*" else int(index)] if value else None
    return value


def _name(obj: Object) -> str:
    name: str = obj["metadata"]["name"]
    return name


def _age(api: ApiState, since: str) -> str:
    seconds = max(0, int(api.now() - dt.datetime.fromisoformat(since).timestamp()))
    for unit, size, rest in (("d", 86400, 3 * 86400), ("h", 3600, 3 * 3600), ("m", 60, 180)):
        if seconds >= rest:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


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


def _path(path: str) -> Callable[[Object], Any]:
    return lambda obj: _at_path(obj, path)


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
    return lambda obj: _at_path(obj, path) or otherwise


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
        ingress = _at_path(service, ".status.loadBalancer.ingress") or ()
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
        ",".join(f"{key}={value}" for key, value in sorted((_at_path(obj, path) or {}).items()))
        or _NONE
    )


def _of_containers(field: str) -> Callable[[Object], str]:
    def cell(obj: Object) -> str:
        containers = _at_path(obj, ".spec.template.spec.containers") or ()
        return ",".join(str(container.get(field, "")) for container in containers)

    return cell


def _text(path: str, otherwise: str) -> Callable[[Object], str]:
    """Return a cell with a value as a text; 0 is one."""

    def cell(obj: Object) -> str:
        found = _at_path(obj, path)
        return otherwise if found is None else str(found)

    return cell


def _source(event: Object) -> str:
    source = event.get("source") or {}
    texts = [source.get("component") or event.get("reportingComponent"), source.get("host")]
    return ", ".join(text for text in texts if text)


def _involved(event: Object) -> str:
    about = event["involvedObject"]
    return f"{about.get('kind', '').lower()}/{about.get('name', '')}"


def _of_events(api: ApiState) -> list[Column]:
    last = _since(api, ".series.lastObservedTime", ".lastTimestamp", ".eventTime", _CREATED)
    return [
        ("Last Seen", "string", 0, last),
        ("Type", "string", 0, _path(".type")),
        ("Reason", "string", 0, _path(".reason")),
        ("Object", "string", 0, _involved),
        ("Subobject", "string", 1, _path(".involvedObject.fieldPath")),
        ("Source", "string", 1, _source),
        ("Message", "string", 0, lambda obj: str(obj.get("message") or "").strip()),
        ("First Seen", "string", 1, _since(api, ".firstTimestamp", ".eventTime", _CREATED)),
        ("Count", "string", 1, lambda obj: obj.get("count") or 1),
        ("Name", "string", 1, _name),
    ]


def _number(path: str) -> Callable[[Object], int]:
    return lambda obj: int(_at_path(obj, path) or 0)


_BUILTIN: Final[dict[str, tuple[tuple[Column, ...], tuple[Column, ...]]]] = {
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
            ("Version", "string", 0, _path(".status.nodeInfo.kubeletVersion")),
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
    "namespaces": ((("Status", "string", 0, _path(".status.phase")),), ()),
    "configmaps": ((("Data", "string", 0, lambda obj: len(obj.get("data") or ())),), ()),
    "secrets": (
        (
            ("Type", "string", 0, _path(".type")),
            ("Data", "string", 0, lambda obj: len(obj.get("data") or ())),
        ),
        (),
    ),
    "services": (
        (
            ("Type", "string", 0, _path(".spec.type")),
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
            ("Value", "integer", 0, _path(".value")),
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
}
"""Columns of kinds before and behind the age, as kubectl shows them of kube-apiserver."""
