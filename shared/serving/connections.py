"""Accepts connections within bounds, so that no caller can hold or fill this process.

The API server is the one caller that there should be, and all its requests are whole within
milliseconds. So a connection has little time for its TLS handshake and for each request's head, and
one that says nothing for long is closed. Where there are too many, the one goes that has been
waiting longest: a caller that holds connections open displaces its own. Used by `server`, which
says when a request begins and ends.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Collection
from typing import Any, Final

import msgspec
from typing_extensions import override

from shared.runtime.logs import Logger

_BACKLOG: Final = 128
_RETRY_S: Final = 0.1
"""Wait after an accept that failed, such as for want of file descriptors."""
_TLS_SHUTDOWN_S: Final = 1.0


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of what one caller may take."""

    connections: int = 256
    handshake_s: float = 5.0
    head_s: float = 5.0
    """From the first byte of a request, or from the handshake, to the end of its head."""
    idle_s: float = 90.0
    """Between two requests; the API server drops idle connections after 90 s."""
    client_names: Collection[str] = ()
    """Common names of client certificates that are let in; empty: all that the CA signed."""


class _Connection:
    """One connection from its first packet to its last."""

    def __init__(self, task: asyncio.Task[None], accepted: socket.socket) -> None:
        self.task = task
        self.accepted = accepted
        self.transport: asyncio.Transport | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.is_idle = False
        """Whether the last request is answered and the next one has not begun."""

    def drop(self) -> None:
        """End it at once."""
        self.cancel_timer()
        if self.transport is not None:
            self.transport.abort()
        else:
            self.task.cancel()

    def cancel_timer(self) -> None:
        """Forget the time limit that runs."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class _Guard(asyncio.Protocol):
    """Passes all calls to the HTTP protocol, and reports bytes and handshakes to the listener."""

    def __init__(
        self, inner: asyncio.Protocol, listener: "SocketListener", mine: _Connection
    ) -> None:
        self._inner = inner
        self._listener = listener
        self._mine = mine
        self.closed = asyncio.Event()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), "a stream has a stream's transport"
        self._mine.transport = transport
        self._inner.connection_made(transport)
        self._listener.handshake_done(self._mine)

    @override
    def data_received(self, data: bytes) -> None:
        self._listener.bytes_received(self._mine)
        self._inner.data_received(data)

    @override
    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()
        self._inner.connection_lost(exc)

    @override
    def pause_writing(self) -> None:
        self._inner.pause_writing()

    @override
    def resume_writing(self) -> None:
        self._inner.resume_writing()


class SocketListener:
    """The connections of a server's socket, within bounds."""

    def __init__(
        self,
        protocol: Callable[[], asyncio.Protocol],
        *,
        context: Callable[[], ssl.SSLContext],
        limits: ConnectionLimits,
        dropped: Callable[[str], None],
        log: Logger,
    ) -> None:
        """`protocol` makes the HTTP side; `dropped` counts connections by why they were ended."""
        self._protocol = protocol
        self._context = context
        self._limits = limits
        self._dropped = dropped
        self._log = log
        self._all: dict[asyncio.Task[None], _Connection] = {}
        self._waiting: dict[_Connection, None] = {}
        """Those without a request that is being answered, the longest waiting first."""
        self._by_transport: dict[asyncio.Transport, _Connection] = {}
        self._sockets: list[socket.socket] = []

    def bind(self, host: str, port: int) -> int:
        """Take the port, on every interface without a host; returns it. Raises OSError."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        dual = not host and socket.has_dualstack_ipv6()
        bound = socket.create_server(
            (host, port),
            family=socket.AF_INET6 if dual else family,
            backlog=_BACKLOG,
            dualstack_ipv6=dual,
        )
        bound.settimeout(0)
        self._sockets.append(bound)
        number: int = bound.getsockname()[1]
        return number

    async def run(self) -> None:
        """Accept until cancelled; connections live on until `close`."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(self._sockets[0])
            except OSError as error:
                self._log.warning("accept_failed", reason=str(error))
                await asyncio.sleep(_RETRY_S)
                continue
            if not self._make_room():
                accepted.close()
                continue
            task = loop.create_task(self._serve(accepted), name="connection")
            connection = self._all[task] = _Connection(task, accepted)
            self._waiting[connection] = None
            task.add_done_callback(self._forget)

    def stop(self) -> None:
        """Take no further connections."""
        for bound in self._sockets:
            bound.close()
        self._sockets.clear()

    async def close(self) -> None:
        """End all connections."""
        tasks = list(self._all)
        for connection in list(self._all.values()):
            connection.drop()
        if tasks:
            await asyncio.wait(tasks)

    def request_started(self, transport: asyncio.BaseTransport | None) -> None:
        """Record that the head of a request is there."""
        if (connection := self._of(transport)) is not None:
            connection.cancel_timer()

    def request_received(self, transport: asyncio.BaseTransport | None) -> None:
        """Record that a request is there whole: its connection is not dropped for others."""
        if (connection := self._of(transport)) is not None:
            self._waiting.pop(connection, None)

    def request_answered(self, transport: asyncio.BaseTransport | None) -> None:
        """Record that a request is answered."""
        if (connection := self._of(transport)) is not None and connection.task in self._all:
            connection.is_idle = True
            self._wait(connection, self._limits.idle_s, "idle")

    def handshake_done(self, connection: _Connection) -> None:
        """Record a handshake that is done."""
        assert connection.transport is not None, "just made"
        self._by_transport[connection.transport] = connection
        if not self._is_known(connection.transport):
            self._drop(connection, "stranger")
            return
        self._wait(connection, self._limits.head_s, "slow")

    def bytes_received(self, connection: _Connection) -> None:
        """Record bytes: after an answer they are the beginning of the next request."""
        if connection.is_idle:
            connection.is_idle = False
            self._wait(connection, self._limits.head_s, "slow")

    async def _serve(self, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None, "runs as a task"
        guard = _Guard(self._protocol(), self, self._all[task])
        try:
            accepted.settimeout(0)
            await loop.connect_accepted_socket(
                lambda: guard,
                accepted,
                ssl=self._context(),
                ssl_handshake_timeout=self._limits.handshake_s,
                ssl_shutdown_timeout=_TLS_SHUTDOWN_S,
            )
        except (OSError, ssl.SSLError) as error:
            self._dropped("handshake")
            self._log.debug("handshake_failed", reason=str(error))
            return
        await guard.closed.wait()

    def _forget(self, task: asyncio.Task[None]) -> None:
        connection = self._all.pop(task)
        connection.cancel_timer()
        self._waiting.pop(connection, None)
        if connection.transport is not None:
            self._by_transport.pop(connection.transport, None)
        else:
            connection.accepted.close()  # its task may have been cancelled before it began
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.warning("connection_failed", reason=f"{type(error).__name__}: {error}")

    def _make_room(self) -> bool:
        """Have a free place for one more; False when all are at work."""
        if len(self._all) < self._limits.connections:
            return True
        oldest = next(iter(self._waiting), None)
        if oldest is None:
            self._dropped("busy")
            return False
        self._drop(oldest, "displaced")
        return True

    def _wait(self, connection: _Connection, limit_s: float, why: str) -> None:
        """Count a connection as waiting from now on, and no longer than so."""
        connection.cancel_timer()
        self._waiting.pop(connection, None)
        self._waiting[connection] = None
        loop = asyncio.get_running_loop()
        connection.timer = loop.call_later(limit_s, self._drop, connection, why)

    def _drop(self, connection: _Connection, why: str) -> None:
        self._waiting.pop(connection, None)
        self._dropped(why)
        connection.drop()

    def _of(self, transport: asyncio.BaseTransport | None) -> _Connection | None:
        return (
            self._by_transport.get(transport) if isinstance(transport, asyncio.Transport) else None
        )

    def _is_known(self, transport: asyncio.Transport) -> bool:
        """Tell whether the caller's certificate is one of those that are let in."""
        if not self._limits.client_names:
            return True
        shown: dict[str, Any] = transport.get_extra_info("peercert") or {}
        names = {
            value for rdn in shown.get("subject", ()) for key, value in rdn if key == "commonName"
        }
        return bool(names & set(self._limits.client_names))


class ByteBudget:
    """Bounds the bytes of requests held at once; callers wait for free bytes in order."""

    def __init__(self, most: int) -> None:
        self._left = most
        self._most = most
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()

    async def take(self, count: int) -> None:
        """Wait until so many are free, one after the other."""
        assert count <= self._most, "more than there are in all"
        async with self._turn:
            while self._left < count:
                self._freed.clear()
                await self._freed.wait()
            self._left -= count

    def release(self, count: int) -> None:
        """Free what was taken."""
        self._left += count
        self._freed.set()
