"""The documents about the API itself: discovery, made from the table of resources, and OpenAPI."""

import functools
import hashlib
from collections.abc import Callable
from typing import Final

import msgspec

from services.visibility.api import openapi
from services.visibility.api.requests import wants_aggregated
from services.visibility.api.resources import RESOURCES, ServedResource
from shared.api.base import Json
from shared.api.visibility import API_VERSION, GROUP, VERSION

_JSON: Final = "application/json"
AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_VERSION: Final = {"groupVersion": API_VERSION, "version": VERSION}


def groups() -> Json:
    """Return the list of groups."""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group()]}


def group() -> Json:
    """Return the group."""
    return {"kind": "APIGroup", "apiVersion": "v1", **_group()}


def _group() -> Json:
    return {"name": GROUP, "versions": [_VERSION], "preferredVersion": _VERSION}


def resources() -> Json:
    """Return the resources of the group's one version."""
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": API_VERSION,
        "resources": [_entry(resource) for resource in RESOURCES],
    }


def _entry(resource: ServedResource) -> Json:
    return {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
        **({"shortNames": list(resource.short_names)} if resource.short_names else {}),
    }


def aggregated() -> Json:
    """Return group, version and resources as one document."""
    names = dict.fromkeys(resource.name for resource in RESOURCES)
    version = {
        "version": VERSION,
        "freshness": "Current",
        "resources": [_discovered(name) for name in names],
    }
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [{"metadata": {"name": GROUP}, "versions": [version]}],
    }


def _discovered(name: str) -> Json:
    of_name = [resource for resource in RESOURCES if resource.name == name]
    whole = next((resource for resource in of_name if not resource.subresource), None)
    subresources = [
        {
            "subresource": resource.subresource,
            "responseKind": _kind(resource.kind),
            "verbs": list(resource.verbs),
        }
        for resource in of_name
        if resource.subresource
    ]
    return {
        "resource": name,
        "responseKind": _kind(whole.kind) if whole else _kind(""),
        "scope": "Namespaced" if of_name[0].namespaced else "Cluster",
        "singularResource": whole.singular if whole else "",
        "verbs": list(whole.verbs) if whole else [],
        **({"shortNames": list(whole.short_names)} if whole and whole.short_names else {}),
        **({"subresources": subresources} if subresources else {}),
    }


def _kind(kind: str) -> Json:
    return {"group": GROUP, "version": VERSION, "kind": kind}


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A document, made once, with the mark by which clients know that it is still the same."""

    body: bytes
    etag: str
    content_type: str = _JSON


def find(path: str, accept: str) -> Document | None:
    """Return the document at a path, None when there is none."""
    match path.rstrip("/").split("/")[1:]:
        case ["apis"] if wants_aggregated(accept):
            return _document(aggregated, AGGREGATED)
        case ["apis"]:
            return _document(groups)
        case ["apis", name] if name == GROUP:
            return _document(group)
        case ["apis", *place] if "/".join(place) == API_VERSION:
            return _document(resources)
        case ["openapi", "v2"]:
            return _document(openapi.v2)
        case ["openapi", "v3"]:
            return _document(_index)
        case ["openapi", "v3", *place] if "/".join(place) == openapi.PLACE:
            return _document(openapi.v3)
    return None


def _index() -> Json:
    return openapi.index(_document(openapi.v3).etag.strip('"'))


@functools.cache
def _document(make: Callable[[], Json], content_type: str = _JSON) -> Document:
    body = msgspec.json.encode(make())
    digest = hashlib.sha256(body).hexdigest().upper()
    return Document(body=body, etag=f'"{digest}"', content_type=content_type)
