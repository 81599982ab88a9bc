"""OpenAPI v2 and v3 of the group, from the types; and what of an object they do not know.

kube-apiserver merges the v2 document into its own and passes the v3 document on. kubectl reads
from them how to explain a kind and which options of a request there are.
"""

import functools
import inspect as source
from collections.abc import Iterator
from typing import Any, Final

from msgspec import inspect

from services.visibility.api.resources import RESOURCES, ServedResource
from shared.api.base import Json
from shared.api.batch import Job
from shared.api.core import Node
from shared.api.crdgen import Schema, root_schema, schema_of
from shared.api.crds import CRDS
from shared.api.meta import ObjectMeta
from shared.api.scheduling import Queue
from shared.api.visibility import API_VERSION, GROUP, VERSION

PLACE: Final = f"apis/{API_VERSION}"
_JSON: Final = "application/json"
_PREFIX: Final = ".".join((*reversed(GROUP.split(".")), VERSION))
_META: Final = f"{_PREFIX}.ObjectMeta"
_LIST_META: Final = f"{_PREFIX}.ListMeta"
"""Not under Kubernetes' names: kube-apiserver would add ours, which have fewer fields, to its own
document as `…ObjectMeta_v2`."""
_ANY_OBJECT: Final = "x-kubernetes-preserve-unknown-fields"
_ACTIONS: Final = {
    "get": ("get", "get"),
    "list": ("get", "list"),
    "watch": ("get", "list"),
    "create": ("post", "post"),
}
"""Verb → method, and the word of `x-kubernetes-action`."""
_OPTIONS: Final = {
    "get": (),
    "list": ("fieldSelector", "watch", "resourceVersion"),
    "post": ("dryRun", "fieldManager", "fieldValidation"),
}
_ONLY_IN_V3: Final = frozenset({"anyOf", "oneOf", "not", "nullable"})
"""Keywords of a schema that OpenAPI v2 does not have.

kube-apiserver merges our v2 document into its own, and cannot encode the merged one as protobuf
when it holds such a keyword: then `/openapi/v2` of the whole cluster is a 503.
"""
_HEAD: Final = {
    "apiVersion": {"type": "string", "description": "Version of the schema of this object."},
    "kind": {"type": "string", "description": "Kind of this object."},
}


def schema(resource: ServedResource) -> Schema:
    """Return the schema of a whole object, without references."""
    return _schemas()[resource.kind]


@functools.cache
def _schemas() -> dict[str, Schema]:
    """Return the schema of each kind by its name; made once, when it is first requested."""
    meta = {"type": "object", "description": "Metadata of the object.", _ANY_OBJECT: True}
    crds: dict[type, Schema] = {
        view: root_schema(crd) for crd in CRDS for view in (Job, Queue) if crd.kind.type is view
    }
    for made in crds.values():
        made.pop("x-kubernetes-validations", None)
        made["properties"]["metadata"] = meta
        made["properties"].setdefault("status", {"type": "object", _ANY_OBJECT: True})
    node = {"type": "object", "description": "A Node as Kubernetes has it.", _ANY_OBJECT: True}
    known: dict[type, Schema] = {ObjectMeta: meta, Node: node}
    known |= crds
    return {resource.kind: _whole(resource, known) for resource in RESOURCES}


def _whole(resource: ServedResource, known: dict[type, Schema]) -> Schema:
    made = schema_of(inspect.type_info(resource.type), known)
    description = " ".join((source.getdoc(resource.type) or "").split())
    kind = {"group": GROUP, "version": VERSION, "kind": resource.kind}
    return {
        "description": description,
        **made,
        "properties": {**_HEAD, **made["properties"]},
        "x-kubernetes-group-version-kind": [kind],
    }


def unknown_fields(value: Any, known: Schema, path: str = "") -> Iterator[str]:  # noqa: ANN401
    """Yield the paths of members that the schema does not have."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from unknown_fields(item, known.get("items", {}), f"{path}[{index}]")
    if not isinstance(value, dict) or known.get(_ANY_OBJECT):
        return
    properties, others = known.get("properties"), known.get("additionalProperties")
    for name, item in value.items():
        place = f"{path}.{name}" if path else name
        if properties is not None and name in properties:
            yield from unknown_fields(item, properties[name], place)
        elif others is not None:
            yield from unknown_fields(item, others, place)
        elif properties is not None:
            yield place


def index(digest: str) -> Json:
    """Return the list of v3 documents; clients keep one for as long as its address is the same."""
    return {"paths": {PLACE: {"serverRelativeURL": f"/openapi/v3/{PLACE}?hash={digest}"}}}


def v3() -> Json:
    """Return the OpenAPI v3 document of the group's version."""
    root = "#/components/schemas/"
    return {
        "openapi": "3.0.0",
        "info": {"title": "Pumice visibility", "version": VERSION},
        "paths": {path: _v3_item(item) for path, item in _paths(root).items()},
        "components": {"schemas": _definitions(root)},
    }


def v2() -> Json:
    """Return the OpenAPI v2 document; what v2 cannot say of a field is left out, as of CRDs."""
    root = "#/definitions/"
    definitions = {name: _in_v2(schema_) for name, schema_ in _definitions(root).items()}
    return {
        "swagger": "2.0",
        "info": {"title": "Pumice visibility", "version": VERSION},
        "paths": _paths(root),
        "definitions": definitions,
    }


def _in_v2(schema_: Schema) -> Schema:
    made: Schema = {}
    for word, value in schema_.items():
        if word == "properties":
            made[word] = {name: _in_v2(field) for name, field in value.items()}
        elif word in ("items", "additionalProperties") and isinstance(value, dict):
            made[word] = _in_v2(value)
        elif word == "allOf":
            made[word] = [_in_v2(item) for item in value]
        elif word not in _ONLY_IN_V3:
            made[word] = value
    return made


def _definitions(root: str) -> Json:
    meta = {"$ref": root + _META}
    made: Json = {}
    for kind, whole in _schemas().items():
        properties = {**whole["properties"], "metadata": meta}
        made[f"{_PREFIX}.{kind}"] = {**whole, "properties": properties}
        made[f"{_PREFIX}.{kind}List"] = _list_of(kind, root)
    made[_META] = schema_of(inspect.type_info(ObjectMeta))
    made[_LIST_META] = {
        "type": "object",
        "properties": {"resourceVersion": {"type": "string"}},
    }
    return made


def _list_of(kind: str, root: str) -> Schema:
    items = {"type": "array", "items": {"$ref": f"{root}{_PREFIX}.{kind}"}}
    return {
        "type": "object",
        "description": f"A list of {kind}.",
        "required": ["items"],
        "properties": {**_HEAD, "metadata": {"$ref": root + _LIST_META}, "items": items},
        "x-kubernetes-group-version-kind": [
            {"group": GROUP, "version": VERSION, "kind": f"{kind}List"}
        ],
    }


def _paths(root: str) -> Json:
    """Return the operations by path, in the form of v2."""
    paths: Json = {}
    for resource in RESOURCES:
        middle = "namespaces/{namespace}/" if resource.namespaced else ""
        collection = f"/{PLACE}/{middle}{resource.name}"
        for verb in resource.verbs:
            method, action = _ACTIONS[verb]
            path = f"{collection}/{{name}}" if verb == "get" else collection
            path += f"/{resource.subresource}" if resource.subresource else ""
            operation = _operation(resource, action, root)
            paths.setdefault(path, {"parameters": _in_path(path)})[method] = operation
    return paths


def _in_path(path: str) -> list[Json]:
    return [
        {"name": name, "in": "path", "required": True, "type": "string"}
        for name in ("namespace", "name")
        if f"{{{name}}}" in path
    ]


def _operation(resource: ServedResource, action: str, root: str) -> Json:
    listed = "List" if action == "list" or resource.is_list else ""
    response = {"$ref": f"{root}{_PREFIX}.{resource.kind}{listed}"}
    code = "201" if action == "post" else "200"
    where = "Namespaced" if resource.namespaced else ""
    title = resource.plural.title().replace("/", "")
    parameters: list[Json] = [
        {"name": name, "in": "query", "type": "string"} for name in _OPTIONS[action]
    ]
    if action == "post":
        body = {"$ref": f"{root}{_PREFIX}.{resource.kind}"}
        parameters.append({"name": "body", "in": "body", "required": True, "schema": body})
    return {
        "operationId": f"{action}{where}{title}",
        "consumes": [_JSON],
        "produces": [_JSON],
        "parameters": parameters,
        "responses": {code: {"description": "OK", "schema": response}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {
            "group": GROUP,
            "version": VERSION,
            "kind": resource.kind,
        },
    }


def _v3_item(item: Json) -> Json:
    """Return the operations of one path in the form of v3."""
    made: Json = {"parameters": [_v3_parameter(parameter) for parameter in item["parameters"]]}
    for method, operation in item.items():
        if method != "parameters":
            made[method] = _v3_operation(operation)
    return made


def _v3_operation(operation: Json) -> Json:
    parameters = [p for p in operation["parameters"] if p["in"] != "body"]
    bodies = [p["schema"] for p in operation["parameters"] if p["in"] == "body"]
    responses = {
        code: {"description": found["description"], "content": _content(found["schema"])}
        for code, found in operation["responses"].items()
    }
    common = {key: value for key, value in operation.items() if key not in ("consumes", "produces")}
    return {
        **common,
        "parameters": [_v3_parameter(parameter) for parameter in parameters],
        "responses": responses,
        **({"requestBody": {"content": _content(bodies[0])}} if bodies else {}),
    }


def _content(schema_: Schema) -> Json:
    return {_JSON: {"schema": schema_}}


def _v3_parameter(parameter: Json) -> Json:
    return {
        "name": parameter["name"],
        "in": parameter["in"],
        **({"required": True} if parameter.get("required") else {}),
        "schema": {"type": parameter["type"]},
    }
