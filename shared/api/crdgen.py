"""Generates CustomResourceDefinitions from the typed models in `crds.CRDS`.

`tools/write_manifests.py` (`make crds`) writes the manifests to `k8s/crds/`, the local stack
applies them as they come from here. The types are the only place where a field is described; what
JSON Schema says beyond a Python type (formats, defaults, descriptions) stands in its `Meta`.

Kubernetes wants a *structural* schema: everything inline, no `$ref`, no nullable unions, integers
or strings marked as such. msgspec's own `json.schema` gives references and unions, hence this
walk.
"""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import inspect

from shared.api.crds import CRDS, Crd

Schema = dict[str, Any]
_NONE: Final[Mapping[type, Schema]] = {}

_BOUNDS = {
    "ge": "minimum",
    "le": "maximum",
    "min_length": "minLength",
    "max_length": "maxLength",
    "pattern": "pattern",
}


def manifests() -> list[Schema]:
    """Return all CRDs as manifests, in the order of the table."""
    return [manifest(crd) for crd in CRDS]


def manifest(crd: Crd) -> Schema:
    """Return one CRD."""
    kind = crd.kind
    names: Schema = {
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
        "plural": kind.plural,
        "singular": kind.kind.lower(),
    }
    if crd.short_names:
        names["shortNames"] = list(crd.short_names)
    version: Schema = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": root_schema(crd)},
    }
    if columns := (*crd.columns, *crd.more_columns):
        version["additionalPrinterColumns"] = [
            {"name": column.name, "type": column.type, "jsonPath": column.path}
            | ({"priority": column.priority} if column.priority else {})
            for column in columns
        ]
    if crd.subresources is not None:
        version["subresources"] = {name: {} for name in crd.subresources}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{kind.plural}.{kind.group}",
            # An uninstall by Helm must not take every job of the cluster with it.
            "annotations": {"helm.sh/resource-policy": "keep"},
        },
        "spec": {
            "group": kind.group,
            "names": names,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [version],
        },
    }


def root_schema(crd: Crd) -> Schema:
    """Return the schema of a whole object; its metadata is the API server's business."""
    assert crd.kind.type is not None, f"{crd.kind.kind} has no type to make a schema of"
    view = inspect.type_info(crd.kind.type)
    assert isinstance(view, inspect.StructType), f"{crd.kind.kind} is no struct"
    schema = _struct(view)
    schema["properties"].pop("metadata")
    schema["properties"] = {
        "apiVersion": {"type": "string", "description": "Version of the schema of this object."},
        "kind": {"type": "string", "description": "Kind of this object."},
        **schema["properties"],
        "metadata": {"type": "object"},
    }
    if crd.rules:
        schema["x-kubernetes-validations"] = [
            {"message": message, "rule": expression} for message, expression in crd.rules
        ]
    return {"description": crd.description, **schema}


def schema_of(node: inspect.Type, known: Mapping[type, Schema] = _NONE) -> Schema:
    """Return the structural schema of one type; `TypeError` names a type that has none.

    Structs that are `known` have their schemas from there.
    """
    match node:
        case inspect.Metadata():
            return schema_of(node.type, known) | (node.extra_json_schema or {})
        case inspect.UnionType():
            return _union(node, known)
        case inspect.StructType():
            return known[node.cls] if node.cls in known else _struct(node, known)
        case inspect.DictType():
            return {"type": "object", "additionalProperties": schema_of(node.value_type, known)}
        case inspect.VarTupleType():
            schema: Schema = {"type": "array", "items": schema_of(node.item_type, known)}
            return schema if node.min_length is None else schema | {"minItems": node.min_length}
        case inspect.EnumType():
            return {"type": "string", "enum": [member.value for member in node.cls]}
        case inspect.RawType():
            return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        case _:
            return _scalar(node)


def _scalar(node: inspect.Type) -> Schema:
    match node:
        case inspect.IntType():
            name = "integer"
        case inspect.FloatType():
            name = "number"
        case inspect.StrType():
            name = "string"
        case inspect.BoolType():
            name = "boolean"
        case _:
            raise TypeError(f"{type(node).__name__} has no structural schema")
    bounds = {
        word: value
        for field, word in _BOUNDS.items()
        if (value := getattr(node, field, None)) is not None
    }
    return {"type": name, **bounds}


def _union(node: inspect.UnionType, known: Mapping[type, Schema]) -> Schema:
    """Return the schema of `X | None` (the field may be absent) and of `int | str`."""
    kinds = [kind for kind in node.types if not isinstance(kind, inspect.NoneType)]
    if len(kinds) == 1:
        return schema_of(kinds[0], known)
    schemas = [schema_of(kind, known) for kind in kinds]
    if sorted(schema.pop("type") for schema in schemas) != ["integer", "string"]:
        raise TypeError(f"no structural schema for a union of {kinds}")
    merged: Schema = {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    for schema in schemas:
        merged |= schema
    return merged | {"x-kubernetes-int-or-string": True}


def _struct(node: inspect.StructType, known: Mapping[type, Schema] = _NONE) -> Schema:
    fields = sorted(node.fields, key=lambda field: field.encode_name)
    schema: Schema = {
        "type": "object",
        "properties": {field.encode_name: schema_of(field.type, known) for field in fields},
    }
    if required := [field.encode_name for field in fields if field.required]:
        schema["required"] = required
    return schema
