"""Decides which requests of a browser are served. Pure: the server refuses all others.

The server acts with its user's credentials, so three strangers are kept out: pages of other sites
in the same browser (host, origin and fetch metadata), other users of this machine (the key), and
questions that the page does not ask (the paths).
"""

import hmac
import re
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Final

import msgspec

from shared.api.visibility import API_VERSION

_API: Final = f"/apis/{API_VERSION}/"
_NAME: Final = r"[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?"
_LISTS: Final = r"(?:pendingjobs|runningjobs)"
_READ: Final = re.compile(
    rf"{_LISTS}|queuetrees|nodeuses|usagehistories|changes"
    rf"|namespaces/{_NAME}/(?:{_LISTS}|changes|(?:explanations|timelines)/{_NAME})"
)
_ASKED: Final = re.compile(rf"namespaces/{_NAME}/whatifs|usagereports")
_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")


class GateRefusal(msgspec.Struct, frozen=True):
    """Why a request is refused."""

    status: int
    words: str


class RequestGate:
    """The checks of one server, which listens at one port."""

    def __init__(self, *, port: int, key: str) -> None:
        self._hosts = frozenset(f"{host}:{port}" for host in _LOOPBACK)
        self._origins = frozenset(f"http://{host}" for host in self._hosts)
        self._key = key
        self.cookie = f"pumice-web-{port}"
        """Cookies do not tell ports apart: two pages on one machine need two names."""

    def refuses(self, method: str, headers: Mapping[str, str]) -> GateRefusal | None:
        """Return why a request of another site, or to another name, is refused."""
        if headers.get("Host", "") not in self._hosts:
            return GateRefusal(421, "this server answers to 127.0.0.1 and localhost only")
        origin = headers.get("Origin")
        if origin is not None and origin not in self._origins:
            return GateRefusal(403, "a page of another site asks")
        if method != "GET" and origin is None:
            return GateRefusal(403, "a request that asks for more than reading names its origin")
        site, mode = headers.get("Sec-Fetch-Site", "none"), headers.get("Sec-Fetch-Mode", "")
        if site not in ("same-origin", "none") and mode != "navigate":
            return GateRefusal(403, "a page of another site asks")
        return None

    def is_key(self, given: str) -> bool:
        """Return whether this is the key of the address that was printed."""
        return hmac.compare_digest(given.encode(), self._key.encode())

    def knows(self, headers: Mapping[str, str]) -> bool:
        """Return whether a request has the cookie that the key was exchanged for."""
        try:
            morsel = SimpleCookie(headers.get("Cookie", "")).get(self.cookie)
        except CookieError:
            return False
        return morsel is not None and self.is_key(morsel.value)


def is_proxied(method: str, path: str) -> bool:
    """Return whether the page uses a path of the API server."""
    if not path.startswith(_API):
        return False
    below = path.removeprefix(_API)
    return bool({"GET": _READ, "POST": _ASKED}[method].fullmatch(below))
