"""Requests to the API server: credentials, time limits, and what its refusals and failures mean.

`client` reads whole responses, `listwatch` responses that never end. A request is sent once, with
two exceptions: after a 401 with a renewed credential, because the caller does not know about
credentials, and an idempotent request when a kept connection turns out to be closed. Bytes go over
`connections`, or over `proxied` if a proxy is configured.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol, TypeVar
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

from shared.kube.connections import Address, Connections
from shared.kube.credentials import Access, Credentials, Source, is_loopback
from shared.kube.errors import UNAUTHORIZED, Refusal, Silence, Unreachable, read_status, refusal
from shared.kube.wire import Request
from shared.runtime.clock import Clock
from shared.runtime.errors import Broken, Rejected

if TYPE_CHECKING:
    from shared.kube.proxied import ProxiedConnections

_CLIENT_ERROR: Final = 400
_REPEATABLE: Final = frozenset({"GET", "PUT", "DELETE"})
_PORTS: Final = {"http": 80, "https": 443}
_T = TypeVar("_T")


class RateLimiter:
    """Lets `burst` requests through at once, then `qps` per second, first come first served.

    Volcano's `--kube-api-qps` and `--kube-api-burst`. Off by default: the API server protects
    itself (priority and fairness, 429), and a fixed rate in the client only adds waiting. It is
    kept for clusters whose administrators want a bound.
    """

    def __init__(self, *, qps: float, burst: int) -> None:
        self._interval_s = 1 / qps
        self._tolerance_s = self._interval_s * (max(burst, 1) - 1)
        self._due = 0.0

    async def admit(self) -> None:
        """Return when the next request may go out. A cancelled waiter's turn is not given back."""
        now = asyncio.get_running_loop().time()
        turn = max(self._due, now - self._tolerance_s)
        self._due = turn + self._interval_s
        wait_s = turn - now
        if wait_s > 0:
            await asyncio.sleep(wait_s)


class OpenResponse(Protocol):
    """A response whose head has arrived: of `connections`, or of `proxied`."""

    @property
    def status(self) -> int:
        """The status code."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers."""
        ...

    async def read(self) -> bytes:
        """Return the next bytes, b"" at the end. Raises OSError."""
        ...

    async def read_all(self) -> bytes:
        """Return all bytes that were not read yet. Raises OSError."""
        ...

    def close(self) -> None:
        """Give the connection back."""
        ...


class HttpStream:
    """A response that is read while it arrives (a watch)."""

    def __init__(self, response: OpenResponse, doing: str) -> None:
        self._response = response
        self._doing = doing

    async def read(self, *, silence_s: float) -> bytes:
        """Return the next bytes, b"" at the orderly end.

        Raises Unreachable when the connection breaks, Silence when nothing comes for `silence_s`.
        """
        try:
            async with asyncio.timeout(silence_s):
                return await self._response.read()
        except TimeoutError as exc:
            raise Silence(f"{self._doing}: no byte for {silence_s:g} s") from exc
        except OSError as exc:
            raise Unreachable(f"{self._doing}: {exc}") from exc

    def close(self) -> None:
        """Give the connection back: it is dropped if the response was not read to its end."""
        self._response.close()


class HttpTransport:
    """Requests to one API server over kept connections, with its credentials and limits."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        proxied: "ProxiedConnections | None",
        user_agent: str,
        max_connections: int,
        timeout_s: float,
        limiter: RateLimiter | None,
    ) -> None:
        """Use `open_transport`. A watch holds one of `max_connections`."""
        self._credentials = credentials
        self._proxied = proxied
        self._connections = Connections(limit=max_connections)
        self._limiter = limiter
        self._timeout_s = timeout_s
        self._is_closed = False
        # No compression: the server spends more time on gzip than a cluster network on bytes.
        self._headers = {"User-Agent": user_agent, "Accept-Encoding": "identity"}
        self._access: Access | None = None
        """Access that the next three are read from."""
        self._address: Address
        self._host: str
        self._prefix: str

    @property
    def host(self) -> str:
        """Return the API server's address, for messages."""
        return self._credentials.host

    async def exchange(self, request: Request) -> bytes:
        """Send a request and return the body of its response.

        Raises the errors of `shared.kube.errors`; Unreachable also after the time limit, when the
        server may or may not have done what was asked.
        """
        if self._limiter is not None:
            await self._limiter.admit()
        return await self._authorized(request, self._read)

    async def open(self, request: Request) -> HttpStream:
        """Send a request and return its response as a stream, which the caller closes.

        Raises what `exchange` raises; the time limit covers the headers only.
        """
        return HttpStream(await self._authorized(request, self._send), request.doing)

    async def close(self) -> None:
        """Close all connections. Requests that come later are Unreachable: a service is ending."""
        self._is_closed = True
        self._connections.close()
        if self._proxied is not None:
            await self._proxied.close()

    async def _authorized(
        self, request: Request, send: Callable[[Request, str | None], Awaitable[_T]]
    ) -> _T:
        """Send a request in time, once more if the credential had to be renewed for it."""
        if self._is_closed:
            raise self._unreachable(request, "this client is closed")
        try:
            async with asyncio.timeout(self._timeout_s):
                authorization = await self._credentials.authorization()
                try:
                    return await send(request, authorization)
                except Refusal as exc:
                    if exc.status.code != UNAUTHORIZED or not await self._credentials.refused(
                        authorization
                    ):
                        raise
                return await send(request, await self._credentials.authorization())
        except TimeoutError as exc:
            raise self._unreachable(request, f"no answer in {self._timeout_s:g} s") from exc
        except OSError as exc:
            raise self._unreachable(request, str(exc) or type(exc).__name__) from exc

    def _unreachable(self, request: Request, why: str) -> Unreachable:
        return Unreachable(f"{request.doing} at {self.host}: {why}")

    async def _read(self, request: Request, authorization: str | None) -> bytes:
        response = await self._send(request, authorization)
        try:
            return await response.read_all()
        finally:
            response.close()

    async def _send(self, request: Request, authorization: str | None) -> OpenResponse:
        """Return the open response to a request. Raises OSError, and Refusal for a 4xx or 5xx."""
        headers = self._headers | {"Accept": request.accept}
        if authorization is not None:
            headers = {**headers, "Authorization": authorization}
        if request.body is not None:
            headers = {**headers, "Content-Type": request.content_type}
        response: OpenResponse
        if self._proxied is not None:
            response = await self._proxied.begin(request, headers)
        else:
            access = self._credentials.access
            if access is not self._access:
                self._connect_to(access)
            response = await self._connections.begin(
                self._address,
                self._encoded(request, headers),
                is_repeatable=request.method in _REPEATABLE,
            )
        if response.status < _CLIENT_ERROR:
            return response
        try:
            body = await response.read_all()
        finally:
            response.close()
        raise refusal(request.doing, read_status(response.status, body), response.headers)

    def _connect_to(self, access: Access) -> None:
        """Use new connections: access may lead elsewhere, and a certificate is sent on these only.

        Raises Broken for an address that is none.
        """
        try:
            at = urlsplit(access.host)
            port = at.port or _PORTS[at.scheme]
        except (ValueError, KeyError) as exc:
            raise Broken(f"{access.host} is no address of an API server: {exc}") from exc
        host = at.hostname or ""
        tls = self._credentials.tls if at.scheme == "https" else None
        self._address = Address(host, port, tls, access.server_name or host)
        self._host = at.netloc.rpartition("@")[2]
        self._prefix = at.path.rstrip("/")
        self._access = access
        self._connections.renew()

    def _encoded(self, request: Request, headers: Mapping[str, str]) -> bytes:
        query = f"?{urlencode(request.query)}" if request.query else ""
        head = f"{request.method} {self._prefix}{request.path}{query} HTTP/1.1\r\n"
        head += f"Host: {self._host}\r\n"
        for name, value in headers.items():
            if not value.isprintable():
                raise Broken(f"{request.doing}: the header {name} has a line break or the like")
            head += f"{name}: {value}\r\n"
        if request.body is None:
            return f"{head}\r\n".encode()
        return f"{head}Content-Length: {len(request.body)}\r\n\r\n".encode() + request.body


async def open_transport(
    source: Source,
    *,
    user_agent: str,
    clock: Clock,
    max_connections: int = 2,
    request_timeout_s: float = 30.0,
    limiter: RateLimiter | None = None,
) -> HttpTransport:
    """Return the transport to a cluster, through a proxy where one is configured.

    A watch holds one of `max_connections`. Loads credentials, which may run a plugin, but sends
    nothing. Raises what the source raises, and Rejected for a proxy that speaks no HTTP.
    """
    credentials = await Credentials.open(source, clock=clock)
    proxied = None
    if proxy := credentials.access.proxy or proxy_of_environment(credentials.host):
        # aiohttp takes longer to import than a short command takes in all.
        from shared.kube.proxied import ProxiedConnections

        proxied = ProxiedConnections(credentials, proxy=proxy, max_connections=max_connections)
    return HttpTransport(
        credentials,
        proxied=proxied,
        user_agent=user_agent,
        max_connections=max_connections,
        timeout_s=request_timeout_s,
        limiter=limiter,
    )


def proxy_of_environment(host: str) -> str | None:
    """Return the proxy that HTTPS_PROXY or HTTP_PROXY name for an address, None for none.

    As with Go's client, NO_PROXY names exceptions, and a loopback address is one. Raises Rejected
    for a proxy that speaks something else than HTTP.
    """
    address = urlsplit(host)
    if is_loopback(host) or proxy_bypass(address.hostname or ""):
        return None
    proxy = getproxies().get(address.scheme)
    if proxy and "://" not in proxy:
        proxy = f"http://{proxy}"
    if proxy and urlsplit(proxy).scheme not in {"http", "https"}:
        name = f"{address.scheme.upper()}_PROXY"
        raise Rejected(f"{name}: only proxies with http:// or https:// are supported", field=name)
    return proxy or None
