"""The part of nats-py's client that the adapter uses, as a protocol.

nats-py's `Client` satisfies it, and so does the client of `pumice/embedded/memory_nats`, a server
in memory for services that share one process, on which the simulation runs, too.
"""

import ssl
from collections.abc import Awaitable, Callable
from typing import Protocol

from nats.aio.msg import Msg


class ServerVersion(Protocol):
    """A server's description of itself."""

    @property
    def major(self) -> int:
        """Return the first number."""
        ...

    @property
    def minor(self) -> int:
        """Return the second number."""
        ...


class Subscription(Protocol):
    """A subscription that can be ended."""

    async def unsubscribe(self) -> None:
        """Stop receiving messages."""
        ...


class Client(Protocol):
    """The methods of nats-py's `Client` that the adapter calls."""

    @property
    def is_connected(self) -> bool:
        """Tell whether the connection can be used."""
        ...

    @property
    def max_payload(self) -> int:
        """Return the most bytes that the server takes in one message."""
        ...

    @property
    def pending_data_size(self) -> int:
        """Return how many bytes wait to be sent."""
        ...

    @property
    def connected_server_version(self) -> ServerVersion:
        """Return the version of the server."""
        ...

    async def connect(
        self,
        servers: list[str],
        *,
        name: str,
        error_cb: Callable[[Exception], Awaitable[None]],
        disconnected_cb: Callable[[], Awaitable[None]],
        closed_cb: Callable[[], Awaitable[None]],
        allow_reconnect: bool,
        max_reconnect_attempts: int,
        reconnect_time_wait: int,
        connect_timeout: int,
        ping_interval: int,
        max_outstanding_pings: int,
        pending_size: int,
        inbox_prefix: str,
        user: Callable[[], str] | None,
        password: Callable[[], str] | None,
        tls: ssl.SSLContext | None,
    ) -> None:
        """Connect; raises nats-py's errors and OSError."""
        ...

    async def publish(
        self,
        subject: str,
        payload: bytes,
        *,
        reply: str,
        headers: dict[str, str] | None,
    ) -> None:
        """Send a message."""
        ...

    async def subscribe(
        self, subject: str, *, cb: Callable[[Msg], Awaitable[None]]
    ) -> Subscription:
        """Call `cb` with what is sent to `subject`."""
        ...

    async def close(self) -> None:
        """End the connection."""
        ...


Dial = Callable[[], Client]
"""Makes a client that is not connected yet."""
