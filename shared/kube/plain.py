"""`PlainTransport`: one request after the other by the standard library, for short programs.

A list on a terminal takes some tens of milliseconds, less than the import of the HTTP library that
the services use (`transport`). Command lines take this one by `connect`; it has no watch and no
proxy. The errors are those of `transport`.
"""

import asyncio
import contextlib
import http.client
import os
import socket
import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode, urlsplit

from typing_extensions import override

from shared.kube.credentials import Credentials, Source
from shared.kube.errors import UNAUTHORIZED, Refusal, Unreachable, read_status, refusal
from shared.kube.wire import JSON, Request, Stream, Transport
from shared.runtime.clock import Clock
from shared.runtime.errors import Rejected

_CLIENT_ERROR: Final = 400
_CONNECT_S: Final = 10.0
_PORTS: Final = {"http": 80, "https": 443}


_PROXIES: Final = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy")


async def connect(
    source: Source,
    *,
    user_agent: str,
    timeout_s: float,
    clock: Clock,
    environ: Mapping[str, str] = os.environ,
) -> Transport:
    """Return the way to an API server; where a proxy may be in between, that of the services.

    Loads credentials, but sends nothing. Raises what the source raises.
    """
    credentials = await Credentials.open(source, clock=clock)
    if not credentials.access.proxy and not any(environ.get(name) for name in _PROXIES):
        return PlainTransport(credentials=credentials, user_agent=user_agent, timeout_s=timeout_s)
    from shared.kube.transport import HttpTransport, RateLimiter, open_session

    return HttpTransport(
        credentials=credentials,
        session=open_session(credentials, max_connections=1),
        limiter=RateLimiter(qps=0, burst=0),
        user_agent=user_agent,
        timeout_s=timeout_s,
    )


class _Secured(http.client.HTTPSConnection):
    """A connection that expects a certificate for a name that need not be the host's."""

    def __init__(self, host: str, port: int, *, context: ssl.SSLContext, name: str | None) -> None:
        super().__init__(host, port, context=context, timeout=_CONNECT_S)
        self._tls = context
        self._name = name

    @override
    def connect(self) -> None:
        """Connect and shake hands."""
        http.client.HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._name or self.host)


class PlainTransport:
    """The way to one API server over one kept connection."""

    def __init__(self, *, credentials: Credentials, user_agent: str, timeout_s: float) -> None:
        self._credentials = credentials
        self._timeout_s = timeout_s
        self._headers = {"User-Agent": user_agent, "Accept": JSON, "Accept-Encoding": "identity"}
        self._connection: http.client.HTTPConnection | None = None
        self._prefix = urlsplit(credentials.host).path.rstrip("/")

    @property
    def host(self) -> str:
        """Return the API server's address, for messages."""
        return self._credentials.host

    async def exchange(self, request: Request) -> bytes:
        """Send a request and return the body of its answer.

        Raises the errors of `shared.kube.errors`; Unreachable also when the server may or may not
        have done what was asked. One request at a time.
        """
        authorization = await self._credentials.authorization()
        try:
            return await self._send(request, authorization)
        except Refusal as exc:
            code = exc.status.code
            if code != UNAUTHORIZED or not await self._credentials.refused(authorization):
                raise
        return await self._send(request, await self._credentials.authorization())

    async def open(self, request: Request) -> Stream:
        """Refuse: an answer that does not end would hold the one connection."""
        raise Rejected(f"{request.doing}: this transport has no streams")

    async def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _send(self, request: Request, authorization: str | None) -> bytes:
        try:
            return await asyncio.to_thread(self._talk, request, authorization)
        except asyncio.CancelledError:
            self._hang_up()
            raise
        except (OSError, http.client.HTTPException) as exc:
            await self.close()
            text = str(exc) or type(exc).__name__
            raise Unreachable(f"{request.doing} at {self.host}: {text}") from exc

    def _talk(self, request: Request, authorization: str | None) -> bytes:
        """Send and receive, on a thread."""
        kept, connection = self._connection is not None, self._connected()
        headers = dict(self._headers)
        if authorization is not None:
            headers["Authorization"] = authorization
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        query = f"?{urlencode(request.query)}" if request.query else ""
        try:
            path = f"{self._prefix}{request.path}{query}"
            connection.request(request.method, path, body=request.body, headers=headers)
            answer = connection.getresponse()
        except (http.client.RemoteDisconnected, ConnectionError):
            if not kept or request.method != "GET":
                raise
            connection.close()  # the server had closed an idle connection: once more on a new one
            self._connection = None
            return self._talk(request, authorization)
        body = answer.read()
        if answer.status < _CLIENT_ERROR:
            return body
        raise refusal(request.doing, read_status(answer.status, body), dict(answer.getheaders()))

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is None:
            at = urlsplit(self._credentials.host)
            host, port = at.hostname or "", at.port or _PORTS.get(at.scheme, 80)
            if at.scheme == "https":
                self._connection = _Secured(
                    host,
                    port,
                    context=self._credentials.tls,
                    name=self._credentials.access.server_name,
                )
            else:
                self._connection = http.client.HTTPConnection(host, port, timeout=_CONNECT_S)
            self._connection.connect()
            self._connection.sock.settimeout(self._timeout_s)
        return self._connection

    def _hang_up(self) -> None:
        """End what a thread waits for: the person who asked does not wait any more."""
        connection, self._connection = self._connection, None
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):  # it may have ended by itself
                connection.sock.shutdown(socket.SHUT_RDWR)
