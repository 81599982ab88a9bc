"""`PlainTransport`: one request after the other by the standard library, for short programs.

A list on a terminal takes some tens of milliseconds, less than the import of the HTTP library that
the services use (`transport`). Command lines take this one by `connect`; it knows no proxy. A watch
has a connection of its own. The errors are those of `transport`.
"""

import asyncio
import contextlib
import http.client
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar
from urllib.parse import urlencode, urlsplit

from typing_extensions import override

from shared.kube.credentials import Credentials, Source
from shared.kube.errors import UNAUTHORIZED, Refusal, Silence, Unreachable, read_status, refusal
from shared.kube.wire import JSON, Request, Stream, Transport
from shared.runtime.clock import Clock

_CLIENT_ERROR: Final = 400
_CONNECT_S: Final = 10.0
_PORTS: Final = {"http": 80, "https": 443}
_CHUNK: Final = 65536
_PROXIES: Final = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy")
_T = TypeVar("_T")


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
        session=open_session(credentials, max_connections=2),  # a watch holds one
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
        return await self._authorized(lambda authorization: self._send(request, authorization))

    async def open(self, request: Request) -> Stream:
        """Send a request over a connection of its own; return its answer while it arrives.

        Raises what `exchange` raises. The caller closes the stream.
        """
        return await self._authorized(lambda authorization: self._begin(request, authorization))

    async def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _authorized(self, send: Callable[[str | None], Awaitable[_T]]) -> _T:
        """Send with credentials, once more if they had to be renewed."""
        authorization = await self._credentials.authorization()
        try:
            return await send(authorization)
        except Refusal as exc:
            code = exc.status.code
            if code != UNAUTHORIZED or not await self._credentials.refused(authorization):
                raise
        return await send(await self._credentials.authorization())

    async def _begin(self, request: Request, authorization: str | None) -> "_PlainStream":
        """Send a request over a new connection and return its answer as a stream."""
        connection = self._new()
        try:
            await asyncio.to_thread(self._connect, connection)
            held = connection.sock  # an answer that says `Connection: close` takes it away
            answer = await asyncio.to_thread(self._request, connection, request, authorization)
        except asyncio.CancelledError:
            _shut_down(connection.sock)
            raise
        except Refusal:
            connection.close()
            raise
        except (OSError, http.client.HTTPException) as exc:
            connection.close()
            raise self._unreachable(request, exc) from exc
        return _PlainStream(held, answer, where=f"{request.doing} at {self.host}")

    async def _send(self, request: Request, authorization: str | None) -> bytes:
        try:
            return await asyncio.to_thread(self._exchange, request, authorization)
        except asyncio.CancelledError:
            self._abort()
            raise
        except (OSError, http.client.HTTPException) as exc:
            await self.close()
            raise self._unreachable(request, exc) from exc

    def _unreachable(self, request: Request, exc: Exception) -> Unreachable:
        return Unreachable(f"{request.doing} at {self.host}: {str(exc) or type(exc).__name__}")

    def _exchange(self, request: Request, authorization: str | None) -> bytes:
        """Send and receive, on a thread."""
        kept, connection = self._connection is not None, self._connection or self._new()
        self._connection = connection
        try:
            return self._request(connection, request, authorization).read()
        except (http.client.RemoteDisconnected, ConnectionError):
            if not kept or request.method != "GET":
                raise
            connection.close()  # the server had closed an idle connection: once more on a new one
            self._connection = None
            return self._exchange(request, authorization)

    def _request(
        self,
        connection: http.client.HTTPConnection,
        request: Request,
        authorization: str | None,
    ) -> http.client.HTTPResponse:
        """Send a request, on a thread; return its answer, not read yet. Raises Refusal."""
        headers = dict(self._headers)
        if authorization is not None:
            headers["Authorization"] = authorization
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        query = f"?{urlencode(request.query)}" if request.query else ""
        if connection.sock is None:
            self._connect(connection)
        path = f"{self._prefix}{request.path}{query}"
        connection.request(request.method, path, body=request.body, headers=headers)
        answer = connection.getresponse()
        if answer.status < _CLIENT_ERROR:
            return answer
        status = read_status(answer.status, answer.read())
        raise refusal(request.doing, status, dict(answer.getheaders()))

    def _connect(self, connection: http.client.HTTPConnection) -> None:
        connection.connect()
        connection.sock.settimeout(self._timeout_s)

    def _new(self) -> http.client.HTTPConnection:
        """Return a connection that is not open yet."""
        at = urlsplit(self._credentials.host)
        host, port = at.hostname or "", at.port or _PORTS.get(at.scheme, 80)
        if at.scheme != "https":
            return http.client.HTTPConnection(host, port, timeout=_CONNECT_S)
        name = self._credentials.access.server_name
        return _Secured(host, port, context=self._credentials.tls, name=name)

    def _abort(self) -> None:
        """Shut the connection down after a cancellation, so that the thread that reads it ends."""
        connection, self._connection = self._connection, None
        if connection is not None:
            _shut_down(connection.sock)


class _PlainStream:
    """An answer that is read while it arrives, on threads; its connection is its own."""

    def __init__(
        self, held: socket.socket, answer: http.client.HTTPResponse, *, where: str
    ) -> None:
        self._socket = held
        self._answer = answer
        self._where = where

    async def read(self, *, silence_s: float) -> bytes:
        """Return the next bytes, b"" at the orderly end. Raises Unreachable, Silence."""
        self._socket.settimeout(silence_s)
        try:
            return await asyncio.to_thread(self._answer.read1, _CHUNK)
        except TimeoutError as exc:
            raise Silence(f"{self._where}: nothing for {silence_s:g} s") from exc
        except asyncio.CancelledError:
            _shut_down(self._socket)
            raise
        except (OSError, http.client.HTTPException) as exc:
            raise Unreachable(f"{self._where}: {str(exc) or type(exc).__name__}") from exc

    def close(self) -> None:
        """Drop the connection; nothing reads it any more."""
        _shut_down(self._socket)
        self._answer.close()
        self._socket.close()


def _shut_down(held: socket.socket | None) -> None:
    """Shut a socket down: a thread that reads it sees the end of the stream."""
    if held is not None:
        with contextlib.suppress(OSError):  # it may have ended by itself
            held.shutdown(socket.SHUT_RDWR)
