"""Kept-alive HTTP/1.1 connections to one server: a bounded pool over asyncio's transports.

llhttp (`httptools`) is the parser; the rest is what a client of one API server needs. ADR 40 says
why it is not aiohttp: twice the CPU per request, and an import that takes longer than a command.

All failures are OSErrors: no connection, one that breaks, an answer that is not HTTP.
"""

import asyncio
import os
import socket
import ssl
from collections import deque
from typing import Final, NamedTuple

import httptools
from typing_extensions import override

CONNECT_S: Final = 10.0
KEEP_ALIVE_S: Final = 30.0
"""Below the API server's own idle limit, so that we close an idle connection first."""
_SECOND_FAMILY_S: Final = 0.25
"""How long IPv6 is tried alone where a name has both (RFC 8305)."""
READ_AHEAD: Final = 1 << 18
"""Bytes of a stream that are kept for a slow reader before the server has to wait."""
HEAD_MAX: Final = 1 << 18
"""Bytes of an answer that may come without a body: its head, a trailer, a chunk's extension."""
_FINAL: Final = 200
"""Answers with a lower status announce another one."""


class Address(NamedTuple):
    """Where a server listens, and how to speak TLS with it, if at all."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    server_name: str
    """The name that the server's certificate is for."""


class ConnectionEndedError(ConnectionError):
    """A connection that broke before the end of a response."""


class Connections:
    """A pool of connections; at most `limit` answers are open, further requests wait in order."""

    def __init__(self, *, limit: int) -> None:
        self.is_closed = False
        self._turns = asyncio.Semaphore(limit)
        self._open: set[_Connection] = set()
        self._idle: deque[_Connection] = deque()
        """The one that was used last is at the end, and used first."""
        self._sweep: asyncio.TimerHandle | None = None

    async def begin(self, address: Address, request: bytes, *, is_repeatable: bool) -> "Response":
        """Send a request; return when the head of its answer is there. The caller closes it.

        A request that `is_repeatable` is sent once more when a kept connection turns out to be
        closed. Raises OSError.
        """
        await self._turns.acquire()
        try:
            connection = self._take()
            may_repeat = is_repeatable and connection is not None
            while True:
                if connection is None:
                    connection = await self._connect(address)
                try:
                    await connection.send(request)
                except BaseException as exc:
                    self._drop(connection)
                    is_closed = isinstance(exc, ConnectionEndedError)
                    if not may_repeat or not is_closed or connection.has_answered:
                        raise
                    connection, may_repeat = None, False
                else:
                    return Response(self, connection)
        except BaseException:
            self._turns.release()
            raise

    def finish(self, connection: "_Connection") -> None:
        """Keep a connection for the next request if its answer was read to the end."""
        self._turns.release()
        if not connection.is_reusable or connection.is_outdated or self.is_closed:
            self._drop(connection)
            return
        loop = asyncio.get_running_loop()
        connection.is_in_use = False
        connection.idle_since_s = loop.time()
        self._idle.append(connection)
        if self._sweep is None:
            self._sweep = loop.call_later(KEEP_ALIVE_S, self._sweep_idle)

    def renew(self) -> None:
        """Use new connections from now on; answers that are open may come to their end."""
        self._close_idle(0.0)
        for connection in self._open:
            connection.is_outdated = True

    def close(self) -> None:
        """Close all connections: answers that are open fail, and so does each later request."""
        self.is_closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in self._open:
            connection.abort()

    async def _connect(self, address: Address) -> "_Connection":
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_S):
                _, connection = await loop.create_connection(
                    _Connection,
                    address.host,
                    address.port,
                    ssl=address.tls,
                    server_hostname=address.server_name if address.tls else None,
                    happy_eyeballs_delay=_SECOND_FAMILY_S,
                )
        except TimeoutError as exc:
            raise ConnectionEndedError(f"no connection in {CONNECT_S:g} s") from exc
        except OSError as exc:
            if exc.errno is None or isinstance(exc, ssl.SSLError | socket.gaierror):
                raise  # several attempts, TLS, or a name: these say what was wrong
            raise OSError(exc.errno, os.strerror(exc.errno)) from exc
        self._open.add(connection)
        if self.is_closed:
            connection.abort()
        return connection

    def _take(self) -> "_Connection | None":
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
            self._open.discard(connection)
        return None

    def _drop(self, connection: "_Connection") -> None:
        connection.abort()
        self._open.discard(connection)

    def _sweep_idle(self) -> None:
        self._close_idle(KEEP_ALIVE_S)
        self._sweep = None
        if self._idle:
            due_s = self._idle[0].idle_since_s + KEEP_ALIVE_S
            self._sweep = asyncio.get_running_loop().call_at(due_s, self._sweep_idle)

    def _close_idle(self, kept_s: float) -> None:
        """Close the connections that have been idle for as long."""
        now = asyncio.get_running_loop().time()
        while self._idle and now >= self._idle[0].idle_since_s + kept_s:
            self._drop(self._idle.popleft())


class Response:
    """A response that is read while it arrives."""

    def __init__(self, pool: Connections, connection: "_Connection") -> None:
        self.status = connection.status
        self.headers = connection.headers
        """Their names are in lower case."""
        self._pool = pool
        self._connection: _Connection | None = connection

    @property
    def is_whole(self) -> bool:
        """Whether the answer has come to its end, read or not."""
        return self._connection is None or self._connection.is_whole

    async def read(self) -> bytes:
        """Return the next bytes, b"" at the end. Raises OSError when the connection breaks."""
        return b"" if self._connection is None else await self._connection.piece()

    async def read_all(self) -> bytes:
        """Return all bytes that were not read yet. Raises OSError when the connection breaks."""
        return b"" if self._connection is None else await self._connection.rest()

    def close(self) -> None:
        """Give the connection back; it is closed if the answer has not come to its end."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._pool.finish(connection)


class _Connection(asyncio.Protocol):
    """One connection, which carries one request at a time, and one reader of its answer."""

    def __init__(self) -> None:
        self.idle_since_s = 0.0
        self.is_open = True
        self.is_in_use = False
        self.is_outdated = False
        self._parser = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[None] | None = None
        self._begin_response()

    def _begin_response(self) -> None:
        self.has_answered = False
        """Something has come of the present answer."""
        self.is_reusable = False
        """The present answer is whole, and another request may follow it."""
        self.status = 0
        self.headers: dict[str, str] = {}
        self._pieces: list[bytes] = []
        self._held = 0
        """Bytes in `_pieces`."""
        self._without_body = 0
        """Bytes that arrived since the last piece of a body, or the last end of a head."""
        self._is_paused = False
        self.is_whole = False
        self._is_awaited_whole = False
        self._ends_with_connection = False
        self._failure = ""

    async def send(self, request: bytes) -> None:
        """Send a request and wait for the head of its answer."""
        self._begin_response()
        self.is_in_use = True
        if self.is_open:
            self._transport.write(request)
        else:
            self._failure = "the connection is closed"
        while not self.status:
            await self._news()

    async def piece(self) -> bytes:
        """Return what has come of the body since the last call, b"" at its end."""
        while not self._pieces and not self.is_whole:
            await self._news()
        pieces, self._pieces, self._held = self._pieces, [], 0
        self._resume()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def rest(self) -> bytes:
        """Return the rest of the body."""
        self._is_awaited_whole = True
        self._resume()
        while not self.is_whole:
            await self._news()
        return await self.piece()

    def abort(self) -> None:
        """Close at once; a reader of it sees a break."""
        self.is_open = False
        self._transport.abort()

    def _resume(self) -> None:
        if self._is_paused and self.is_open:
            self._is_paused = False
            self._transport.resume_reading()

    async def _news(self) -> None:
        if self._failure:
            raise ConnectionEndedError(self._failure)
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    @override
    def data_received(self, data: bytes) -> None:
        if not self.is_in_use:
            self.abort()
            return
        self.has_answered = True
        self._without_body += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as exc:
            self._fail(f"the answer is not HTTP/1.1: {exc}")
            self.abort()
        if self._without_body > HEAD_MAX and not self.is_whole:
            self._fail(f"the head of the answer is larger than {HEAD_MAX} bytes")
            self.abort()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = self.is_reusable = False
        if exc is None and self.status and self._ends_with_connection:
            self.is_whole = True
            self._wake()
        else:
            self._fail(str(exc) if exc else "the server closed the connection before its answer")

    def _fail(self, why: str) -> None:
        if not self.is_whole:
            self._failure = why
            self._wake()

    # The parser calls these.

    def on_message_begin(self) -> None:
        """Keep no connection on which more arrives than one response per request."""
        self.is_reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header of the head; a trailer is of no use here."""
        if self.status or self.is_whole:
            return
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Let the reader go on with the body, unless another answer is to follow."""
        self._without_body = 0
        status = self._parser.get_status_code()
        if status >= _FINAL and not self.is_whole:
            frames = self.headers.keys() & {"content-length", "transfer-encoding"}
            self._ends_with_connection = not frames
            self.status = status
            self._wake()

    def on_body(self, body: bytes) -> None:
        """Keep a piece of the body, and let the server wait for a reader that is far behind."""
        self._without_body = 0
        if self.is_whole:
            return
        self._pieces.append(body)
        self._held += len(body)
        if self._is_awaited_whole:
            return
        if self._held > READ_AHEAD and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def on_message_complete(self) -> None:
        """Note the end of the answer."""
        if not self.status:
            self.headers = {}
        elif not self.is_whole:
            self.is_whole = True
            self.is_reusable = self._parser.should_keep_alive()
            # The next answer has to be read, even if the rest of this one is never read.
            self._resume()
            self._wake()
