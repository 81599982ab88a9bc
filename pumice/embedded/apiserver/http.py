"""HTTPS on the loopback in front of the core: authentication, streams, and the core's timers.

aiohttp's plain server without its router: the core routes. A client shows a certificate of the
local authority or the token of the kubeconfig; without either it gets the health and the version of
the server and nothing else.
"""

import asyncio
import contextlib
import hmac
import ssl
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import aiohttp
from aiohttp import web
from typing_extensions import override

from pumice.embedded.apiserver.admission import AdmissionResponse, Call
from pumice.embedded.apiserver.aggregation import ProxiedRequest
from pumice.embedded.apiserver.core import ApiServer, Outcome
from pumice.embedded.apiserver.front_proxy import FrontProxy
from pumice.embedded.apiserver.journal import StoreJournal
from pumice.embedded.apiserver.replies import ApiReply, ApiRequest, RequestFailure
from pumice.embedded.apiserver.watching import Watch
from shared.runtime.tasks import TaskGroup
from shared.serving.bodies import BodyTooLargeError, read_body

LARGEST_BODY: Final = 3 << 20
"""Bytes of a request, as kube-apiserver limits it."""
_LONGEST_WAIT_S: Final = 5.0
_ANONYMOUS_PATHS: Final = frozenset(("/healthz", "/readyz", "/livez", "/version"))
_CHUNK_EVENTS: Final = 512
_KEEP_ALIVE_S: Final = 120.0
_JSON: Final = {"Content-Type": "application/json"}


class HttpFrontend:
    """The HTTPS server of one core."""

    def __init__(
        self,
        core: ApiServer,
        *,
        token: str,
        journal: StoreJournal | None = None,
        front_proxy: FrontProxy | None = None,
    ) -> None:
        self._core = core
        self._front_proxy = front_proxy or FrontProxy(core.aggregation, cert="", key="")
        self._token = f"Bearer {token}".encode()
        self._journal = journal
        self._wake = asyncio.Event()
        self._waits_until = 0.0
        self._webhooks: aiohttp.ClientSession | None = None

    async def serve(self, *, host: str, port: int, tls: ssl.SSLContext) -> None:
        """Serve until cancelled."""
        server = web.Server(self._respond, access_log=None, keepalive_timeout=_KEEP_ALIVE_S)
        runner = web.ServerRunner(server)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port, ssl_context=tls, backlog=512).start()
            async with aiohttp.ClientSession() as self._webhooks, TaskGroup() as tasks:
                tasks.create_task(self._front_proxy.run(), name="front-proxy")
                await self._run_timers()
        finally:
            self._core.end_watches()
            await runner.cleanup()
            if self._journal is not None:
                self._journal.flush()

    async def _run_timers(self) -> None:
        while True:
            self._wake.clear()
            self._core.tick()
            if self._journal is not None:
                self._journal.flush()
            now = time.time()
            due = self._core.due_at()
            self._waits_until = min(now + _LONGEST_WAIT_S, due if due is not None else now + 60)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self._waits_until - now)):
                    await self._wake.wait()

    def _wake_timers(self) -> None:
        """Run the timers sooner when a request has made one due before the planned time."""
        due = self._core.due_at()
        if due is not None and due < self._waits_until:
            self._wake.set()

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        is_authenticated = self._is_authenticated(request)
        if not (request.path in _ANONYMOUS_PATHS or is_authenticated):
            return _last(RequestFailure(401, "Unauthorized", "Unauthorized").response())
        try:
            # Read bodies of authenticated clients only, so that others cannot fill the memory.
            body = await read_body(request, most=LARGEST_BODY) if is_authenticated else b""
        except BodyTooLargeError:
            message = f"the body is larger than {LARGEST_BODY} bytes"
            return _last(RequestFailure(413, "RequestEntityTooLarge", message).response())
        outcome = await self._execute(
            ApiRequest(
                method=request.method,
                path=request.path,
                query=dict(request.query),
                headers=_Headers(request.headers),
                body=body,
            )
        )
        if isinstance(outcome, Watch):
            return await self._stream(request, outcome)
        if isinstance(outcome, ProxiedRequest):
            return await self._front_proxy.forward(request, outcome)
        if request.method != "GET":
            self._wake_timers()
        return _plain(outcome)

    def _is_authenticated(self, request: web.BaseRequest) -> bool:
        given = request.headers.get("Authorization", "").encode()
        if given:
            return hmac.compare_digest(given, self._token)
        transport = request.transport
        return bool(transport is not None and transport.get_extra_info("peercert"))

    async def _execute(self, request: ApiRequest) -> Outcome:
        steps = self._core.steps(request)
        try:
            call = next(steps)
            while True:
                call = steps.send(await self._call_webhook(call))
        except StopIteration as done:
            outcome: Outcome = done.value
            return outcome

    async def _call_webhook(self, call: Call) -> AdmissionResponse:
        """Return the reply of one webhook, or its error."""
        if not call.url:
            return AdmissionResponse(
                error=f"service {call.service}: there is no cluster network here"
            )
        assert self._webhooks is not None
        trusted = ssl.create_default_context(cadata=call.ca.decode() or None)
        trusted.verify_flags &= ~ssl.VERIFY_X509_STRICT  # Go is not as strict as Python 3.13
        try:
            async with (
                asyncio.timeout(call.timeout_s),
                self._webhooks.post(
                    call.url, data=call.body, headers=_JSON, ssl=trusted
                ) as response,
            ):
                body = await response.read()
                if not response.ok:
                    return AdmissionResponse(error=f"an error on the server ({response.status})")
                return AdmissionResponse(body=body)
        except TimeoutError:
            return AdmissionResponse(error=f'Post "{call.url}": context deadline exceeded')
        except (aiohttp.ClientError, OSError) as exc:
            return AdmissionResponse(error=f'Post "{call.url}": {exc}')

    async def _stream(self, request: web.BaseRequest, watch: Watch) -> web.StreamResponse:
        changed = asyncio.Event()
        watch.on_change(changed.set)
        response = web.StreamResponse(headers=_JSON)
        response.enable_chunked_encoding()
        self._wake_timers()
        try:
            await response.prepare(request)
            while True:
                changed.clear()
                lines = watch.take()
                for start in range(0, len(lines), _CHUNK_EVENTS):
                    await response.write(b"".join(lines[start : start + _CHUNK_EVENTS]))
                if watch.ended and not lines:
                    break
                if not watch.ended:
                    await changed.wait()
            await response.write_eof()
        except (ConnectionError, aiohttp.ClientConnectionError):
            pass  # the client has closed the connection
        finally:
            watch.close()
        return response


class _Headers(Mapping[str, str]):
    """aiohttp's headers, which ignore case, as a plain mapping."""

    def __init__(self, headers: Any) -> None:  # noqa: ANN401 - a CIMultiDictProxy
        self._headers = headers

    @override
    def __getitem__(self, name: str) -> str:
        value: str = self._headers[name]
        return value

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._headers)

    @override
    def __len__(self) -> int:
        return len(self._headers)


def _plain(response: ApiReply) -> web.Response:
    return web.Response(status=response.status, headers=dict(response.headers), body=response.body)


def _last(response: ApiReply) -> web.Response:
    """Return a response to a request whose body is not read, and close its connection."""
    reply = _plain(response)
    reply.force_close()
    return reply


def tls_of(*, cert: str, key: str, client_ca: str) -> ssl.SSLContext:
    """Return a server's TLS settings that request, and check, client certificates."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=client_ca)
    context.load_cert_chain(cert, key)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context
