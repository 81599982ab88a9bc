"""Accepts clients of other processes: NATS's own protocol over TCP.

It is there for subscribers of events, so that `pumice events`, `pumice trace` and `pumice.events`
find at this server what they find at nats-server. A client has to log in as a user of the table,
who subscribes to the subjects listed there and publishes what the server permits that user.

Queue groups and limits of subscriptions are not supported: a client that requests them is told so
and disconnected.
"""

import asyncio
import contextlib
import hmac
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from pumice.embedded.memory_nats.client import MAX_PAYLOAD, MemoryClient
from pumice.embedded.memory_nats.link import REFUSAL, Frame
from pumice.embedded.memory_nats.server import MemoryNats, ServerConnection
from pumice.embedded.memory_nats.subjects import Filter

LOGIN_S: Final = 2.0
"""Time for a new connection to log in."""
MAX_CONNECTIONS: Final = 100
"""Connections at a time."""
UNREAD_BYTES: Final = 64 * 1024 * 1024
"""A client that leaves more than this unread is disconnected."""

_VERSION: Final = "{}.{}.0".format(*MemoryClient.connected_server_version)
_HEADERS: Final = b"NATS/1.0"
_END: Final = b"\r\n"


class NatsAccount(msgspec.Struct, frozen=True, kw_only=True):
    """The password of a user, and the subjects that may be subscribed to."""

    password: str
    subscribe: tuple[str, ...]


class ClientRefused(Exception):  # noqa: N818 - never seen outside this module
    """The client gets the text and is disconnected."""


class NatsListener:
    """Takes connections to `server` for the users in `accounts`."""

    def __init__(self, server: MemoryNats, accounts: Mapping[str, NatsAccount]) -> None:
        self._server = server
        self._accounts = accounts
        self._listening: asyncio.Server | None = None
        self._open: set[asyncio.Task[Any]] = set()

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises OSError when the port is taken."""
        self._listening = await asyncio.start_server(self._accept, host, port)

    async def stop(self) -> None:
        """Stop listening, and close all connections."""
        if self._listening is not None:
            self._listening.close()
        ending = list(self._open)
        for task in ending:
            task.cancel()
        if ending:
            await asyncio.wait(ending)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"
        self._open.add(task)
        client = ClientConnection(self._server, self._accounts, writer)
        client.send_info()
        try:
            if len(self._open) > MAX_CONNECTIONS:
                client.refuse("maximum connections exceeded")
                return
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._serve(client, reader)
        except asyncio.CancelledError:  # by `stop`, and no failure of this task
            pass
        finally:
            self._open.discard(task)
            client.detach()
            writer.close()

    async def _serve(self, client: "ClientConnection", reader: asyncio.StreamReader) -> None:
        try:
            async with asyncio.timeout(LOGIN_S):
                client.log_in(await reader.readuntil(_END))
            while not client.gone:
                await client.take(await reader.readuntil(_END), reader)
        except (
            ClientRefused,
            ValueError,
            asyncio.LimitOverrunError,
            msgspec.MsgspecError,
        ) as error:
            client.refuse(str(error) if isinstance(error, ClientRefused) else "Parser Error")
        except TimeoutError:
            client.refuse("Authentication Timeout")


class ClientConnection:
    """A client of another process, behind a socket: a `Peer` of the server."""

    def __init__(
        self, server: MemoryNats, accounts: Mapping[str, NatsAccount], writer: asyncio.StreamWriter
    ) -> None:
        self.user = ""
        self.gone = False
        self._server = server
        self._accounts = accounts
        self._writer = writer
        self._allowed = Filter(())
        self._connection: ServerConnection | None = None
        self._subject_of: dict[bytes, str] = {}
        self._sid_of: dict[str, bytes] = {}

    def send_info(self) -> None:
        """Send INFO, the first line of the protocol."""
        about = {
            "server_id": "memory",
            "server_name": "memory",
            "version": _VERSION,
            "proto": 1,
            "headers": True,
            "max_payload": MAX_PAYLOAD,
            "jetstream": True,
            "auth_required": True,
        }
        self._writer.write(b"INFO " + msgspec.json.encode(about) + _END)

    def log_in(self, line: bytes) -> None:
        """Take the client's CONNECT. Raises ClientRefused, and OSError when the server is down."""
        operation, _, given = line.partition(b" ")
        if operation.upper() != b"CONNECT":
            raise ClientRefused("Authorization Violation")
        options = msgspec.json.decode(given, type=dict[str, Any])
        user, password = str(options.get("user", "")), str(options.get("pass", ""))
        account = self._accounts.get(user)
        expected = account.password if account is not None else ""
        fits = hmac.compare_digest(password.encode(), expected.encode())
        if account is None or not fits:
            raise ClientRefused("Authorization Violation")
        self.user = user
        self._allowed = Filter(account.subscribe)
        self._connection = self._server.connect(self)

    async def take(self, line: bytes, reader: asyncio.StreamReader) -> None:
        """Handle one line; the payload of a publish is read from `reader`. Raises ClientRefused."""
        await self._server.thawed.wait()
        words = line.split()
        match words[0].upper() if words else b"":
            case b"PING":
                self._writer.write(b"PONG\r\n")
            case b"PONG":
                pass
            case b"SUB" if len(words) == 3:  # noqa: PLR2004 - subject and number
                self._subscribe(words[1].decode(), words[2])
            case b"UNSUB" if len(words) == 2:  # noqa: PLR2004 - the number
                self._unsubscribe(words[1])
            case b"PUB" if len(words) in (3, 4):
                await self._publish(words[1:-1], 0, int(words[-1]), reader)
            case b"HPUB" if len(words) in (4, 5):
                await self._publish(words[1:-2], int(words[-2]), int(words[-1]), reader)
            case _:
                raise ClientRefused("Unknown Protocol Operation")
        await self._writer.drain()

    async def _publish(
        self, about: list[bytes], head: int, size: int, reader: asyncio.StreamReader
    ) -> None:
        """Hand a message to the server: `head` of its `size` bytes are headers."""
        if not 0 <= head <= size <= MAX_PAYLOAD:
            raise ClientRefused("Maximum Payload Violation")
        body = await reader.readexactly(size + len(_END))
        subject, reply = (*about, b"")[:2]
        if self._connection is not None:
            self._connection.up.send(
                Frame(
                    subject=subject.decode(),
                    reply=reply.decode(),
                    payload=body[head:size],
                    headers=_parsed(body[:head]) if head else None,
                )
            )

    def _subscribe(self, subject: str, sid: bytes) -> None:
        if not self._allowed.takes(subject):
            self._write_error(f'Permissions Violation for Subscription to "{subject}"')
            return
        assert self._connection is not None, "a client has logged in before it says anything else"
        self._subject_of[sid] = subject
        self._sid_of[subject] = sid
        self._connection.subscriptions.add(subject)

    def _unsubscribe(self, sid: bytes) -> None:
        subject = self._subject_of.pop(sid, None)
        if subject is not None and self._connection is not None:
            self._sid_of.pop(subject, None)
            self._connection.subscriptions.discard(subject)

    def arrived(self, frame: Frame) -> None:
        """Send a message of the server to the client."""
        if frame.to == REFUSAL:
            self._write_error(frame.subject.removeprefix("nats: "))
            return
        sid = self._sid_of.get(frame.to)
        if sid is None or self.gone:
            return
        self._writer.write(_message(frame, sid))
        if self._writer.transport.get_write_buffer_size() > UNREAD_BYTES:
            self.refuse("Slow Consumer")

    def broken(self) -> None:
        """Close the connection: the server has given it up."""
        self._connection = None
        self.gone = True
        self._writer.transport.abort()

    def refuse(self, text: str) -> None:
        """Say why, and end the connection."""
        self._write_error(text)
        self.detach()
        self._writer.close()

    def detach(self) -> None:
        """End the server's side of the connection."""
        self.gone = True
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _write_error(self, text: str) -> None:
        if not self._writer.is_closing():
            self._writer.write(f"-ERR '{text}'\r\n".encode())


def _parsed(head: bytes) -> dict[str, str]:
    """Return the headers of a message. Raises ValueError."""
    version, *lines = head.decode().strip().split("\r\n")
    if not version.startswith(_HEADERS.decode()):
        raise ValueError(version)
    pairs = (line.partition(":") for line in lines)
    return {name: value.strip() for name, _, value in pairs}


def _message(frame: Frame, sid: bytes) -> bytes:
    """Return a message as it goes over the wire."""
    about = b" ".join(filter(None, (frame.subject.encode(), sid, frame.reply.encode())))
    payload = frame.payload
    if not frame.headers:
        return b"MSG %s %d\r\n%s\r\n" % (about, len(payload), payload)
    head = _head(dict(frame.headers))
    size = len(head) + len(payload)
    return b"HMSG %s %d %d\r\n%s%s\r\n" % (about, len(head), size, head, payload)


def _head(headers: dict[str, str]) -> bytes:
    """Return the block of headers; a status is in its first line."""
    status = (headers.pop("Status", ""), headers.pop("Description", ""))
    first = " ".join(filter(None, (_HEADERS.decode(), *status)))
    lines = [first, *(f"{name}: {value}" for name, value in headers.items())]
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode()
