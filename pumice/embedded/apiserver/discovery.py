"""The endpoints of discovery: groups, kinds, OpenAPI documents, version, health."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pumice.embedded.apiserver.aggregation import Aggregation
from pumice.embedded.apiserver.catalogue import (
    REFERENCE,
    ApiResource,
    Catalogue,
    builtin_schemas,
    server_version,
)
from pumice.embedded.apiserver.replies import (
    JSON,
    ApiReply,
    ApiRequest,
    Object,
    json_reply,
    no_such_path,
    unsupported,
)

_VERBS: Final = (
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
)
_CUSTOM_VERBS: Final = (
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
)
_AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

_PROTO_OPENAPI: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_EMPTY_V2: Final = b"\x0a\x032.0"
"""A document without kinds (`swagger: "2.0"`): kubectl requests it about a kind that is in no
OpenAPI v3 document, and then reports that it is not served."""


def respond(catalogue: Catalogue, request: ApiRequest, elsewhere: Aggregation) -> ApiReply | None:
    """Return the reply to a request about the server itself, None when it is about objects."""
    path = request.path.rstrip("/")
    parts = path.strip("/").split("/")
    match parts:
        case ["healthz" | "readyz" | "livez", *_]:
            return ApiReply(status=200, headers={"Content-Type": "text/plain"}, body=b"ok")
        case ["version"]:
            return json_reply(server_version())
        case ["openapi", form, *rest]:
            return _document(catalogue, request, form, "/".join(rest), elsewhere)
        case ["api"] | ["apis"]:
            return _groups(catalogue, request, elsewhere, named=parts == ["apis"])
        case ["api", version]:
            return json_reply(_resources(catalogue, "", version))
        case ["apis", group]:
            return json_reply(_one_group(catalogue, group, elsewhere))
        case ["apis", group, version]:
            return json_reply(_resources(catalogue, group, version))
        case ["api" | "apis", *_]:
            return None
        case _:
            raise no_such_path()


def _document(
    catalogue: Catalogue, request: ApiRequest, form: str, place: str, elsewhere: Aggregation
) -> ApiReply:
    """Return an OpenAPI document, or the list of them."""
    if form == "v3":
        return json_reply(_openapi(catalogue, place, elsewhere))
    if form == "v2" and "proto-openapi" in request.headers.get("accept", ""):
        return ApiReply(status=200, headers={"Content-Type": _PROTO_OPENAPI}, body=_EMPTY_V2)
    raise unsupported(f"{request.path}: only OpenAPI v3")


def _all_groups(catalogue: Catalogue, elsewhere: Aggregation) -> list[tuple[str, list[str]]]:
    return [*catalogue.groups(), *elsewhere.groups().items()]


def _one_group(catalogue: Catalogue, group: str, elsewhere: Aggregation) -> Object:
    found = [versions for name, versions in _all_groups(catalogue, elsewhere) if name == group]
    if not found:
        raise no_such_path()
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, found[0])}


def _wants_aggregated(request: ApiRequest) -> bool:
    accepted = request.headers.get("accept", "").replace(" ", "")
    parameters = set(_AGGREGATED.split(";"))
    return any(parameters == set(entry.split(";")) for entry in accepted.split(","))


def _groups(
    catalogue: Catalogue, request: ApiRequest, elsewhere: Aggregation, *, named: bool
) -> ApiReply:
    if _wants_aggregated(request):
        return json_reply(_aggregated(catalogue, elsewhere, named=named), 200, _AGGREGATED)
    if named:
        groups = [_group(name, found) for name, found in _all_groups(catalogue, elsewhere)]
        return json_reply({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
    return json_reply({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})


def _group(name: str, versions: Sequence[str]) -> Object:
    listed = [{"groupVersion": f"{name}/{v}", "version": v} for v in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _served(catalogue: Catalogue, group: str, version: str) -> list[ApiResource]:
    return [r for r in catalogue.named() if (r.group, r.version) == (group, version)]


def _resources(catalogue: Catalogue, group: str, version: str) -> Object:
    served = _served(catalogue, group, version)
    if not served:
        raise no_such_path()
    entries: list[Object] = []
    for resource in served:
        head = {"namespaced": resource.namespaced, "kind": resource.kind}
        entries.append(
            {
                "name": resource.plural,
                "singularName": resource.singular,
                **head,
                "verbs": list(_CUSTOM_VERBS if resource.custom else _VERBS),
                **({"shortNames": list(resource.short)} if resource.short else {}),
                **({"categories": list(resource.categories)} if resource.categories else {}),
            }
        )
        for sub in resource.subresources:
            verbs = _sub_verbs(sub)
            entries.append(
                {
                    "name": f"{resource.plural}/{sub}",
                    "singularName": "",
                    **head,
                    "kind": _SUB_KINDS.get(sub, resource.kind),
                    **(_POLICY if sub == "eviction" else {}),
                    "verbs": verbs,
                }
            )
    place = f"{group}/{version}" if group else version
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": place,
        "resources": entries,
    }


_POLICY: Final = {"group": "policy", "version": "v1"}
"""Group and version of Eviction: `kubectl drain` evicts if discovery names it, else it deletes."""
_SUB_KINDS: Final = {"binding": "Binding", "eviction": "Eviction", "scale": "Scale"}


def _sub_verbs(sub: str) -> list[str]:
    if sub in ("binding", "eviction"):
        return ["create"]
    return ["update"] if sub == "finalize" else ["get", "patch", "update"]


def _aggregated(catalogue: Catalogue, elsewhere: Aggregation, *, named: bool) -> Object:
    groups = catalogue.groups() if named else [("", ["v1"])]
    items = [
        {
            "metadata": {"name": name} if name else {},
            "versions": [
                {
                    "version": version,
                    "freshness": "Current",
                    "resources": [_entry(r) for r in _served(catalogue, name, version)],
                }
                for version in versions
            ],
        }
        for name, versions in groups
    ]
    others = elsewhere.groups() if named else {}
    items += [
        {
            "metadata": {"name": name},
            "versions": [_version_elsewhere(elsewhere, name, version) for version in versions],
        }
        for name, versions in others.items()
    ]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def _version_elsewhere(elsewhere: Aggregation, group: str, version: str) -> Object:
    known = elsewhere.discovered(group, version)
    listed = (known or {}).get("resources") or []
    whole = [entry for entry in listed if "/" not in entry["name"]]
    return {
        "version": version,
        "freshness": "Current" if known is not None else "Stale",
        "resources": [_entry_elsewhere(entry, listed, group, version) for entry in whole],
    }


def _entry_elsewhere(entry: Object, listed: Sequence[Object], group: str, version: str) -> Object:
    def kind(of: Object) -> Object:
        return {"group": group, "version": version, "kind": of["kind"]}

    prefix = f"{entry['name']}/"
    return {
        "resource": entry["name"],
        "responseKind": kind(entry),
        "scope": "Namespaced" if entry["namespaced"] else "Cluster",
        "singularResource": entry.get("singularName", ""),
        "verbs": entry["verbs"],
        **({"shortNames": entry["shortNames"]} if entry.get("shortNames") else {}),
        "subresources": [
            {
                "subresource": sub["name"].removeprefix(prefix),
                "responseKind": kind(sub),
                "verbs": sub["verbs"],
            }
            for sub in listed
            if sub["name"].startswith(prefix)
        ],
    }


def _entry(resource: ApiResource) -> Object:
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    return {
        "resource": resource.plural,
        "responseKind": kind,
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(_VERBS),
        **({"shortNames": list(resource.short)} if resource.short else {}),
        **({"categories": list(resource.categories)} if resource.categories else {}),
        "subresources": [
            {
                "subresource": sub,
                "responseKind": {
                    **kind,
                    "kind": _SUB_KINDS.get(sub, resource.kind),
                    **(_POLICY if sub == "eviction" else {}),
                },
                "verbs": _sub_verbs(sub),
            }
            for sub in resource.subresources
        ],
    }


def _openapi(catalogue: Catalogue, place: str, elsewhere: Aggregation) -> Object:
    places: dict[str, tuple[str, str]] = {}
    for resource in catalogue.named():
        root = f"apis/{resource.api_version}" if resource.group else f"api/{resource.version}"
        places[root] = (resource.group, resource.version)
    if not place:
        everywhere = (*places, *elsewhere.openapi())
        return {"paths": {at: {"serverRelativeURL": f"/openapi/v3/{at}"} for at in everywhere}}
    if place not in places:
        raise no_such_path()
    served = _served(catalogue, *places[place])
    schemas: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for resource in served:
        name, schema = _named_schema(resource)
        schemas[name] = schema
        _keep(schema, schemas)
        paths |= _paths(place, resource, name)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": server_version()["gitVersion"]},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _named_schema(resource: ApiResource) -> tuple[str, Mapping[str, Any]]:
    if resource.served and not resource.custom:
        name = str(resource.schema["$ref"]).removeprefix(REFERENCE)
        return name, builtin_schemas()[name]
    name = ".".join([*reversed(resource.group.split(".")), resource.version, resource.kind])
    head = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    meta = {"$ref": REFERENCE + "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
    properties = {
        **(resource.schema.get("properties") or {}),
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": meta,
    }
    kinds = [head]
    return name, {
        **resource.schema,
        "properties": properties,
        "x-kubernetes-group-version-kind": kinds,
    }


def _keep(value: Any, schemas: dict[str, Any]) -> None:  # noqa: ANN401 - any JSON
    if isinstance(value, list):
        for item in value:
            _keep(item, schemas)
    elif isinstance(value, dict):
        reference = value.get("$ref")
        if isinstance(reference, str) and reference.startswith(REFERENCE):
            name = reference.removeprefix(REFERENCE)
            if name not in schemas:
                schemas[name] = builtin_schemas()[name]
                _keep(schemas[name], schemas)
        for item in value.values():
            _keep(item, schemas)


def _paths(place: str, resource: ApiResource, schema: str) -> Object:
    """Return the operations that kubectl reads: kinds that can be validated, and their schemas."""
    middle = "namespaces/{namespace}/" if resource.namespaced else ""
    collection = f"/{place}/{middle}{resource.plural}"
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    content = {JSON: {"schema": {"$ref": REFERENCE + schema}}}
    responses = {"200": {"description": "OK", "content": content}}

    def operation(action: str) -> Object:
        return {
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": kind,
            "responses": responses,
            "parameters": [
                {"name": name, "in": "query", "schema": {"type": "string"}}
                for name in ("dryRun", "fieldManager", "fieldValidation")
            ],
        }

    return {
        collection: {"get": operation("list"), "post": operation("post")},
        f"{collection}/{{name}}": {
            "get": operation("get"),
            "put": operation("put"),
            "patch": operation("patch"),
            "delete": operation("delete"),
        },
    }
