"""The API server's refusals as the runtime's kinds of errors, with the server's own words.

Callers above catch the kinds of `shared.runtime.errors`; callers that need the detail (the
reason, the fields that were refused) find it in `refusal`. No code above this package sees aiohttp.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from shared.runtime.errors import Conflict, Gone, PumiceError, Rejected, Retryable

BAD_REQUEST = 400
UNAUTHORIZED = 401
FORBIDDEN = 403
NOT_FOUND = 404
CONFLICT = 409
GONE = 410
UNPROCESSABLE = 422
TOO_MANY = 429
_SERVER_ERROR = 500
NOT_IMPLEMENTED = 501


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """One reason of several, mostly a field and what is wrong with it."""

    reason: str = ""
    message: str = ""
    field: str = ""


class _Details(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    causes: tuple[Cause, ...] | None = None
    retry_after_seconds: int = 0


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The API server's `Status` object, as answered or as sent in a watch."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None

    @property
    def causes(self) -> tuple[Cause, ...]:
        """Return the causes, often none."""
        return (self.details.causes or ()) if self.details else ()

    @property
    def requested_delay_s(self) -> float | None:
        """Return how long the server asks us to wait, None if it does not say."""
        seconds = self.details.retry_after_seconds if self.details else 0
        return float(seconds) if seconds else None


class Refusal(PumiceError):  # noqa: N818 - a mix-in: its users are named by what the caller does
    """An answer that says no; `status` is the API server's own explanation."""

    def __init__(self, doing: str, status: Status) -> None:
        message = status.message or f"HTTP {status.code}"
        Exception.__init__(self, f"{doing}: {message}")
        self.status = status


class Busy(Refusal, Retryable):
    """429, 5xx or 401: the server is overloaded, fails, or refuses our credential for now.

    401 is here because credentials rotate: it says something about us, nothing about the request.
    """

    def __init__(self, doing: str, status: Status, retry_after_s: float | None = None) -> None:
        Refusal.__init__(self, doing, status)
        self.retry_after_s = retry_after_s


class WriteConflict(Refusal, Conflict):
    """409: the object is not (any more) as the request supposes."""


class AlreadyExists(WriteConflict):
    """409 on a create: an object of that name is there."""


class Expired(Refusal, Conflict):
    """410: that resourceVersion or page is too old, list again."""


class Vanished(Refusal, Gone):
    """404, or the name belongs to an object with another uid."""


class Refused(Refusal, Rejected):
    """4xx: the same request would be refused again; `field` is the first field to blame."""

    def __init__(self, doing: str, status: Status) -> None:
        Refusal.__init__(self, doing, status)
        self.field = status.causes[0].field if status.causes else ""


class Denied(Refused):
    """403: our role lacks a right, or a quota or policy forbids it."""


class Unreachable(Retryable):
    """No answer: refused, reset, timed out, or the certificates do not match."""


class Silence(Unreachable):
    """No byte for too long on an open stream, which may be idle or dead."""


_OTHER_UID: Final = re.compile(r"UID in (the )?precondition")
_status_decoder = msgspec.json.Decoder(Status)


def read_status(code: int, body: bytes) -> Status:
    """Return the `Status` in an answer's body; a body of another form becomes its message."""
    try:
        status = _status_decoder.decode(body)
    except (ValueError, RecursionError):
        text = body[:200].decode(errors="replace").strip()
        return Status(code=code, message=f"HTTP {code} {text}".strip())
    return msgspec.structs.replace(status, code=code)


def refusal(doing: str, status: Status, headers: Mapping[str, str] | None = None) -> Refusal:
    """Return the error for a `status` with code ≥ 400; `doing` says what was tried.

    501 says that the server does not know how, today or tomorrow. 429 and other 5xx carry the
    Retry-After of the header or of the status. A uid that does not hold is Vanished, not a
    conflict. The API server has three ways to say so, and
    `tests/integration/kube` holds it to them: 422 with the field `metadata.uid` to a patch, and
    409 in two wordings to a delete and to a binding.
    """
    code = status.code
    if code in (UNAUTHORIZED, TOO_MANY) or _SERVER_ERROR <= code != NOT_IMPLEMENTED:
        return Busy(doing, status, _retry_after_s(status, headers or {}))
    if code == NOT_FOUND or _is_other_uid(status):
        return Vanished(doing, status)
    if code == CONFLICT:
        kind = AlreadyExists if status.reason == "AlreadyExists" else WriteConflict
        return kind(doing, status)
    if code == GONE:
        return Expired(doing, status)
    return Denied(doing, status) if code == FORBIDDEN else Refused(doing, status)


def _is_other_uid(status: Status) -> bool:
    if status.code == CONFLICT:
        return _OTHER_UID.search(status.message) is not None
    return status.code == UNPROCESSABLE and any(c.field == "metadata.uid" for c in status.causes)


def _retry_after_s(status: Status, headers: Mapping[str, str]) -> float | None:
    named = (value for name, value in headers.items() if name.lower() == "retry-after")
    text = next(named, "")
    return float(text) if text.isdecimal() else status.requested_delay_s
