"""The server: connections, routing, timers, and what can go wrong with it.

Everything happens on the loop that is running, at the time of that loop, so that under a virtual
clock a day passes in no time. `kill`, `freeze` and `break_connections` are there for tests and
for the simulation.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

import msgspec

from pumice.embedded.memory_nats.api import API, DIRECT, JetStream, failed
from pumice.embedded.memory_nats.consumer import NEVER, Consumer, PullRequest
from pumice.embedded.memory_nats.link import REFUSAL, Frame, Link, PerfectNetwork, SimulatedNetwork
from pumice.embedded.memory_nats.stream import (
    BATCH,
    NANO,
    Accepted,
    MemoryStream,
    PublishRefusal,
    StoredMessage,
)
from pumice.embedded.memory_nats.subjects import Filter, matches

SILENT_S: Final = 7.5
"""After this long without a sign of the server a client gives its connection up (two pings)."""

_ACK: Final = "$JS.ACK."
_NEXT: Final = "CONSUMER.MSG.NEXT."
_NO_RESPONDERS: Final = {"Status": "503"}


class Peer(Protocol):
    """The other end of a connection: a client in this process, or one behind a socket."""

    @property
    def user(self) -> str:
        """Return the name of its user, "" for a stranger."""
        ...

    def arrived(self, frame: Frame) -> None:
        """Take a message from the server."""
        ...

    def broken(self) -> None:
        """Notice that the connection is gone."""
        ...


class ServerConnection:
    """The server's end of one connection."""

    def __init__(self, server: "MemoryNats", client: Peer, network: SimulatedNetwork) -> None:
        self._server = server
        self.client: Final = client
        self.subscriptions: set[str] = set()
        self._permitted = server.permitted.get(client.user)
        self._open = True
        self.up: Final = Link(self._received, network)
        self.down: Final = Link(client.arrived, network)

    def deliver(
        self,
        inbox: str,
        subject: str,
        payload: bytes,
        reply: str = "",
        headers: dict[str, str] | None = None,
    ) -> bool:
        """Send a message to the subscription to `inbox` on this connection, if there is one."""
        inbox_subject = inbox if inbox in self.subscriptions else f"{inbox.rpartition('.')[0]}.*"
        if (
            not self._open
            or inbox_subject not in self.subscriptions
            or not self._server.gets_output(self)
        ):
            return False
        self.down.send(
            Frame(to=inbox_subject, subject=subject, payload=payload, reply=reply, headers=headers)
        )
        return True

    def permits(self, subject: str) -> bool:
        """Return whether the user of this connection may publish to a subject; if not, say so."""
        if self._permitted is None or self._permitted.takes(subject):
            return True
        text = f'nats: permissions violation for publish to "{subject.lower()}"'
        self.down.send(Frame(to=REFUSAL, subject=text, payload=b""))
        return False

    def close(self) -> None:
        """End in order: what the client sent before still arrives."""
        self._open = False
        self.down.cut()
        self._server.connections.pop(self, None)

    def break_off(self) -> None:
        """End at once: messages in flight in both directions are lost."""
        self.close()
        self.up.cut()
        self.down.cut()
        self.client.broken()

    def _received(self, frame: Frame) -> None:
        self._server.receive(self, frame)


class MemoryNats:
    """Start without streams. `wall` gives Unix seconds for the stamps of messages.

    A user in `permissions` may publish what is listed there; a stranger may publish everything.
    """

    def __init__(
        self,
        *,
        wall: Callable[[], float],
        network: SimulatedNetwork | None = None,
        permissions: Mapping[str, Iterable[str]] | None = None,
    ) -> None:
        self._wall = wall
        self.permitted: Final = {
            user: Filter(subjects) for user, subjects in (permissions or {}).items()
        }
        self.network: SimulatedNetwork = network or PerfectNetwork()
        self.jetstream: Final = JetStream()
        self.stored: Callable[[str, StoredMessage], None] = lambda _stream, _message: None
        """Called with each message that a stream has stored, for checks from outside."""
        self.connections: dict[ServerConnection, None] = {}
        self.up = True
        self.thawed = asyncio.Event()
        self.thawed.set()
        self._held: list[tuple[ServerConnection, Frame]] = []
        self._timers: dict[Consumer, tuple[float, asyncio.TimerHandle]] = {}

    def connect(self, client: Peer) -> ServerConnection:
        """Open a connection. Raises OSError when the server is down."""
        if not self.up:
            raise ConnectionRefusedError("connection refused")
        connection = ServerConnection(self, client, self.network)
        self.connections[connection] = None
        return connection

    def kill(self) -> None:
        """Kill -9: connections break, streams in memory are lost."""
        self.up = False
        self.thawed.set()
        self._held.clear()
        self.break_connections()
        self._forget_timers()

    def start(self) -> None:
        """Come back with what was in files."""
        self.jetstream.restart(now=self._now())
        self.up = True

    def break_connections(self) -> None:
        """Break all connections, and drop the messages in flight."""
        for connection in list(self.connections):
            connection.break_off()

    def freeze(self) -> None:
        """SIGSTOP: bytes are taken and nothing happens; clients notice after a while."""
        self.thawed.clear()
        asyncio.get_running_loop().call_later(SILENT_S, self._give_up, list(self.connections))

    def thaw(self) -> None:
        """SIGCONT: what was sent meanwhile is done now."""
        self.thawed.set()
        frozen, self._held = self._held, []
        for connection, frame in frozen:
            self.receive(connection, frame)
        for stream in self.jetstream.streams:
            for consumer in self.jetstream.consumers_of(stream):
                self._run(consumer)

    def receive(self, connection: ServerConnection, frame: Frame) -> None:
        """Take a message from a client."""
        if not self.up:
            return
        if not self.thawed.is_set():
            self._held.append((connection, frame))
        elif not connection.permits(frame.subject):
            return
        elif frame.subject.startswith(_ACK):
            self._acknowledge(frame)
        elif frame.subject.startswith(API):
            self._call(connection, frame, frame.subject.removeprefix(API))
        else:
            self._publish(connection, frame)

    def gets_output(self, _connection: ServerConnection, /) -> bool:
        """Return whether what the server sends at this moment comes to a connection."""
        return True

    def is_reachable(self, _connection: ServerConnection, /) -> bool:
        """Return whether what one connection publishes can come to another."""
        return True

    def _give_up(self, connections: list[ServerConnection]) -> None:
        if not self.thawed.is_set():
            for connection in connections:
                if connection in self.connections:
                    connection.break_off()

    def _publish(self, connection: ServerConnection, frame: Frame) -> None:
        stream = self.jetstream.taking(frame.subject)
        if stream is None:
            self._hand_on(connection, frame)
            return
        replies = self._stored_in(stream, frame)
        if replies is None:
            return
        name = stream.config["name"]
        if isinstance(replies, PublishRefusal):
            reply = {**failed(replies), "stream": name, "seq": 0}
        else:
            reply = {
                "stream": name,
                "seq": replies[-1].sequence,
                "duplicate": replies[-1].duplicate,
            }
            if frame.headers and BATCH in frame.headers:
                reply |= {"batch": frame.headers[BATCH], "count": len(replies)}
        if frame.reply:
            connection.deliver(frame.reply, frame.reply, msgspec.json.encode(reply))
        if isinstance(replies, PublishRefusal):
            return
        stored = [response.stored for response in replies if response.stored is not None]
        for message in stored:
            self.stored(name, message)
            self._republish(stream, message)
        for consumer in self.jetstream.consumers_of(name):
            if any(consumer.filter.takes(message.subject) for message in stored):
                self._run(consumer)

    def _republish(self, stream: MemoryStream, message: StoredMessage) -> None:
        """Send a message that was stored to those who listen, as its stream says."""
        republish = stream.config.get("republish")
        if republish is None or not matches(republish["src"], message.subject):
            return
        rest = message.subject.removeprefix(republish["src"].removesuffix(">"))
        subject = republish["dest"].removesuffix(">") + rest
        headers = {
            **(message.headers or {}),
            "Nats-Stream": stream.config["name"],
            "Nats-Subject": message.subject,
            "Nats-Sequence": str(message.sequence),
        }
        for connection in list(self.connections):
            connection.deliver(subject, subject, message.payload, headers=headers)

    def _hand_on(self, connection: ServerConnection, frame: Frame) -> None:
        """Send a message that no stream takes to those who listen."""
        subject, connections = frame.subject, list(self.connections)
        receivers = [
            at
            for at in connections
            if self.is_reachable(at) and at.deliver(subject, subject, frame.payload, frame.reply)
        ]
        if frame.reply and not receivers:
            connection.deliver(frame.reply, frame.reply, b"", headers=_NO_RESPONDERS)

    def _stored_in(
        self, stream: MemoryStream, frame: Frame
    ) -> list[Accepted] | PublishRefusal | None:
        """Return the outcome of a message, and of those before it in its batch; None: kept."""
        now, headers = self._wall(), frame.headers
        if headers and BATCH in headers:
            return stream.publish_in_batch(frame.subject, frame.payload, headers, now=now)
        response = stream.publish(frame.subject, frame.payload, headers, now=now)
        return response if isinstance(response, PublishRefusal) else [response]

    def _acknowledge(self, frame: Frame) -> None:
        if self.network.loses(frame.subject):
            return
        _, _, stream, name, _, sequence, *_ = frame.subject.split(".")
        consumer = self.jetstream.consumers.get(stream, {}).get(name)
        if consumer is not None:
            consumer.response(int(sequence), frame.payload, now=self._now())
            self._arm(consumer)

    def _call(self, connection: ServerConnection, frame: Frame, operation: str) -> None:
        if operation.startswith(_NEXT):
            self._next(connection, frame, *operation.removeprefix(_NEXT).split("."))
            return
        if operation.startswith(DIRECT):
            stream = operation.removeprefix(DIRECT)
            for headers, payload in self.jetstream.direct(stream, frame.payload, wall=self._wall()):
                connection.deliver(frame.reply, frame.reply, payload, headers=headers)
            if stream in self.jetstream.streams:
                return
            response = None
        else:
            response = self.jetstream.call(
                operation, frame.payload, now=self._now(), wall=self._wall()
            )
        if response is None:
            connection.deliver(frame.reply, frame.reply, b"", headers=_NO_RESPONDERS)
        else:
            connection.deliver(frame.reply, frame.reply, response)

    def _next(self, connection: ServerConnection, frame: Frame, stream: str, name: str) -> None:
        consumer = self.jetstream.consumers.get(stream, {}).get(name)
        if consumer is None:
            connection.deliver(frame.reply, frame.reply, b"", headers=_NO_RESPONDERS)
            return
        now = self._now()
        body = msgspec.json.decode(frame.payload)
        expires, heartbeat = body.get("expires"), body.get("idle_heartbeat")
        consumer.stream.expire(self._wall())
        consumer.pull(
            PullRequest(
                inbox=frame.reply,
                left=body["batch"],
                no_wait=body.get("no_wait", False),
                expires_at=now + expires / NANO if expires else NEVER,
                heartbeat_s=heartbeat / NANO if heartbeat else NEVER,
                last_request_at=now,
                deliver=connection.deliver,
            ),
            now=now,
        )
        self._arm(consumer)

    def _wake(self, consumer: Consumer) -> None:
        del self._timers[consumer]
        consumer.stream.expire(self._wall())
        self._run(consumer)

    def _run(self, consumer: Consumer) -> None:
        if self.up and self.thawed.is_set():
            consumer.run(self._now())
            self._arm(consumer)

    def _arm(self, consumer: Consumer) -> None:
        """See to it that the consumer runs when it has to."""
        due = consumer.due
        armed = self._timers.get(consumer)
        if due == NEVER or (armed is not None and armed[0] <= due):
            return
        if armed is not None:
            armed[1].cancel()
        timer = asyncio.get_running_loop().call_at(due, self._wake, consumer)
        self._timers[consumer] = (due, timer)

    def _forget_timers(self) -> None:
        for _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
