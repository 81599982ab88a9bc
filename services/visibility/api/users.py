"""Users, read from the headers that the API server puts in front of a request."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final
from urllib.parse import unquote

import msgspec

from services.visibility.api.statuses import unauthorized

MASTERS: Final = "system:masters"
"""Group that may do everything, independent of roles."""
AUTHENTICATED: Final = "system:authenticated"
UNAUTHENTICATED: Final = "system:unauthenticated"


class User(msgspec.Struct, frozen=True, kw_only=True):
    """A user as the API server knows him."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class RequestHeaders(msgspec.Struct, frozen=True, kw_only=True):
    """How the API server passes the user of a request, and how it authenticates itself."""

    authorities: str
    """PEM of those that sign its client certificate."""
    allowed_names: tuple[str, ...] = ()
    """Common names of that certificate; none means any."""
    name_headers: tuple[str, ...] = ("X-Remote-User",)
    uid_headers: tuple[str, ...] = ("X-Remote-Uid",)
    group_headers: tuple[str, ...] = ("X-Remote-Group",)
    extra_prefixes: tuple[str, ...] = ("X-Remote-Extra-",)


_FIELDS: Final = {
    "requestheader-allowed-names": "allowed_names",
    "requestheader-username-headers": "name_headers",
    "requestheader-uid-headers": "uid_headers",
    "requestheader-group-headers": "group_headers",
    "requestheader-extra-headers-prefix": "extra_prefixes",
}
_AUTHORITIES: Final = "requestheader-client-ca-file"


def from_config_map(data: Mapping[str, str]) -> RequestHeaders:
    """Return what the ConfigMap of the API server says. Raises ValueError that names the key."""
    if not data.get(_AUTHORITIES):
        raise ValueError(f"it has no {_AUTHORITIES}: the API server was started without that flag")
    lists: dict[str, tuple[str, ...]] = {}
    for key, field in _FIELDS.items():
        if text := data.get(key):
            try:
                lists[field] = msgspec.json.decode(text, type=tuple[str, ...])
            except msgspec.DecodeError as error:
                raise ValueError(f"{key} is no list of names: {error}") from error
    return msgspec.convert({"authorities": data[_AUTHORITIES], **lists}, RequestHeaders)


def read_user(
    headers: RequestHeaders,
    common_names: Sequence[str] | None,
    *,
    values: Callable[[str], Sequence[str]],
    names: Sequence[str],
) -> User:
    """Return the user of a request whose caller shows a certificate with these common names.

    `values` returns all values of a header, `names` are those of all headers. Raises ApiFailure
    (401) for a caller without a certificate, under another name, or without a user.
    """
    if common_names is None:
        raise unauthorized()
    if headers.allowed_names and not set(headers.allowed_names) & set(common_names):
        raise unauthorized()
    name = _first(headers.name_headers, values)
    if not name:
        raise unauthorized()
    user = User(
        name=name,
        uid=_first(headers.uid_headers, values),
        groups=_groups([group for header in headers.group_headers for group in values(header)]),
        extra=_extra(headers.extra_prefixes, values, names),
    )
    try:
        msgspec.json.encode(user)
    except UnicodeError as error:  # header bytes that are not UTF-8
        raise unauthorized() from error
    return user


def _groups(given: Sequence[str]) -> tuple[str, ...]:
    """Return the groups of a user, with the one that each known user is in.

    The API server requests documents under a user of its own that it gives no group.
    """
    if AUTHENTICATED in given or UNAUTHENTICATED in given:
        return tuple(given)
    return (*given, AUTHENTICATED)


def _first(headers: Sequence[str], values: Callable[[str], Sequence[str]]) -> str:
    return next((value for header in headers for value in values(header) if value), "")


def _extra(
    prefixes: Sequence[str], values: Callable[[str], Sequence[str]], names: Sequence[str]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found: dict[str, tuple[str, ...]] = {}
    for name in dict.fromkeys(name.lower() for name in names):
        for prefix in prefixes:
            if name.startswith(prefix.lower()):
                key = unquote(name.removeprefix(prefix.lower()))
                found[key] = (*found.get(key, ()), *values(name))
    return tuple(sorted(found.items()))
