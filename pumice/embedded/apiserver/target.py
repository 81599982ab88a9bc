"""Reads path and query of a request: its kind, object, subresource and options."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import yaml

from pumice.embedded.apiserver import protobuf
from pumice.embedded.apiserver.catalogue import UNSERVED, ApiResource, Catalogue, unserved
from pumice.embedded.apiserver.replies import (
    ApiRequest,
    FieldFault,
    Object,
    RequestFailure,
    bad_request,
    invalid,
    no_such_path,
    unsupported,
)
from pumice.embedded.fakekubelet import no_program
from shared.api.nesting import is_too_deep
from shared.model.numbers import parse_bool

_RELEASED: Final = ("v1", "v1beta1", "v2")
LEVELS_MAX: Final = 250
"""Most levels of an object: functions that walk through one call themselves per level."""
_API: Final = 2
_APIS: Final = 3
_OF_KUBELET: Final = ("attach", "exec", "log", "portforward")
_YAML: Final = ("application/yaml", "application/apply-patch+yaml", "application/vnd.yaml")


class RequestTarget(msgspec.Struct, frozen=True, kw_only=True):
    """One collection, object or subresource, and how the request wants it treated."""

    resource: ApiResource
    request: ApiRequest
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    def flag(self, name: str) -> bool:
        """Return a boolean query parameter, as Go reads it."""
        return bool(parse_bool(self.request.query.get(name)))

    def number(self, name: str) -> int | None:
        """Return a whole number among the query parameters. Raises RequestFailure (400)."""
        text = self.request.query.get(name, "")
        if not text:
            return None
        try:
            return int(text)
        except ValueError as exc:
            raise bad_request(f"{name}: {text!r} is no number") from exc

    @property
    def dry_run(self) -> bool:
        """Whether nothing is to be written."""
        return self.request.query.get("dryRun") == "All"

    @property
    def prefix(self) -> str:
        """Return the prefix of the keys of the selected objects."""
        return f"{self.namespace}/" if self.namespace else ""

    def body(self) -> Any:  # noqa: ANN401 - whatever the client sent
        """Return the decoded body. Raises RequestFailure (400, 415)."""
        return read_body(self.request)


def read_body(request: ApiRequest) -> Any:  # noqa: ANN401 - whatever the client sent
    """Return the decoded body of a request. Raises RequestFailure (400, 415)."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip()
    is_json = content_type != protobuf.CONTENT_TYPE
    if is_json and is_too_deep(request.body, LEVELS_MAX):
        raise bad_request(f"the object provided has more than {LEVELS_MAX} levels")
    try:
        if not is_json:
            return protobuf.decode(request.body)
        if content_type in _YAML:
            return _from_yaml(request.body)
        return msgspec.json.decode(request.body)
    except (msgspec.DecodeError, yaml.YAMLError, ValueError) as exc:
        raise bad_request(f"the object provided is unrecognized: {exc}") from exc


def _from_yaml(body: bytes) -> Any:  # noqa: ANN401 - whatever the client sent
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        return msgspec.json.decode(msgspec.json.encode(yaml.safe_load(body)))


def read(catalogue: Catalogue, request: ApiRequest) -> RequestTarget:
    """Return the target of a path under /api or /apis. Raises RequestFailure (404, 501)."""
    parts = request.path.strip("/").split("/")
    if parts[0] == "api":
        group, head = "", _API
    else:
        group, head = (parts[1] if len(parts) > 1 else ""), _APIS
    if len(parts) <= head:
        raise no_such_path()
    version, rest = parts[head - 1], parts[head:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > _API and rest[_API] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    resource = catalogue.find(group, version, rest[0])
    if resource is None:
        raise _unknown(group, version, rest[0])
    if resource.namespaced is False and namespace:
        raise no_such_path()
    name = rest[1] if len(rest) > 1 else ""
    subresource = "/".join(rest[2:])
    if subresource and subresource not in resource.subresources:
        if subresource in _OF_KUBELET and resource.plural == "pods":
            raise bad_request(no_program(name, subresource))
        if subresource.partition("/")[0] in UNSERVED:
            raise unsupported(f"{resource.qualified}/{subresource}")
        raise no_such_path()
    return RequestTarget(
        resource=resource, request=request, namespace=namespace, name=name, subresource=subresource
    )


def _unknown(group: str, version: str, plural: str) -> RequestFailure:
    """Return 501 for kinds of Kubernetes that this server lacks, 404 for unknown ones."""
    groups = {resource.group for resource in unserved()}
    if group in groups and version in _RELEASED:
        return unsupported(f"{plural}.{group} ({version})" if group else f"{plural} ({version})")
    return no_such_path()


def of_object(target: RequestTarget, value: Any) -> Object:  # noqa: ANN401 - whatever the client sent
    """Return a body as an object of the target's kind. Raises RequestFailure (400)."""
    resource = target.resource
    if not isinstance(value, dict):
        raise bad_request(f"the body of the request is no {resource.kind}")
    _check_head(resource, value)
    value["kind"], value["apiVersion"] = resource.kind, resource.api_version
    if value.get("metadata") is None:
        value["metadata"] = {}
    return value


def _check_head(resource: ApiResource, value: Mapping[str, Any]) -> None:
    version, kind = value.get("apiVersion"), value.get("kind")
    if resource.custom and not kind:
        raise bad_request("Object 'Kind' is missing in the request body")
    if resource.custom and kind != resource.kind:
        message = f'Invalid value: "{kind}": must be {resource.kind}'
        name = (value.get("metadata") or {}).get("name", "")
        raise invalid(resource, name, [FieldFault(field="kind", message=message)])
    if kind and kind != resource.kind:
        raise bad_request(
            f"{kind} in version {version or ''!r} cannot be handled as a {resource.kind}: the kind "
            "does not match"
        )
    if version and version != resource.api_version:
        raise bad_request(
            f"the API version in the data ({version}) does not match the expected API version "
            f"({resource.api_version})"
        )
