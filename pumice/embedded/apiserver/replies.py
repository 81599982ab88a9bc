"""The values that the core takes and returns: requests, replies, and errors as `Status` objects.

The reasons, codes and details of refusals are those of kube-apiserver; clients decide by them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from pumice.embedded.apiserver.catalogue import ApiResource

JSON: Final = "application/json"
Object = dict[str, Any]


class ApiRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP request; `path` is unquoted, header names are in lower case."""

    method: str
    path: str
    query: Mapping[str, str] = msgspec.field(default_factory=dict)
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    body: bytes = b""


class ApiReply(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP response."""

    status: int
    headers: Mapping[str, str] = msgspec.field(default_factory=lambda: {"Content-Type": JSON})
    body: bytes = b""


def json_reply(value: Any, status: int = 200, content_type: str = JSON) -> ApiReply:  # noqa: ANN401
    """Return a JSON response; bytes are sent as they are."""
    body = value if isinstance(value, bytes) else msgspec.json.encode(value)
    return ApiReply(status=status, headers={"Content-Type": content_type}, body=body)


class FieldFault(msgspec.Struct, frozen=True, kw_only=True):
    """One field and the fault in it."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"


_BLOCKING: Final = frozenset(
    ("FieldValueRequired", "FieldValueNotSupported", "FieldValueTooLong", "FieldValueTooMany",
     "FieldValueTypeInvalid")
)  # fmt: skip
_UNCHECKED: Final = FieldFault(
    field="<nil>",
    message="Invalid value: null: some validation rules were not checked because the object was "
    "invalid; correct the existing errors to complete validation",
)


def rules_left_out(faults: Iterable[FieldFault]) -> list[FieldFault]:
    """Return the fault for CEL rules that could not be checked because of `faults`."""
    return [_UNCHECKED] if any(fault.reason in _BLOCKING for fault in faults) else []


class RequestFailure(Exception):  # noqa: N818 - a refusal is an answer here, no error of ours
    """A request that is refused; `status` is the response's body."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.headers = headers or {}
        self.status: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            **({"reason": reason} if reason else {}),
            **({"details": details} if details else {}),
            "code": code,
        }

    def response(self) -> ApiReply:
        """Return the refusal as a response."""
        response = json_reply(self.status, self.code)
        return msgspec.structs.replace(response, headers={**response.headers, **self.headers})


def named(resource: ApiResource, name: str = "", *, uid: str = "", kind: str = "") -> Object:
    """Return the details of a Status about an object; `kind` is the plural unless given."""
    pairs = {
        "name": name,
        "group": resource.group,
        "kind": kind or resource.plural,
        "uid": uid,
    }
    return {key: value for key, value in pairs.items() if value}


def not_found(resource: ApiResource, name: str) -> RequestFailure:
    """404: no object of that name."""
    message = f'{resource.qualified} "{name}" not found'
    return RequestFailure(404, "NotFound", message, named(resource, name))


def no_such_path() -> RequestFailure:
    """404 for a kind or a path that is not served at all."""
    return RequestFailure(404, "NotFound", "the server could not find the requested resource")


def already_exists(resource: ApiResource, name: str) -> RequestFailure:
    """409: the name is taken."""
    message = f'{resource.qualified} "{name}" already exists'
    return RequestFailure(409, "AlreadyExists", message, named(resource, name))


def conflict(resource: ApiResource, name: str, why: str) -> RequestFailure:
    """409: the object is not as the request supposes."""
    message = f'Operation cannot be fulfilled on {resource.qualified} "{name}": {why}'
    return RequestFailure(409, "Conflict", message, named(resource, name))


def stale(resource: ApiResource, name: str) -> RequestFailure:
    """409: the resourceVersion in the request is not the newest."""
    return conflict(
        resource,
        name,
        "the object has been modified; please apply your changes to the latest version and try "
        "again",
    )


def bad_request(message: str) -> RequestFailure:
    """400: the request cannot be read."""
    return RequestFailure(400, "BadRequest", message)


def forbidden(
    resource: ApiResource, name: str, why: str, causes: Sequence[Object] = ()
) -> RequestFailure:
    """403: policy forbids it."""
    details = named(resource, name) | ({"causes": list(causes)} if causes else {})
    return RequestFailure(
        403, "Forbidden", f'{resource.qualified} "{name}" is forbidden: {why}', details
    )


def invalid(resource: ApiResource, name: str, faults: Sequence[FieldFault]) -> RequestFailure:
    """422: fields are wrong; one cause for each."""
    causes = [
        {"reason": fault.reason, "message": fault.message, "field": fault.field} for fault in faults
    ]
    texts = [f"{fault.field}: {fault.message}" for fault in faults]
    text = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    details = named(resource, name, kind=resource.kind) | {"causes": causes}
    return RequestFailure(422, "Invalid", f'{kind} "{name}" is invalid: {text}', details)


def expired(message: str) -> RequestFailure:
    """410: that version, or page, is too old."""
    return RequestFailure(410, "Expired", message)


def unsupported(what: str) -> RequestFailure:
    """501: this server does not do that; the real one may. Names itself."""
    message = f"the embedded API server of Pumice does not serve {what}; use --api real"
    return RequestFailure(501, "NotImplemented", message)


def wrong_method() -> RequestFailure:
    """405: the resource has no such verb."""
    message = "the server does not allow this method on the requested resource"
    return RequestFailure(405, "MethodNotAllowed", message)


def success(resource: ApiResource, name: str, uid: str) -> Object:
    """Return the response to a finished delete."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": named(resource, name, uid=uid),
    }
