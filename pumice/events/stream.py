"""One connection to the stream of events: positions, a consumer, batches of messages.

The client requests batches (pull) and receives a heartbeat each second, so that it neither
overflows nor waits without end; `client` reconnects after a broken connection.
"""

import asyncio
import contextlib
import datetime as dt
import secrets
from collections.abc import AsyncGenerator, Iterator
from types import TracebackType
from typing import Any, Final, Self

import msgspec
import nats.errors
from nats.aio.msg import Msg

from pumice.events.errors import EventsError, NotAllowed, Unreachable
from pumice.events.tls import TlsClient, trusting

ANSWER_S: Final = 2.0
SILENCE_S: Final = 3.0
CLOSE_S: Final = 1.0
BATCH: Final = 256
KEPT_S: Final = 20
"""Seconds that the server keeps an idle consumer: a new connection makes a consumer of its own. So
does a program that handles one batch for longer than this."""
NANO: Final = 1_000_000_000
INBOX: Final = "_INBOX_events"
"""Replies come below this prefix; the server's user `events` may subscribe to it only."""


class StreamBroken(Exception):  # noqa: N818 - never seen outside this package
    """The connection or the consumer is gone; the message has the reason."""


class Position(msgspec.Struct, frozen=True):
    """The range of events that the stream holds now."""

    created: str
    first_seq: int
    last_seq: int
    first_time: float


class _State(msgspec.Struct, frozen=True):
    first_seq: int
    last_seq: int
    first_ts: dt.datetime


class _Error(msgspec.Struct, frozen=True):
    code: int = 0
    description: str = ""


class _ConsumerReply(msgspec.Struct, frozen=True):
    error: _Error | None = None
    created: str = ""
    state: _State | None = None


class EventStream:
    """The stream of events over one connection, open for the length of an `async with`."""

    def __init__(
        self, servers: list[str], *, user: str, password: str, stream: str, ca: str = ""
    ) -> None:
        """`ca` is the file of the authority that must have signed the server's certificate."""
        self._servers = servers
        self._user = user
        self._password = password
        self._stream = stream
        self._ca = ca
        self._client = TlsClient()
        self._arrived: asyncio.Queue[Msg | None] = asyncio.Queue()
        """Messages that have arrived, at most a batch; None marks a lost connection."""
        self._last_error = ""

    async def __aenter__(self) -> Self:
        """Connect. Raises NotAllowed or Unreachable."""
        try:
            with _raising_if_cancelled():
                async with asyncio.timeout(ANSWER_S + 1):
                    await self._connect()
        except (nats.errors.Error, OSError, TimeoutError) as exc:
            await self._close()
            cause = self._last_error or str(exc) or "no answer"
            shown = ", ".join(self._servers)
            if "authorization" in f"{cause} {exc}".lower():
                text = f"NATS at {shown} refuses user {self._user!r} or its password"
                raise NotAllowed(text) from exc
            raise Unreachable(f"cannot reach NATS at {shown}: {cause}") from exc
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Close the connection, also one to a frozen server."""
        await self._close()

    async def _connect(self) -> None:
        async def note(exc: Exception) -> None:
            self._last_error = str(exc) or type(exc).__name__

        async def lost() -> None:
            self._arrived.put_nowait(None)

        await self._client.connect(
            self._servers,
            name="pumice-events",
            error_cb=note,
            closed_cb=lost,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=2,
            ping_interval=5,
            max_outstanding_pings=1,
            inbox_prefix=INBOX,
            user=self._user or None,
            password=self._password or None,
            tls=trusting(self._ca) if self._ca else None,
        )

    async def _close(self) -> None:
        try:
            with _raising_if_cancelled():
                async with asyncio.timeout(CLOSE_S):
                    await self._client.close()
        except (nats.errors.Error, OSError, TimeoutError):
            pass
        finally:
            self._drop()

    def _drop(self) -> None:
        # nats-py leaves the socket open when a connect fails or the server takes no more bytes,
        # and offers no public way to drop it.
        writer = getattr(getattr(self._client, "_transport", None), "_io_writer", None)
        if writer is not None:
            writer.transport.abort()

    async def position(self) -> Position:
        """Return the range of events in the stream.

        Raises Unreachable, NotAllowed or StreamBroken.
        """
        reply = await self._call(f"STREAM.INFO.{self._stream}", None)
        if reply.error is not None or reply.state is None:
            why = reply.error.description if reply.error else "no state"
            raise Unreachable(f"stream {self._stream}: {why} (are Pumice's services running?)")
        state = reply.state
        return Position(
            created=reply.created,
            first_seq=state.first_seq,
            last_seq=state.last_seq,
            first_time=state.first_ts.timestamp(),
        )

    async def messages(
        self, filters: list[str], start: dict[str, Any]
    ) -> AsyncGenerator[list[tuple[int, bytes]], None]:
        """Yield (sequence, payload) in batches; an empty batch means that none is left now.

        Raises StreamBroken when reading cannot continue over this connection, and EventsError.
        """
        name = f"events-{secrets.token_hex(6)}"
        inbox = f"{INBOX}.{name}"

        async def put(msg: Msg) -> None:
            self._arrived.put_nowait(msg)

        with _raising_if_cancelled():
            await self._client.subscribe(inbox, cb=put)
        config = {
            "name": name,
            "ack_policy": "none",
            "filter_subjects": filters,
            "inactive_threshold": KEPT_S * NANO,
            "mem_storage": True,
            "num_replicas": 1,
            **start,
        }
        reply = await self._call(
            f"CONSUMER.CREATE.{self._stream}.{name}",
            {"stream_name": self._stream, "config": config},
        )
        if reply.error is not None:
            raise EventsError(f"cannot read {self._stream}: {reply.error.description}")
        live = False
        while True:
            await self._pull(name, inbox, wait=live)
            async for batch, nothing_left in self._taken(inbox):
                if batch:
                    yield batch
                if nothing_left:
                    live = True
                    yield []

    async def _pull(self, name: str, inbox: str, *, wait: bool) -> None:
        body: dict[str, Any] = {"batch": BATCH, "no_wait": True}
        if wait:
            body = {"batch": BATCH, "expires": 30 * NANO, "idle_heartbeat": NANO}
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{name}"
        try:
            with _raising_if_cancelled():
                await self._client.publish(subject, msgspec.json.encode(body), reply=inbox)
        except (nats.errors.Error, OSError) as exc:
            raise StreamBroken(f"connection lost: {exc}") from exc

    async def _taken(
        self, inbox: str
    ) -> AsyncGenerator[tuple[list[tuple[int, bytes]], bool], None]:
        """Yield the messages of one request until it is used up."""
        left = BATCH
        while left > 0:
            try:
                async with asyncio.timeout(SILENCE_S):
                    pending = [await self._arrived.get()]
            except TimeoutError as exc:
                raise StreamBroken("the server sent nothing") from exc
            while not self._arrived.empty():
                pending.append(self._arrived.get_nowait())
            batch: list[tuple[int, bytes]] = []
            nothing_left = False
            for msg in pending:
                if msg is None:
                    raise StreamBroken("connection lost")
                status = (msg.headers or {}).get("Status", "") if msg.subject == inbox else ""
                if not status:
                    batch.append((_sequence(msg), msg.data))
                    left -= 1
                elif status in ("404", "408"):
                    nothing_left, left = status == "404", 0
                elif status != "100":
                    raise StreamBroken(f"consumer lost: {status}")
            yield batch, nothing_left

    async def _call(self, operation: str, body: object) -> _ConsumerReply:
        payload = msgspec.json.encode(body) if body is not None else b""
        subject = f"$JS.API.{operation}"
        try:
            with _raising_if_cancelled():
                reply = await self._client.request(subject, payload, timeout=ANSWER_S)
        except nats.errors.NoRespondersError as exc:
            raise Unreachable("JetStream is off, or the user may not use it") from exc
        except nats.errors.TimeoutError as exc:
            if self._client.is_connected and "permissions" in str(self._client.last_error).lower():
                raise NotAllowed(f"this user may not read {self._stream}") from exc
            raise StreamBroken("no answer from the server") from exc
        except (nats.errors.Error, OSError) as exc:
            raise StreamBroken(f"connection lost: {exc}") from exc
        return msgspec.json.decode(reply.data, type=_ConsumerReply)


@contextlib.contextmanager
def _raising_if_cancelled() -> Iterator[None]:
    """Raise CancelledError at the end if the task was cancelled meanwhile and a library hid it.

    `asyncio.wait_for` of Python 3.11, with which nats-py waits for answers, does when the answer
    comes at that moment; nats-py itself does while it closes a connection.
    """
    task = asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    before = task.cancelling()
    try:
        yield
    finally:
        if task.cancelling() > before:
            raise asyncio.CancelledError


def _sequence(msg: Msg) -> int:
    tokens = msg.reply.split(".")
    return int(tokens[-4])
