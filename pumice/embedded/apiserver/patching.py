"""Patches: JSON merge (RFC 7386), JSON (RFC 6902) and strategic merge (lists by key)."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pumice.embedded.apiserver.catalogue import REFERENCE, builtin_schemas
from pumice.embedded.apiserver.replies import Object, RequestFailure, bad_request

Schema = Mapping[str, Any]
_DIRECTIVE: Final = "$patch"


def merge(target: Any, patch: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return `target` with a JSON merge patch applied; null removes a member."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def json_patch(target: Object, operations: Any) -> Object:  # noqa: ANN401 - what the client sent
    """Return `target` with a JSON patch applied. Raises RequestFailure (400, 422)."""
    if not isinstance(operations, list):
        raise bad_request("the body of a JSON patch is a list of operations")
    document: Any = target
    for operation in operations:
        try:
            document = _operation(document, operation)
        except (KeyError, IndexError, ValueError, TypeError, AssertionError) as exc:
            message = f"the server rejected our request due to an error in our request: {exc}"
            raise RequestFailure(422, "Invalid", message, {}) from exc
    if not isinstance(document, dict):
        raise bad_request("the patch leaves no object")
    return document


def _operation(document: Any, operation: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any JSON
    parts = _pointer(operation["path"])
    match operation["op"]:
        case "test":
            assert _read(document, parts) == operation["value"], f"test failed: {operation['path']}"
            return document
        case "remove":
            return _write(document, parts, None, "remove")
        case "add" | "replace" as op:
            return _write(document, parts, operation["value"], op)
        case "copy":
            return _write(document, parts, _read(document, _pointer(operation["from"])), "add")
        case "move":
            source = _pointer(operation["from"])
            value = _read(document, source)
            return _write(_write(document, source, None, "remove"), parts, value, "add")
        case other:
            raise ValueError(f"unexpected operation {other}")


def _pointer(text: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _read(document: Any, parts: Sequence[str]) -> Any:  # noqa: ANN401 - any JSON
    for part in parts:
        document = document[int(part)] if isinstance(document, list) else document[part]
    return document


def _write(document: Any, parts: Sequence[str], value: Any, op: str) -> Any:  # noqa: ANN401
    if not parts:
        return value
    head, rest = parts[0], parts[1:]
    if isinstance(document, list):
        changed = list(document)
        if rest:
            changed[int(head)] = _write(document[int(head)], rest, value, op)
        elif op == "add":
            changed.insert(len(changed) if head == "-" else int(head), value)
        elif op == "remove":
            del changed[int(head)]
        else:
            changed[int(head)] = value
        return changed
    if not isinstance(document, dict):
        raise TypeError(f"no member {head} in a value that is no object")
    changed_map = dict(document)
    if rest:
        changed_map[head] = _write(document[head], rest, value, op)
    elif op == "remove":
        del changed_map[head]
    elif op == "replace" and head not in document:
        raise KeyError(head)
    else:
        changed_map[head] = value
    return changed_map


def strategic(target: Any, patch: Any, schema: Schema) -> Any:  # noqa: ANN401 - any JSON
    """Return `target` with a strategic merge patch applied; lists with a merge key merge by it."""
    if not isinstance(patch, dict):
        return patch
    if patch.get(_DIRECTIVE) == "replace":
        return {key: value for key, value in patch.items() if key != _DIRECTIVE}
    if patch.get(_DIRECTIVE) == "delete":
        return None
    merged = dict(target) if isinstance(target, dict) else {}
    shape = resolved(schema)
    for key, value in patch.items():
        if key == "$retainKeys":
            merged = {k: v for k, v in merged.items() if k in value}
        elif key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            merged[name] = [item for item in merged.get(name, ()) if item not in value]
        elif key.startswith("$") or value is None:
            merged.pop(key, None)
        else:
            changed = _member(merged.get(key), value, field(shape, key), patch, key)
            if changed is None:
                merged.pop(key, None)
            else:
                merged[key] = changed
    return merged


def _member(old: Any, value: Any, schema: Schema, patch: Object, key: str) -> Any:  # noqa: ANN401
    if isinstance(value, dict):
        return strategic(old, value, schema)
    if not isinstance(value, list) or "merge" not in schema.get("x-kubernetes-patch-strategy", ""):
        return value
    by = schema.get("x-kubernetes-patch-merge-key")
    merged = merge_list(old or [], value, by, schema) if by else _by_value(old or [], value)
    order = patch.get(f"$setElementOrder/{key}")
    if order is None:
        return merged
    order_keys = [entry.get(by) if by and isinstance(entry, dict) else entry for entry in order]

    def place(item: Any) -> int:  # noqa: ANN401 - an element of the list
        mark = item.get(by) if by else item
        return order_keys.index(mark) if mark in order_keys else len(order_keys)

    return sorted(merged, key=place)


def merge_list(old: Sequence[Any], patch: Sequence[Any], by: str, schema: Schema) -> list[Any]:
    """Return a list of objects with those of a patch merged in by the member `by`.

    What is new comes before what only the server has, as Go orders it.
    """
    if any(entry.get(_DIRECTIVE) == "replace" for entry in patch):
        return [entry for entry in patch if _DIRECTIVE not in entry]
    merged = list(old)
    for entry in patch:
        at = next((i for i, item in enumerate(merged) if item.get(by) == entry.get(by)), None)
        if entry.get(_DIRECTIVE) == "delete":
            if at is not None:
                del merged[at]
        elif at is None:
            merged.append(strategic({}, entry, schema.get("items", {})))
        else:
            merged[at] = strategic(merged[at], entry, schema.get("items", {}))
    patched = {entry.get(by) for entry in patch}
    known = {entry.get(by) for entry in old}
    if patched <= known:
        return merged
    return _ordered(merged, by, patched, [entry.get(by) for entry in old])


def _ordered(merged: Sequence[Any], by: str, patched: set[Any], before: Sequence[Any]) -> list[Any]:
    """Merge patched and unpatched elements in their old order, new ones first."""
    left = [entry for entry in merged if entry.get(by) in patched]
    right = [entry for entry in merged if entry.get(by) not in patched]
    ordered = []
    while left and right:
        mark = left[0].get(by)
        first = mark not in before or before.index(mark) < before.index(right[0].get(by))
        ordered.append((left if first else right).pop(0))
    return [*ordered, *left, *right]


def _by_value(old: Sequence[Any], patch: Sequence[Any]) -> list[Any]:
    return [*old, *(item for item in patch if item not in old)]


def resolved(schema: Schema) -> Schema:
    """Return the schema that a reference points to."""
    reference = schema.get("$ref")
    if isinstance(reference, str):
        found: Schema = builtin_schemas()[reference.removeprefix(REFERENCE)]
        return found
    return schema


def field(shape: Schema, key: str) -> Schema:
    """Return the schema of a member of an object."""
    own = (shape.get("properties") or {}).get(key)
    if own is None:
        own = shape.get("additionalProperties")
    return own if isinstance(own, dict) else {}
