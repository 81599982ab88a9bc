"""`HttpsServer`: an HTTPS socket with bounds on connections and on the bytes of requests.

A body has to arrive without long pauses. Large ones are read a few at a time, as an object takes
much more room than its text. The service adds its routes to `router` before `start`.
"""

import asyncio
import errno
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from shared.runtime.errors import Rejected
from shared.runtime.health import ReadinessGate
from shared.runtime.logs import Logger
from shared.serving.connections import ByteBudget, ConnectionLimits, SocketListener

BODY_MAX: Final = 3 * 1024 * 1024
"""As Volcano's (W02); the API server's own bound on an object is the same."""
SMALL: Final = 32 * 1024
"""Bytes up to which a body is read without waiting for its turn."""
LARGE_MOST: Final = 2 * BODY_MAX
"""Bytes of larger bodies that are held at once."""
_UNREAD: Final = 16 * 1024
"""Bytes of a connection that are taken before the request is read."""
_PAUSE_S: Final = 2.0
"""A body whose next bytes take longer is given up: the API server sends it in one go."""
_BODY_S: Final = 10.0
_SHUTDOWN_S: Final = 2.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HttpsServer:
    """A socket and the HTTP side of it; a part of a service that runs until it is cancelled."""

    def __init__(
        self,
        name: str,
        *,
        context: Callable[[], ssl.SSLContext],
        limits: ConnectionLimits,
        dropped: Callable[[str], None],
        gate: ReadinessGate,
        log: Logger,
    ) -> None:
        """Take the bounds; `dropped` counts connections by why they were ended."""
        self.name = name
        self._gate = gate
        self._log = log
        self._large = ByteBudget(LARGE_MOST)
        application = web.Application(middlewares=[self._watched])
        self.router = application.router
        self._runner = web.AppRunner(
            application,
            access_log=None,
            shutdown_timeout=_SHUTDOWN_S,
            auto_decompress=False,
            read_bufsize=_UNREAD,
        )
        self._listener = SocketListener(
            self._protocol, context=context, limits=limits, dropped=dropped, log=log
        )

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port. Raises Rejected when the port is taken."""
        await self._runner.setup()
        try:
            bound = self._listener.bind(host, port)
        except OSError as error:
            await self._runner.cleanup()
            raise Rejected(_refusal(host, port, error), field="port") from error
        self._gate.set(ok=True)
        self._log.info(f"{self.name}_listening", address=f"{host or '*'}:{bound}")
        return bound

    async def run(self) -> None:
        """Serve until cancelled, then finish what was begun."""
        try:
            await self._listener.run()
        finally:
            self._listener.stop()
            async with asyncio.timeout(2 * _SHUTDOWN_S):
                await self._runner.cleanup()
                await self._listener.close()

    @asynccontextmanager
    async def body(self, request: web.Request) -> AsyncIterator[bytes]:
        """Hold the body of a request, whose bytes count until the block ends.

        Raises TimeoutError when it does not arrive, and HTTPRequestEntityTooLarge.
        """
        length = BODY_MAX if request.content_length is None else request.content_length
        if length > BODY_MAX:
            raise web.HTTPRequestEntityTooLarge(max_size=BODY_MAX, actual_size=length)
        async with asyncio.timeout(_BODY_S) as limit, self._room(length):
            body = await self._read(request, length)
            limit.reschedule(None)  # what follows has limits of its own
            yield body

    @asynccontextmanager
    async def _room(self, length: int) -> AsyncIterator[None]:
        """Wait until the bytes of a large body may be held."""
        if length <= SMALL:
            yield
            return
        await self._large.take(length)
        try:
            yield
        finally:
            self._large.release(length)

    async def _read(self, request: web.Request, most: int) -> bytes:
        body = bytearray()
        while True:
            async with asyncio.timeout(_PAUSE_S):
                chunk = await request.content.readany()
            if not chunk:
                self._listener.request_received(request.transport)
                return bytes(body)
            body += chunk
            if len(body) > most:
                raise web.HTTPRequestEntityTooLarge(max_size=most, actual_size=len(body))

    def _protocol(self) -> asyncio.Protocol:
        server = self._runner.server
        assert server is not None, "set up before it listens"
        return server()

    @web.middleware
    async def _watched(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Tell the listener how far a request has come."""
        transport = request.transport
        self._listener.request_started(transport)
        try:
            return await handler(request)
        finally:
            self._listener.request_answered(transport)


def _refusal(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is taken: choose another with --port"
    why = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
    return f"cannot listen at {host or '*'}:{port}: {why}"
