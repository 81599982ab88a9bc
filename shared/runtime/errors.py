"""The four kinds of errors of adapters, so that callers decide by kind and not by library.

Adapters (`shared.bus`, `shared.kube`) translate what their library raises once, with
`raise ... from`; no code above them sees an aiohttp or nats exception. A "no" is never one of
these: it is a value.
"""

from typing import Any, TypeVar, overload

_E = TypeVar("_E", bound=BaseException)


class PumiceError(Exception):
    """Base of every failure that Pumice raises on purpose; its text is one line for a person."""


class Retryable(PumiceError):  # noqa: N818 - named by what the caller does, as is each below
    """The same request may succeed later: overload, time-out, lost connection.

    `retry_after_s` is the delay that the server requests (for example by Retry-After), or None.
    """

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Conflict(PumiceError):  # noqa: N818
    """The object has changed: read it again before deciding what to do."""


class Gone(Conflict):
    """The object with that uid no longer exists; another may have its name."""


class Rejected(PumiceError):  # noqa: N818
    """The input is wrong and stays wrong; `field` names the offending part ("" if it is all)."""

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class Broken(PumiceError):  # noqa: N818
    """A promise between our own parts does not hold; retrying or re-reading cannot help."""


@overload
def leaves(error: BaseExceptionGroup[_E]) -> list[_E]: ...
@overload
def leaves(error: BaseException) -> list[BaseException]: ...
def leaves(error: BaseException) -> list[Any]:
    """Return the errors of a group, groups within it included, in order; of an error, itself."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves(inner)]
    return [error]
