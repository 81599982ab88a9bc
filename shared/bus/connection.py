"""One connection to NATS that never gives up.

nats-py's own reconnect is switched off and done here, because it buffers publishes (ADR 2) from
before the break, can be closed permanently by one error of the server, and hangs in `drain` when
the server is frozen. Here each connection is a `Session`: it is made, used until it breaks and
thrown away; readers and pending requests fail at once and begin again on the next session. `run` is
a part of the service: an unreachable server makes the service not ready, never dead.
"""

import asyncio
import contextlib
import random
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, Protocol
from urllib.parse import urlsplit

import msgspec
import nats.errors

from shared.bus.client import Client, Dial
from shared.bus.errors import NoReply
from shared.runtime.backoff import Backoff
from shared.runtime.errors import PumiceError, Rejected
from shared.runtime.logs import Logger
from shared.runtime.tasks import raise_if_cancelled

OLDEST_SERVER: Final = (2, 11)
"""First server with Nats-Expected-Last-Subject-Sequence-Subject and per-message TTL."""
CONNECT_S: Final = 3.0
"""Time for one attempt, over all servers of the URL."""
PING_S: Final = 5.0
"""A frozen server is noticed after one to two of these."""
PENDING_BYTES: Final = 64 * 1024 * 1024
"""nats-py's send buffer; far above what `Replies` lets into flight, so it never blocks."""
DISCARD_S: Final = 0.5
_API: Final = "$JS.API."


def _uncounted(_operation: str) -> None:
    pass


class StatusHook(Protocol):
    """Called when the connection opens or breaks; a readiness gate's `set` fits."""

    def __call__(self, *, ok: bool, reason: str) -> None:
        """Take note."""
        ...


class BusCredentials(msgspec.Struct, frozen=True):
    """Callbacks that give user and password at each (re)connect, so that they can rotate."""

    user: Callable[[], str]
    password: Callable[[], str]


def _unnoticed(_stream: str, _reason: str) -> None:
    """Take no note."""


class BusOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Servers to connect to, and the credentials."""

    url: str
    """One URL, or several separated by commas."""
    name: str
    """Shown by the server's monitoring, for example `scheduler/scheduler-7f9c`."""
    inbox: str = "_INBOX"
    """Prefix of reply subjects; a user may subscribe to its own only."""
    credentials: BusCredentials | None = None
    tls: Callable[[], ssl.SSLContext] | None = None
    """Asked for each connection, so that a renewed authority counts from the next one on."""
    on_request: Callable[[str], None] = _uncounted
    """Called with the operation of each request to the JetStream API, such as `STREAM.INFO`."""
    on_refused: Callable[[str, str], None] = _unnoticed
    """Called with a stream and why the server has no room for another reader; later with ""."""
    copied: str = ""
    """Stream whose copies show whether a server has lost the others; "": no check."""


class BusSession:
    """One connection from its first to its last moment."""

    def __init__(
        self, client: Client, number: int, on_request: Callable[[str], None] = _uncounted
    ) -> None:
        self.client: Final = client
        self._on_request = on_request
        self.number: Final = number
        self.down: Final = asyncio.Event()
        self._watchers: dict[int, Callable[[], None]] = {}
        self._next_watcher = 0

    @property
    def alive(self) -> bool:
        """Return whether it can still be used."""
        return not self.down.is_set() and self.client.is_connected

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when the session breaks; return a function that stops watching."""
        key = self._next_watcher
        self._next_watcher += 1
        self._watchers[key] = callback
        return lambda: self._watchers.pop(key, None) and None

    def break_off(self) -> None:
        """Mark the session as broken and call each watcher, once."""
        if self.down.is_set():
            return
        self.down.set()
        watchers, self._watchers = self._watchers, {}
        for callback in watchers.values():
            callback()

    async def send(
        self, subject: str, payload: bytes, *, reply: str = "", headers: dict[str, str] | None
    ) -> None:
        """Send one message. Raises NoReply when the session is broken."""
        if not self.alive:
            raise NoReply("no connection to NATS")
        if subject.startswith(_API):
            self._on_request(".".join(subject.split(".")[2:4]))
        try:
            await self.client.publish(subject, payload, reply=reply, headers=headers)
        except (nats.errors.Error, OSError) as exc:
            raise NoReply(f"cannot send to {subject}: {_words(exc)}") from exc


class BusConnection:
    """Keeps a session up; `run` must be running for anything else to work."""

    def __init__(
        self,
        options: BusOptions,
        *,
        log: Logger,
        on_status: StatusHook,
        on_error: Callable[[str], None],
        prepare: Callable[[BusSession], Awaitable[None]],
        rng: random.Random,
        dial: Dial,
    ) -> None:
        self._options = options
        self._dial = dial
        self._log = log
        self._on_status = on_status
        self._on_error = on_error
        self._prepare = prepare
        self._session: BusSession | None = None
        self._came_up = asyncio.Condition()
        self._last_error = ""
        self._number = 0
        self._servers = [part.strip() for part in options.url.split(",") if part.strip()]
        for server in self._servers or [""]:
            if urlsplit(server).scheme not in ("nats", "tls"):
                raise Rejected(
                    f"nats: {_redacted(server)!r} is not an address; write nats://host:4222",
                    field="nats",
                )
        self._shown = ", ".join(_redacted(server) for server in self._servers)
        self._backoff = Backoff(first_s=0.1, cap_s=1.0, rng=rng)

    @property
    def current(self) -> BusSession | None:
        """Return the session if there is a usable one."""
        session = self._session
        return session if session is not None and session.alive else None

    async def session(self, timeout_s: float | None = None) -> BusSession:
        """Return a usable session, waiting up to `timeout_s`. Raises NoReply when none arrived."""
        if (session := self.current) is not None:
            return session
        try:
            async with asyncio.timeout(timeout_s), self._came_up:
                while (session := self.current) is None:
                    await self._came_up.wait()
                return session
        except TimeoutError as exc:
            raise NoReply(f"no connection to NATS at {self._shown}: {self._last_error}") from exc

    async def away(self, for_s: float) -> None:
        """Return when there has been no usable session for `for_s`."""
        while True:
            try:
                session = await self.session(for_s)
            except NoReply:
                return
            await session.down.wait()

    def drop(self, session: BusSession, reason: str) -> None:
        """Give up a session for `reason`."""
        self._last_error = reason
        session.break_off()

    async def run(self) -> None:
        """Connect and reconnect until cancelled."""
        self._on_status(ok=False, reason=f"connecting to NATS at {self._shown}")
        while True:
            session = await self._connect()
            if session is None:
                raise_if_cancelled()
                await asyncio.sleep(self._backoff.next_s())
                continue
            self._backoff.reset()
            try:
                raise_if_cancelled()
                await self._serve(session)
            finally:
                session.break_off()
                self._session = None
                await _discard(session.client)
            raise_if_cancelled()

    async def _serve(self, session: BusSession) -> None:
        """Use a session until it breaks."""
        self._session = session
        async with self._came_up:
            self._came_up.notify_all()
        self._on_status(ok=True, reason="")
        self._log.info("nats_connected", url=self._shown, connection=session.number)
        while session.alive:
            # The callbacks of nats-py come late when the server is frozen: poll as well.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    await session.down.wait()
        cause = self._last_error or "no sign of life"
        reason = f"connection to NATS at {self._shown} lost: {cause}"
        self._on_status(ok=False, reason=reason)
        self._log.warning("nats_disconnected", url=self._shown, reason=reason)

    async def _connect(self) -> BusSession | None:
        """Make one attempt; the reason of a failure becomes the readiness reason."""
        client = self._dial()
        self._number += 1
        session = BusSession(client, self._number, self._options.on_request)
        self._last_error = ""
        try:
            async with asyncio.timeout(CONNECT_S):
                await self._open(client, session)
                _check_version(client)
                await self._prepare(session)
        except (nats.errors.Error, OSError, PumiceError, TimeoutError) as exc:
            reason = self._explain(exc)
            self._on_status(ok=False, reason=reason)
            if self._backoff.attempts == 0:
                self._log.warning("nats_unreachable", url=self._shown, reason=reason)
            session.break_off()
            await _discard(client)
            return None
        except BaseException:
            session.break_off()
            await _discard(client)
            raise
        return session

    async def _open(self, client: Client, session: BusSession) -> None:
        async def on_error(exc: Exception) -> None:
            self._last_error = _words(exc)
            self._on_error(self._last_error)

        async def on_down() -> None:
            session.break_off()

        credentials = self._options.credentials
        await client.connect(
            self._servers,
            name=self._options.name,
            error_cb=on_error,
            disconnected_cb=on_down,
            closed_cb=on_down,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=2,
            ping_interval=int(PING_S),
            max_outstanding_pings=1,
            pending_size=PENDING_BYTES,
            inbox_prefix=self._options.inbox,
            user=credentials.user if credentials else None,
            password=credentials.password if credentials else None,
            tls=self._options.tls() if self._options.tls else None,
        )

    def _explain(self, exc: BaseException) -> str:
        cause = str(exc) or self._last_error or _words(exc)
        if "no servers available" in cause and self._last_error:
            cause = self._last_error
        if isinstance(exc, TimeoutError):
            cause = self._last_error or f"no answer within {CONNECT_S:g} s"
        if "authorization" in cause.lower():
            return f"NATS at {self._shown} refuses our user or password: {cause}"
        if isinstance(exc, PumiceError):
            return f"NATS at {self._shown}: {cause}"
        return f"cannot reach NATS at {self._shown}: {cause}; retrying"


def _words(exc: BaseException) -> str:
    if isinstance(exc, TimeoutError):
        return "no answer in time"
    return str(exc) or type(exc).__name__


def _check_version(client: Client) -> None:
    version = client.connected_server_version
    if (version.major, version.minor) < OLDEST_SERVER:
        needed = ".".join(str(part) for part in OLDEST_SERVER)
        found = f"{version.major}.{version.minor}"
        raise NoReply(f"server is version {found}, but fencing needs {needed} or newer")


def _redacted(url: str) -> str:
    parts = urlsplit(url)
    if parts.username is None and parts.password is None:
        return url
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


async def _discard(client: Client) -> None:
    """Close a client permanently, even one whose server takes no more bytes."""
    with contextlib.suppress(TimeoutError, nats.errors.Error, OSError):
        async with asyncio.timeout(DISCARD_S):
            await client.close()
    # nats-py waits for the peer to take what is buffered; a frozen peer never does. It offers no
    # public way to drop the socket.
    transport = getattr(client, "_transport", None)
    writer = getattr(transport, "_io_writer", None)
    if writer is not None:
        # asyncio raises this when the connection was lost before: nothing is left to drop
        with contextlib.suppress(AttributeError):
            writer.transport.abort()
