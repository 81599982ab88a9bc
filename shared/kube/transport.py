"""One HTTP exchange with the API server: session, header, time-out, translation of failures.

Used by `client` (whole answers) and by `listwatch` (answers that never end). A request is sent
once; the only repetition is after a 401, with a credential that was renewed for it, because the
caller cannot know about credentials. aiohttp itself repeats an idempotent request once when a
kept-alive connection turns out to be closed.
"""

import asyncio
import io
from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from yarl import URL

from shared.kube.credentials import Credentials, is_loopback
from shared.kube.errors import UNAUTHORIZED, Refusal, Silence, Unreachable, read_status, refusal
from shared.kube.wire import JSON, Request
from shared.runtime.errors import Broken, Rejected, Retryable


class RateLimiter:
    """Lets `burst` requests through at once, then `qps` per second, first come first served.

    Volcano's `--kube-api-qps` and `--kube-api-burst`. Off by default: the API server protects
    itself (priority and fairness, 429), and a fixed rate in the client only adds waiting. It is
    kept for clusters whose administrators want a bound.
    """

    def __init__(self, *, qps: float, burst: int) -> None:
        self._interval_s = 1 / qps if qps > 0 else 0.0
        self._tolerance_s = self._interval_s * (max(burst, 1) - 1)
        self._due = 0.0

    async def admit(self) -> None:
        """Return when the next request may go out. A cancelled waiter's turn is not given back."""
        if not self._interval_s:
            return
        now = asyncio.get_running_loop().time()
        turn = max(self._due, now - self._tolerance_s)
        self._due = turn + self._interval_s
        wait_s = turn - now
        if wait_s > 0:
            await asyncio.sleep(wait_s)


_LARGE_BODY: Final = 1 << 20
_READ_BUFFER: Final = 1 << 18
_KEEP_ALIVE_S: Final = 30.0
"""Below the API server's own idle limit, so that we close an idle connection first."""
_CLIENT_ERROR: Final = 400


class HttpStream:
    """An answer that is read while it arrives (a watch)."""

    def __init__(self, answer: aiohttp.ClientResponse, doing: str) -> None:
        self._answer = answer
        self._doing = doing

    async def read(self, *, silence_s: float) -> bytes:
        """Return the next bytes, b"" at the orderly end.

        Raises Unreachable when the connection breaks, Silence when nothing comes for `silence_s`.
        """
        try:
            async with asyncio.timeout(silence_s):
                return await self._answer.content.readany()
        except TimeoutError as exc:
            raise Silence(f"{self._doing}: no byte for {silence_s:g} s") from exc
        except (aiohttp.ClientError, OSError) as exc:
            raise Unreachable(f"{self._doing}: {_text(exc)}") from exc

    def close(self) -> None:
        """Drop the connection: an unfinished answer cannot be reused."""
        self._answer.close()


class HttpTransport:
    """The session to one API server, with its credentials and limits."""

    def __init__(
        self,
        *,
        credentials: Credentials,
        session: aiohttp.ClientSession,
        limiter: RateLimiter,
        user_agent: str,
        timeout_s: float,
    ) -> None:
        self._credentials = credentials
        self._session = session
        self._limiter = limiter
        self._timeout_s = timeout_s
        self._proxy_of_environment = proxy_of_environment(credentials.host)
        # No compression: the server spends more time on gzip than a cluster network on bytes.
        self._headers = {"User-Agent": user_agent, "Accept": JSON, "Accept-Encoding": "identity"}

    @property
    def host(self) -> str:
        """Return the API server's address, for messages."""
        return self._credentials.host

    async def exchange(self, request: Request) -> bytes:
        """Send a request and return the body of its answer.

        Raises the errors of `shared.kube.errors`; Unreachable also after `timeout_s`, when the
        server may or may not have done what was asked.
        """
        await self._limiter.admit()
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await self._send(request)
                async with answer:
                    return await answer.read()
        except TimeoutError as exc:
            raise Unreachable(f"{request.doing}: no answer in {self._timeout_s:g} s") from exc
        except (aiohttp.ClientError, OSError) as exc:
            raise self._unreachable(request, exc) from exc

    async def open(self, request: Request) -> HttpStream:
        """Send a request and return its answer as a stream, which the caller closes.

        Raises what `exchange` raises; the time-out covers the headers only.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                return HttpStream(await self._send(request), request.doing)
        except TimeoutError as exc:
            raise Unreachable(f"{request.doing}: no answer in {self._timeout_s:g} s") from exc
        except (aiohttp.ClientError, OSError) as exc:
            raise self._unreachable(request, exc) from exc

    async def close(self) -> None:
        """Close all connections. Requests that come later are Unreachable: a service is ending."""
        await self._session.close()

    async def _send(self, request: Request) -> aiohttp.ClientResponse:
        authorization = await self._credentials.authorization()
        try:
            return await self._send_as(authorization, request)
        except Refusal as exc:
            if exc.status.code != UNAUTHORIZED or not await self._credentials.refused(
                authorization
            ):
                raise
        return await self._send_as(await self._credentials.authorization(), request)

    async def _send_as(self, authorization: str | None, request: Request) -> aiohttp.ClientResponse:
        headers = dict(self._headers)
        if authorization is not None:
            headers["Authorization"] = authorization
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        access = self._credentials.access
        if self._session.closed:  # aiohttp has a RuntimeError for it, as for a mistake of ours
            raise Unreachable(f"{request.doing} at {self.host}: this client is closed")
        answer = await self._session.request(
            request.method,
            self._url(request),
            headers=headers,
            data=_payload(request.body),
            proxy=access.proxy or self._proxy_of_environment,
            server_hostname=access.server_name,
            allow_redirects=False,
        )
        if answer.status < _CLIENT_ERROR:
            return answer
        async with answer:
            body = await answer.read()
        raise refusal(request.doing, read_status(answer.status, body), answer.headers)

    def _url(self, request: Request) -> URL:
        url = URL(self._credentials.host + request.path, encoded=True)
        return url.with_query(request.query) if request.query else url

    def _unreachable(self, request: Request, exc: Exception) -> Retryable:
        if isinstance(exc, aiohttp.InvalidURL):
            raise Broken(f"{request.doing}: {exc}") from exc
        return Unreachable(f"{request.doing} at {self.host}: {_text(exc)}")


def open_session(credentials: Credentials, *, max_connections: int) -> aiohttp.ClientSession:
    """Return a session with a bounded pool of kept-alive connections.

    aiohttp's `trust_env` stays off: it would look for a proxy and for an account in `~/.netrc`, in
    two threads, at each request, and an account there forbids an Authorization of ours.
    """
    connector = aiohttp.TCPConnector(
        limit=max_connections, keepalive_timeout=_KEEP_ALIVE_S, ssl=credentials.tls
    )
    return aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=10.0),
        cookie_jar=aiohttp.DummyCookieJar(),
        read_bufsize=_READ_BUFFER,
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


def _payload(body: bytes | None) -> bytes | io.BytesIO | None:
    """Return a body as aiohttp takes it without a warning: beyond 1 MiB in pieces."""
    return io.BytesIO(body) if body is not None and len(body) > _LARGE_BODY else body


def _text(exc: Exception) -> str:
    """Return a library's message, or its name where it has none (a reset connection)."""
    return str(exc) or type(exc).__name__
