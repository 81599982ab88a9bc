"""Server-side apply: a manager owns the fields that it applied; those it omits are removed.

Only applied fields are recorded in `managedFields` (the real server also records every other
write). Lists with keys merge by them, other lists are replaced whole.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from pumice.embedded.apiserver.catalogue import ApiResource
from pumice.embedded.apiserver.patching import Schema, field, resolved
from pumice.embedded.apiserver.replies import Object, RequestFailure

_HEAD: Final = frozenset(("apiVersion", "kind"))
_OWN: Final = frozenset(("name", "namespace", "uid", "resourceVersion", "managedFields"))
Path = tuple[str, ...]


def merge(
    old: Object,
    applied: Object,
    schema: Schema,
    *,
    manager: str,
    force: bool,
    resource: ApiResource,
) -> Object:
    """Return the object with `applied` merged; raises RequestFailure (409) on a conflict."""
    desired = _without_head(applied)
    fields = _fields(desired, schema)
    owned = _owned(old, manager)
    others = {
        path: entry["manager"]
        for entry in old["metadata"].get("managedFields") or ()
        if entry["manager"] != manager
        for path in _paths(entry.get("fieldsV1") or {})
    }
    clashes = [p for p in _paths(fields) if p in others and _get(old, p) != _get(desired, p)]
    if clashes and not force:
        raise _clash(resource, clashes, others)
    gone = [path for path in owned if path not in set(_paths(fields))]
    result = msgspec.json.decode(msgspec.json.encode(old))
    for path in sorted(gone, key=len, reverse=True):
        if path not in others:
            _remove(result, path)
    merged: Object = _merged(result, desired, schema)
    return merged


def claim(
    obj: Object, old: Object | None, applied: Object, *, manager: str, at: str, subresource: str
) -> None:
    """Record the applied fields in the object's `managedFields`, in place."""
    fields = _fields(_without_head(applied), {})
    entries = list((old or {"metadata": {}})["metadata"].get("managedFields") or ())
    own = next((e for e in entries if e["manager"] == manager), None)
    if own is not None and own.get("fieldsV1") == fields:
        obj["metadata"]["managedFields"] = entries
        return
    paths = set(_paths(fields))
    rest = []
    for entry in entries:
        if entry["manager"] == manager:
            continue
        left = [
            p
            for p in _paths(entry.get("fieldsV1") or {})
            if p not in paths or _get(old, p) == _get(obj, p)
        ]
        if left:
            rest.append(entry)
    rest.append(
        {
            "manager": manager,
            "operation": "Apply",
            "apiVersion": applied["apiVersion"],
            "time": at,
            "fieldsType": "FieldsV1",
            "fieldsV1": fields,
            **({"subresource": subresource} if subresource else {}),
        }
    )
    obj["metadata"]["managedFields"] = rest


def _without_head(applied: Object) -> Object:
    rest = {key: value for key, value in applied.items() if key not in _HEAD}
    metadata = {k: v for k, v in (applied.get("metadata") or {}).items() if k not in _OWN}
    rest.pop("metadata", None)
    return rest | ({"metadata": metadata} if metadata else {})


def _fields(value: Any, schema: Schema) -> Object:  # noqa: ANN401 - any JSON
    del schema
    if not isinstance(value, dict):
        return {}
    return {f"f:{key}": _fields(item, {}) for key, item in value.items()}


def _paths(fields: Mapping[str, Any], at: Path = ()) -> Iterator[Path]:
    for key, inner in fields.items():
        path = (*at, key.removeprefix("f:"))
        if inner:
            yield from _paths(inner, path)
        else:
            yield path


def _owned(old: Object, manager: str) -> list[Path]:
    entries = old["metadata"].get("managedFields") or ()
    return [p for e in entries if e["manager"] == manager for p in _paths(e.get("fieldsV1") or {})]


def _get(obj: Any, path: Path) -> Any:  # noqa: ANN401 - any JSON
    for part in path:
        obj = obj.get(part) if isinstance(obj, dict) else None
    return obj


def _remove(obj: Object, path: Path) -> None:
    holder = _get(obj, path[:-1])
    if isinstance(holder, dict):
        holder.pop(path[-1], None)
        if not holder and len(path) > 1:
            _remove(obj, path[:-1])


def _merged(old: Any, new: Any, schema: Schema) -> Any:  # noqa: ANN401 - any JSON
    shape = resolved(schema)
    if isinstance(new, dict):
        known = dict(old) if isinstance(old, dict) else {}
        for key, value in new.items():
            known[key] = _merged(known.get(key), value, field(shape, key))
        return known
    keys = shape.get("x-kubernetes-list-map-keys")
    if isinstance(new, list) and isinstance(old, list) and keys:
        return _merged_list(old, new, keys, shape.get("items") or {})
    return new


def _merged_list(old: list[Any], new: list[Any], keys: list[str], items: Schema) -> list[Any]:
    merged = list(old)
    for entry in new:
        mark = [entry.get(key) for key in keys]
        at = next((i for i, o in enumerate(merged) if [o.get(k) for k in keys] == mark), None)
        if at is None:
            merged.append(entry)
        else:
            merged[at] = _merged(merged[at], entry, items)
    return merged


def _clash(
    resource: ApiResource, clashes: list[Path], others: Mapping[Path, str]
) -> RequestFailure:
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f'conflict with "{others[path]}" using {resource.api_version}',
            "field": "." + ".".join(path),
        }
        for path in clashes
    ]
    clashes_text = "; ".join(f"{cause['message']}: {cause['field']}" for cause in causes)
    count = f"{len(causes)} conflict{'s' if len(causes) > 1 else ''}"
    message = f"Apply failed with {count}: {clashes_text}"
    return RequestFailure(409, "Conflict", message, {"causes": causes})
