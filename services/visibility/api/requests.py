"""Reads a request for objects: resource, name, verb, selectors, and the format of the response."""

import enum
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from services.visibility.api import resources
from services.visibility.api.resources import ServedResource
from services.visibility.api.statuses import BAD_REQUEST, NOT_ACCEPTABLE, ApiFailure, no_such_path
from shared.api.meta import ObjectMeta
from shared.api.visibility import API_VERSION, GROUP
from shared.model.numbers import parse_bool

ROOT: Final = f"/apis/{API_VERSION}/"
_WRITES: Final = {"POST": "create", "PUT": "update", "PATCH": "patch"}
_OF_OBJECT: Final = 2
"""Parts of a path behind the namespace that name an object; a third one is the subresource."""


class ServedTarget(msgspec.Struct, frozen=True, kw_only=True):
    """One collection, object or subresource, and the verb on it."""

    resource: ServedResource
    verb: str
    namespace: str = ""
    name: str = ""
    query: Mapping[str, str] = {}

    @property
    def selects(self) -> Callable[[ObjectMeta], bool]:
        """Return the object filter of field selector and name. Raises ApiFailure (400)."""
        requested = _fields(self.query.get("fieldSelector", ""))
        if self.name:
            requested.append(("metadata.name", True, self.name))

        def is_selected(metadata: ObjectMeta) -> bool:
            found = {"metadata.name": metadata.name, "metadata.namespace": metadata.namespace}
            return all((found[field] == value) is equal for field, equal, value in requested)

        return is_selected


def read(method: str, path: str, query: Mapping[str, str]) -> ServedTarget:
    """Return the target of a path below the group's version. Raises ApiFailure (400, 404)."""
    parts = path.removeprefix(ROOT).rstrip("/").split("/")
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > _OF_OBJECT:
        namespace, parts = parts[1], parts[_OF_OBJECT:]
        if not namespace:
            raise no_such_path()
    name, *rest = (*parts[1:], "")[:_OF_OBJECT]
    resource = resources.find(parts[0], rest[0] if rest else "")
    is_unknown = resource is None or len(parts) > _OF_OBJECT + 1 or "" in parts
    if resource is None or is_unknown or (namespace and not resource.namespaced):
        raise no_such_path()
    if query.get("labelSelector"):
        raise ApiFailure(BAD_REQUEST, f"{resource.plural}.{GROUP} cannot be selected by labels")
    return ServedTarget(
        resource=resource,
        verb=_verb(method, name, query, is_sub=bool(resource.subresource)),
        namespace=namespace,
        name=name,
        query=query,
    )


def _verb(method: str, name: str, query: Mapping[str, str], *, is_sub: bool) -> str:
    if method in ("GET", "HEAD"):
        if parse_bool(query.get("watch")) and not is_sub:
            return "watch"
        return "get" if name else "list"
    if method == "DELETE":
        return "delete" if name else "deletecollection"
    return _WRITES.get(method, method.lower())


def _fields(selector: str) -> list[tuple[str, bool, str]]:
    """Return field, whether it must be equal, and value of each condition."""
    requested = []
    for text in filter(None, selector.split(",")):
        unequal = "!=" in text
        field, _, value = text.partition("!=") if unequal else text.partition("=")
        if field not in ("metadata.name", "metadata.namespace"):
            raise ApiFailure(BAD_REQUEST, f"field label not supported: {field}")
        requested.append((field, not unequal, value.removeprefix("=")))
    return requested


_ANY: Final = frozenset({"*/*", "application/*", "application/json"})


class ReplyForm(enum.Enum):
    """Forms in which objects are given."""

    OBJECT = "object"
    TABLE = "table"


def form_of(accept: str) -> ReplyForm:
    """Return the first form that we have. Raises ApiFailure (406) when it is none."""
    for kind, parameters in _ranges(accept):
        if kind not in _ANY:
            continue
        requested = parameters.get("as", "")
        if requested == "Table" and parameters.get("g") == "meta.k8s.io":
            return ReplyForm.TABLE
        if not requested:
            return ReplyForm.OBJECT
    raise ApiFailure(
        NOT_ACCEPTABLE,
        "only the following media types are accepted: application/json, "
        "application/json;as=Table;v=v1;g=meta.k8s.io",
    )


def wants_aggregated(accept: str) -> bool:
    """Return whether discovery is requested in its aggregated form before any other."""
    for kind, parameters in _ranges(accept):
        if kind in _ANY and not parameters.get("as"):
            return False
        requested = (parameters.get("as"), parameters.get("g"), parameters.get("v"))
        if requested == ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2"):
            return True
    return False


def _ranges(accept: str) -> list[tuple[str, dict[str, str]]]:
    ranges = []
    for text in (accept or "*/*").split(","):
        kind, *parameters = (part.strip() for part in text.split(";"))
        pairs = (parameter.partition("=") for parameter in parameters)
        ranges.append((kind, {key.strip(): value.strip() for key, _, value in pairs}))
    return ranges
