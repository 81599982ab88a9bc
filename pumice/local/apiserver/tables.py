"""Answers as tables, for `kubectl get`: columns and one row per object."""

import datetime as dt
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from pumice.local.apiserver.answers import Object, Request
from pumice.local.apiserver.catalogue import Resource
from pumice.local.apiserver.world import World

_WANTED: Final = re.compile(r"application/json;as=Table;v=(v1|v1beta1);g=meta\.k8s\.io")
_STEP: Final = re.compile(r"\.([^.\[]+)|\[\?\(@\.([^=]+)==[\"']([^\"']+)[\"']\)\]|\[(\d+|\*)\]")
Cells = tuple[tuple[str, Callable[[Object], Any]], ...]


def wanted(request: Request) -> str:
    """Return the part of the object that each row carries, "" when no table is asked for."""
    first = request.headers.get("accept", "").partition(",")[0].replace(" ", "")
    if not _WANTED.fullmatch(first):
        return ""
    return request.query.get("includeObject", "Metadata") or "Metadata"


def table(
    world: World,
    resource: Resource,
    objects: Sequence[Object],
    *,
    include: str,
    headed: bool = True,
) -> Object:
    """Return objects as a Table."""
    columns = _columns(world, resource)
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


def _columns(world: World, resource: Resource) -> list[tuple[str, str, int, Callable[..., Any]]]:
    own: list[tuple[str, str, int, Callable[..., Any]]] = [("Name", "string", 0, _name)]
    age = ("Age", "string", 0, lambda obj: _age(world, obj["metadata"]["creationTimestamp"]))
    if resource.custom:
        own += [(c.name, c.type, c.priority, _from_path(world, c)) for c in resource.columns]
        return own if resource.columns else [*own, age]
    for name, cell in _BUILTIN.get(resource.plural, ()):
        own.append((name, "string", 0, cell))
    return [*own, age]


def _from_path(world: World, column: Any) -> Callable[[Object], Any]:  # noqa: ANN401 - a Column
    def cell(obj: Object) -> Any:  # noqa: ANN401 - any JSON
        found = _look(obj, column.path)
        if column.type == "date":
            return _age(world, found) if found else "<unknown>"
        if column.type == "string" and isinstance(found, dict | list):
            return json.dumps(found, separators=(",", ":"), sort_keys=True)
        return found

    return cell


def _look(value: Any, path: str) -> Any:  # noqa: ANN401 - any JSON
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


def _age(world: World, since: str) -> str:
    seconds = max(0, int(world.now() - dt.datetime.fromisoformat(since).timestamp()))
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
    return lambda obj: _look(obj, path)


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


_BUILTIN: Final[dict[str, Cells]] = {
    "pods": (("Ready", _ready), ("Status", _pod_status), ("Restarts", _restarts)),
    "nodes": (
        ("Status", _node_status),
        ("Roles", _roles),
        ("Version", _path(".status.nodeInfo.kubeletVersion")),
    ),
    "namespaces": (("Status", _path(".status.phase")),),
    "configmaps": (("Data", lambda obj: len(obj.get("data") or ())),),
    "secrets": (
        ("Type", _path(".type")),
        ("Data", lambda obj: len(obj.get("data") or ())),
    ),
    "services": (
        ("Type", _path(".spec.type")),
        ("Cluster-IP", _path(".spec.clusterIP")),
    ),
    "apiservices": (
        ("Service", _server),
        ("Available", _available),
    ),
    "priorityclasses": (
        ("Value", _path(".value")),
        ("Global-Default", lambda obj: bool(obj.get("globalDefault"))),
    ),
    "events": (
        ("Type", _path(".type")),
        ("Reason", _path(".reason")),
        (
            "Object",
            lambda obj: (
                f"{obj['involvedObject'].get('kind', '').lower()}/"
                f"{obj['involvedObject'].get('name', '')}"
            ),
        ),
        ("Message", _path(".message")),
    ),
}
