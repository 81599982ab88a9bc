"""Errors as Status objects, with the codes and reasons that Kubernetes clients decide by."""

from collections.abc import Mapping
from typing import Any, Final

from shared.api.base import Json
from shared.api.visibility import GROUP

BAD_REQUEST, UNAUTHORIZED, FORBIDDEN, NOT_FOUND, WRONG_METHOD = 400, 401, 403, 404, 405
NOT_ACCEPTABLE, EXPIRED, TOO_LARGE, UNSUPPORTED, INVALID = 406, 410, 413, 415, 422
TOO_MANY, INTERNAL, UNAVAILABLE, TOO_SLOW = 429, 500, 503, 504

REASONS: Final = {
    BAD_REQUEST: "BadRequest",
    UNAUTHORIZED: "Unauthorized",
    FORBIDDEN: "Forbidden",
    NOT_FOUND: "NotFound",
    WRONG_METHOD: "MethodNotAllowed",
    NOT_ACCEPTABLE: "NotAcceptable",
    EXPIRED: "Expired",
    TOO_LARGE: "RequestEntityTooLarge",
    UNSUPPORTED: "UnsupportedMediaType",
    INVALID: "Invalid",
    TOO_MANY: "TooManyRequests",
    INTERNAL: "InternalError",
    UNAVAILABLE: "ServiceUnavailable",
    TOO_SLOW: "Timeout",
}


class ApiFailure(Exception):  # noqa: N818 - a refusal is an answer here, no error of ours
    """A request that is refused."""

    def __init__(
        self,
        code: int,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        retry_after_s: int = 0,
    ) -> None:
        self.code = code
        self.message = _writable(message)
        self.retry_after_s = retry_after_s
        self._details = _writable(dict(details or {}))
        super().__init__(self.message)

    def status(self) -> Json:
        """Return the `Status` object of the refusal."""
        waits = {"retryAfterSeconds": self.retry_after_s} if self.retry_after_s else {}
        details = {**self._details, **waits}
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": REASONS[self.code],
            **({"details": details} if details else {}),
            "code": self.code,
        }


def _writable(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return JSON data with marks in place of halves of characters, which UTF-8 cannot hold."""
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case dict():
            return {key: _writable(each) for key, each in value.items()}
        case list():
            return [_writable(each) for each in value]
        case _:
            return value


def no_such_path() -> ApiFailure:
    """Refuse a path that is not served."""
    return ApiFailure(NOT_FOUND, "the server could not find the requested resource")


def not_found(plural: str, name: str) -> ApiFailure:
    """Refuse a name that no object has."""
    details = {"name": name, "group": GROUP, "kind": plural}
    return ApiFailure(NOT_FOUND, f'{plural}.{GROUP} "{name}" not found', details=details)


def wrong_method() -> ApiFailure:
    """Refuse a verb that the resource does not have."""
    return ApiFailure(
        WRONG_METHOD, "the server does not allow this method on the requested resource"
    )


def unauthorized() -> ApiFailure:
    """Refuse a caller without a name."""
    return ApiFailure(UNAUTHORIZED, "Unauthorized")


def invalid(kind: str, field: str, why: str) -> ApiFailure:
    """Return the error 422 for an invalid object; it names the field."""
    cause = {"reason": "FieldValueInvalid", "message": why, "field": field}
    details = {"group": GROUP, "kind": kind, "causes": [cause]}
    message = f"{field}: {why}" if field else why
    return ApiFailure(INVALID, f"{kind}.{GROUP} is invalid: {message}", details=details)


def unavailable(why: str) -> ApiFailure:
    """Refuse for the moment."""
    return ApiFailure(UNAVAILABLE, why, retry_after_s=1)
