"""The client's end of a connection, with the part of nats-py's `Client` that the adapter uses.

Satisfies `shared.bus.connection.Client`. It never reconnects, as the adapter wants it.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import nats.errors
from nats.aio.msg import Msg

from pumice.embedded.memory_nats.link import REFUSAL, Frame
from pumice.embedded.memory_nats.server import MemoryNats, ServerConnection

Callback = Callable[[], Awaitable[None]]
MAX_PAYLOAD: Final = 1024 * 1024


class Version(NamedTuple):
    """The version that the server reports."""

    major: int
    minor: int


class MemorySubscription:
    """A subscription that can be ended."""

    def __init__(self, end: Callable[[], None]) -> None:
        self._end = end

    async def unsubscribe(self) -> None:
        """Stop receiving messages."""
        self._end()


class MemoryClient:
    """A connection that is opened once and used until it breaks."""

    connected_server_version: Final = Version(2, 15)
    max_payload: Final = MAX_PAYLOAD
    pending_data_size: Final = 0
    """Bytes wait in the link, which takes any number of them."""

    def __init__(self, server: MemoryNats) -> None:
        self._server = server
        self._connection: ServerConnection | None = None
        self._callbacks: dict[str, Callable[[Msg], Awaitable[None]]] = {}
        self._arrived: deque[Frame] = deque()
        self._wake = asyncio.Event()
        self._on_down: Callback | None = None
        self._reader: asyncio.Task[None] | None = None
        self._killed = False
        self._on_error: Callable[[Exception], Awaitable[None]] | None = None
        self.user = ""

    @property
    def is_connected(self) -> bool:
        """Return whether the connection can be used."""
        return self._connection is not None

    async def connect(
        self,
        servers: list[str],
        *,
        disconnected_cb: Callback,
        error_cb: Callable[[Exception], Awaitable[None]],
        user: Callable[[], str] | None = None,
        **_: object,
    ) -> None:
        """Connect. Raises OSError when the server is down; waits for one that is frozen."""
        self.user = user() if user is not None else ""
        self._on_error = error_cb
        assert servers, "an address is given, and does not matter: there is one server"
        await asyncio.sleep(self._server.network.delay_s())
        if self._killed:
            await asyncio.Event().wait()
        await self._server.thawed.wait()
        self._connection = self._server.connect(self)
        self._on_down = disconnected_cb
        self._reader = asyncio.create_task(self._read(), name="memory-client")

    async def publish(
        self,
        subject: str,
        payload: bytes,
        *,
        reply: str = "",
        headers: dict[str, str] | None = None,
    ) -> None:
        """Send a message. Raises nats-py's ConnectionClosedError."""
        self._connected().up.send(
            Frame(subject=subject, payload=payload, reply=reply, headers=headers)
        )

    async def subscribe(
        self, subject: str, *, cb: Callable[[Msg], Awaitable[None]]
    ) -> MemorySubscription:
        """Take the messages that are sent to `subject`, which may end in one wildcard."""
        connection = self._connected()
        connection.subscriptions.add(subject)
        self._callbacks[subject] = cb

        def end() -> None:
            connection.subscriptions.discard(subject)
            self._callbacks.pop(subject, None)

        return MemorySubscription(end)

    async def close(self) -> None:
        """End in order."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._reader is not None:
            self._reader.cancel()

    def reset(self) -> None:
        """Break the connection; another client may connect at once."""
        if self._connection is not None:
            self._connection.break_off()

    def hold(self) -> None:
        """Let nothing through in either direction until `release`."""
        if self._connection is not None:
            self._connection.up.hold()
            self._connection.down.hold()

    def release(self) -> None:
        """Deliver the messages that were delayed."""
        if self._connection is not None:
            self._connection.up.release()
            self._connection.down.release()

    def kill(self, *, lost: bool) -> None:
        """Die with the process: nothing is sent or taken any more, and no callback is called.

        What was sent before arrives still, unless it is `lost`.
        """
        self._killed = True
        if self._connection is not None and not lost:
            self._connection.close()
            self._connection = None
        self.reset()

    def arrived(self, frame: Frame) -> None:
        """Take a message from the server."""
        self._arrived.append(frame)
        self._wake.set()

    def broken(self) -> None:
        """Notice that the connection is gone."""
        self._connection = None
        self._wake.set()

    def _connected(self) -> ServerConnection:
        if self._connection is None:
            raise nats.errors.ConnectionClosedError
        return self._connection

    async def _read(self) -> None:
        """Hand on what arrives, one after the other, until the connection breaks."""
        while self._connection is not None:
            while self._arrived:
                frame = self._arrived.popleft()
                if frame.to == REFUSAL and self._on_error is not None:
                    await self._on_error(nats.errors.Error(frame.subject))
                callback = self._callbacks.get(frame.to)
                if callback is not None:
                    await callback(
                        Msg(
                            _client=self,  # type: ignore[arg-type]  # only its own methods use it
                            subject=frame.subject,
                            reply=frame.reply,
                            data=frame.payload,
                            headers=frame.headers,
                        )
                    )
            self._wake.clear()
            if self._connection is not None:
                await self._wake.wait()
        if self._on_down is not None:
            await self._on_down()
