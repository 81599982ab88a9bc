"""Requests through an HTTP proxy, over aiohttp: CONNECT, TLS within TLS, credentials of proxies.

aiohttp's `trust_env` stays off: it would look for a proxy and for an account in `~/.netrc`, in two
threads, at each request, and an account there forbids an Authorization of ours.
"""

import io
from collections.abc import Mapping
from typing import Final

import aiohttp
from yarl import URL

from shared.kube.connections import CONNECT_S, KEEP_ALIVE_S, READ_AHEAD
from shared.kube.credentials import Credentials
from shared.kube.wire import Request
from shared.runtime.errors import Broken

_LARGE_BODY: Final = 1 << 20


class ProxiedConnections:
    """Connections to one API server through a proxy; at most `max_connections` are open."""

    def __init__(
        self, credentials: Credentials, *, proxy: str | None, max_connections: int
    ) -> None:
        self._credentials = credentials
        self._proxy = proxy
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=max_connections, keepalive_timeout=KEEP_ALIVE_S, ssl=credentials.tls
            ),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=READ_AHEAD,
        )

    async def begin(self, request: Request, headers: Mapping[str, str]) -> "ProxiedResponse":
        """Send a request; return when the head of its response is there.

        Raises OSError, and Broken for an address that is none.
        """
        url = URL(self._credentials.host + request.path, encoded=True)
        try:
            response = await self._session.request(
                request.method,
                url.with_query(request.query) if request.query else url,
                headers=headers,
                data=_payload(request.body),
                proxy=self._proxy,
                server_hostname=self._credentials.access.server_name,
                allow_redirects=False,
            )
        except aiohttp.InvalidURL as exc:
            raise Broken(f"{request.doing} at {url} through {self._proxy}: {exc}") from exc
        except aiohttp.ClientError as exc:
            raise _broken(exc) from exc
        return ProxiedResponse(response)

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()


class ProxiedResponse:
    """A response that is read while it arrives."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self._response = response

    async def read(self) -> bytes:
        """Return the next bytes, b"" at the end. Raises OSError when the connection breaks."""
        try:
            return await self._response.content.readany()
        except aiohttp.ClientError as exc:
            raise _broken(exc) from exc

    async def read_all(self) -> bytes:
        """Return the body. Raises OSError when the connection breaks."""
        try:
            return await self._response.read()
        except aiohttp.ClientError as exc:
            raise _broken(exc) from exc

    def close(self) -> None:
        """Give the connection back; it is closed if the response has not come to its end."""
        self._response.close()


def _broken(exc: aiohttp.ClientError) -> ConnectionError:
    """Return a failure with aiohttp's message, or its name where it has none (a reset)."""
    return ConnectionError(str(exc) or type(exc).__name__)


def _payload(body: bytes | None) -> bytes | io.BytesIO | None:
    """Return a body as aiohttp takes it without a warning: beyond 1 MiB in pieces."""
    return io.BytesIO(body) if body is not None and len(body) > _LARGE_BODY else body
