"""Responses as tables, for `kubectl get`: columns and one row per object."""

import datetime as dt
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from pumice.embedded.apiserver.api_state import ApiState
from pumice.embedded.apiserver.catalogue import ApiResource
from pumice.embedded.apiserver.cells import (
    BUILTIN,
    CREATED,
    WITH_TIME,
    WITHOUT_TIME,
    Column,
    at_path,
    class_name,
    name_of,
    value_at,
)
from pumice.embedded.apiserver.replies import ApiRequest, Object

_WANTED: Final = re.compile(r"application/json;as=Table;v=(v1|v1beta1);g=meta\.k8s\.io")


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
    named = class_name if resource.plural == "storageclasses" else name_of
    own: list[Column] = [("Name", "string", 0, named)]
    if resource.custom:
        own += [(c.name, c.type, c.priority, _from_path(api, c)) for c in resource.columns]
        return own if resource.columns else [*own, ("Age", "date", 0, _since(api, CREATED))]
    if resource.plural == "events":
        return _of_events(api)
    if resource.plural in WITH_TIME:
        return [*own, ("Created At", "date", 0, value_at(CREATED))]
    before, after = BUILTIN.get(resource.plural, ((), ()))
    if resource.plural in WITHOUT_TIME:
        return [*own, *before, *after]
    return [*own, *before, ("Age", "string", 0, _since(api, CREATED)), *after]


def _since(api: ApiState, *paths: str) -> Callable[[Object], str]:
    """Return a cell with the age of the first of the paths that has a time."""

    def cell(obj: Object) -> str:
        found = next((time for path in paths if (time := at_path(obj, path))), None)
        return _age(api, found) if found else "<unknown>"

    return cell


def _from_path(api: ApiState, column: Any) -> Callable[[Object], Any]:  # noqa: ANN401 - a Column
    def cell(obj: Object) -> Any:  # noqa: ANN401 - any JSON
        found = at_path(obj, column.path)
        if column.type == "date":
            return _age(api, found) if found else "<unknown>"
        if column.type == "string" and isinstance(found, dict | list):
            return json.dumps(found, separators=(",", ":"), sort_keys=True)
        return found

    return cell


def _age(api: ApiState, since: str) -> str:
    seconds = max(0, int(api.now() - dt.datetime.fromisoformat(since).timestamp()))
    for unit, size, rest in (("d", 86400, 3 * 86400), ("h", 3600, 3 * 3600), ("m", 60, 180)):
        if seconds >= rest:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _source(event: Object) -> str:
    source = event.get("source") or {}
    texts = [source.get("component") or event.get("reportingComponent"), source.get("host")]
    return ", ".join(text for text in texts if text)


def _involved(event: Object) -> str:
    about = event["involvedObject"]
    return f"{about.get('kind', '').lower()}/{about.get('name', '')}"


def _of_events(api: ApiState) -> list[Column]:
    last = _since(api, ".series.lastObservedTime", ".lastTimestamp", ".eventTime", CREATED)
    return [
        ("Last Seen", "string", 0, last),
        ("Type", "string", 0, value_at(".type")),
        ("Reason", "string", 0, value_at(".reason")),
        ("Object", "string", 0, _involved),
        ("Subobject", "string", 1, value_at(".involvedObject.fieldPath")),
        ("Source", "string", 1, _source),
        ("Message", "string", 0, lambda obj: str(obj.get("message") or "").strip()),
        ("First Seen", "string", 1, _since(api, ".firstTimestamp", ".eventTime", CREATED)),
        ("Count", "string", 1, lambda obj: obj.get("count") or 1),
        ("Name", "string", 1, name_of),
    ]
