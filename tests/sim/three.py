"""NATS of three servers: each stream has three copies and a leader on one of the servers.

What a client can tell from one server, and nothing more. Its connection ends with the server that
it is on. A stream whose leader is gone does not answer until another is elected. A publish is on
its way to the copies for a moment: another one on the same condition is refused meanwhile, and one
that meets the end of a leader may be stored or not, and its acknowledgement never comes. Consumers
that one server alone held are gone with it. What was acknowledged stays, streams in memory
included, as long as two servers are left.

A server that is cut off from the other two keeps its clients (`alone`); when it is back, questions
that any copy may answer are answered from its old one for a while.
`tests/contract/bus/test_cut_off_server.py` holds this and three real servers to the same
statements.
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec
from typing_extensions import override

from pumice.embedded.memory_nats.api import API, DIRECT, failed
from pumice.embedded.memory_nats.link import Frame, SimulatedNetwork
from pumice.embedded.memory_nats.server import MemoryNats, Peer, ServerConnection
from pumice.embedded.memory_nats.stream import (
    BATCH,
    COMMIT,
    EXPECTED,
    EXPECTED_OF,
    MSG_ID,
    PublishRefusal,
)
from tests.sim.cut_off_server import CutOffServer

MEMBERS: Final = 3
ELECTION_S: Final = (0.5, 9.0)
COPYING_S: Final = (0.0005, 0.005)
LAGS_S: Final = (0.1, 3.0)
"""How long a server that is back answers from its old copy."""
_ACK: Final = "$JS.ACK."
_INFO: Final = "STREAM.INFO."
_SEQUENCE_IN_FLIGHT: Final = PublishRefusal(400, 10164, "last sequence by subject mismatch")
_ID_IN_FLIGHT: Final = PublishRefusal(409, 10158, "duplicate message id is in process")


class ThreeServers(MemoryNats):
    """Three servers that act as one; `kill_one`, `cut_one` and their ends are for nemeses."""

    def __init__(
        self,
        *,
        wall: Callable[[], float],
        network: SimulatedNetwork,
        permissions: Mapping[str, Iterable[str]],
        rng: random.Random,
    ) -> None:
        super().__init__(wall=wall, network=network, permissions=permissions)
        self._rng = rng
        self._down: set[int] = set()
        self._alone: dict[int, CutOffServer] = {}
        self._handling: int | None = None
        self._lagging: list[tuple[float, CutOffServer]] = []
        self._meta = 0
        self._member_of: dict[ServerConnection, int] = {}
        self._leader_of: dict[str, int] = {}
        self._elected_at: dict[str, float] = {}
        self._holder_of: dict[tuple[str, str], int] = {}
        self._copying: dict[tuple[str, str, str], None] = {}
        """Conditions and ids of publishes that are on their way to the copies, per stream."""
        self._copied_at: dict[str, float] = {}
        self._committing: set[str] = set()
        """Batches that are on their way to the copies."""

    @override
    def connect(self, client: Peer) -> ServerConnection:
        """Open a connection to one of the servers that run. Raises OSError when none does."""
        running = [member for member in range(MEMBERS) if member not in self._down]
        if not running:
            raise ConnectionRefusedError("connection refused")
        connection = super().connect(client)
        self._member_of[connection] = self._rng.choice(running)
        return connection

    def draw(self) -> int:
        """Return one of the servers that run and are not cut off."""
        return self._rng.choice(self._together())

    def leader_of(self, stream: str) -> int:
        """Return which server leads a stream."""
        return self._leader_of.setdefault(stream, self.draw())

    def member_of(self, client: Peer) -> int:
        """Return which server a client is connected to, -1 when it is not."""
        connections = (
            at for at in self._member_of if at in self.connections and at.client is client
        )
        return next((self._member_of[connection] for connection in connections), -1)

    def kill_one(self, member: int) -> None:
        """Kill -9 of one server: its connections break, its streams and consumers need others."""
        self._down.add(member)
        self._leave(member)
        for connection in [
            connection for connection, at in self._member_of.items() if at == member
        ]:
            connection.break_off()
            del self._member_of[connection]
        for stream, name in self._held_by(member):
            consumer = self.jetstream.consumers.get(stream, {}).pop(name, None)
            if consumer is not None:
                consumer.end()

    def start_one(self, member: int) -> None:
        """Start a server again; it has caught up with the others when it takes part."""
        self._down.discard(member)

    def cut_one(self, member: int, *, silently: bool = True) -> None:
        """Cut one server off from the other two; `silently` when no connection ends by it."""
        led = {stream for stream, leader in self._leader_of.items() if leader == member}
        alone = CutOffServer(
            self.jetstream,
            name=f"nats-{member}",
            led=led,
            leads_all=self._meta == member,
            silently=silently,
            now=self._now(),
            rng=self._rng,
        )
        for stream, name in self._held_by(member):
            consumer = self.jetstream.consumers.get(stream, {}).pop(name, None)
            if consumer is not None:
                alone.keep(stream, name, consumer.take_waiting())
        self._alone[member] = alone
        self._leave(member)
        asyncio.get_running_loop().call_later(1.0, self._beat, member, alone)

    def mend_one(self, member: int) -> None:
        """Let it reach the others again.

        Where no other leader was elected yet, it leads on, and what it was sent meanwhile is done.
        """
        alone, now = self._alone.pop(member), self._now()
        for stream in sorted(alone.led):
            if now < self._elected_at.get(stream, 0.0):
                self._leader_of[stream], self._elected_at[stream] = member, now
        for stream, connection, frame in alone.held:
            if self._leader_of.get(stream) == member:
                self.receive(connection, frame)
        alone.end()
        self._lagging.append((now + self._rng.uniform(*LAGS_S), alone))

    @override
    def receive(self, connection: ServerConnection, frame: Frame) -> None:
        """Take a message where a leader can take it; what meets none is lost without a word."""
        member = self._member_of.get(connection)
        if member in self._alone:
            if connection.permits(frame.subject):
                self._receive_alone(member, connection, frame)
            return
        stream = self._stream_of(frame.subject)
        if not self._led(stream) or self._read_from_old(connection, frame):
            return
        if stream and not frame.subject.startswith((_ACK, API)):
            self._propose(stream, connection, frame)
            return
        if frame.subject.startswith(API + _INFO) and stream:
            self.jetstream.streams[stream].cluster = self._cluster(stream)
        super().receive(connection, frame)
        self._note_holders(stream)

    @override
    def is_reachable(self, connection: ServerConnection, /) -> bool:
        """Tell whether a connection is on one of the servers that know each other."""
        return self._member_of.get(connection) not in self._alone

    @override
    def gets_output(self, connection: ServerConnection, /) -> bool:
        """Tell whether what is sent at this moment comes to a connection.

        What a server that is cut off sends comes to its own clients only.
        """
        return self._member_of.get(connection) == self._handling or self.is_reachable(connection)

    def _together(self) -> list[int]:
        return sorted(set(range(MEMBERS)) - self._down - self._alone.keys())

    def _receive_alone(self, member: int, connection: ServerConnection, frame: Frame) -> None:
        """Let a server that is cut off answer a client of its own."""
        alone = self._alone[member]
        self._handling = member
        try:
            stream = self._stream_of(frame.subject)
            if frame.subject.startswith(_ACK):
                return
            if frame.subject.startswith(API):
                operation = frame.subject.removeprefix(API)
                alone.ask(connection, frame, operation, now=self._now(), wall=self._wall())
            elif stream in alone.led:
                alone.held.append((stream, connection, frame))
            elif stream or not self._tell(member, frame):
                alone.refuse(connection, frame)
        finally:
            self._handling = None

    def _tell(self, member: int, frame: Frame) -> bool:
        """Hand a message to the other clients of a server; tell whether there is a listener."""
        connections = [
            connection
            for connection in self.connections
            if self._member_of.get(connection) == member
        ]
        subject, heard = frame.subject, False
        for connection in connections:
            heard |= connection.deliver(subject, subject, frame.payload, frame.reply)
        return heard

    def _beat(self, member: int, alone: CutOffServer) -> None:
        """Send heartbeats to the readers of consumers that live on a server which is cut off."""
        if self._alone.get(member) is not alone:
            return
        self._handling = member
        alone.beat()
        self._handling = None
        asyncio.get_running_loop().call_later(1.0, self._beat, member, alone)

    def _propose(self, stream: str, connection: ServerConnection, frame: Frame) -> None:
        """Send a publish to the copies; it is stored, and answered, when they have it."""
        headers = frame.headers or {}
        if BATCH in headers and COMMIT not in headers:
            super().receive(connection, frame)  # the leader keeps it, and proposes all at once
            return
        marks = self._marks(stream, frame)
        for mark, refusal in marks.items():
            if mark in self._copying:
                said = {**failed(refusal), "stream": stream, "seq": 0}
                connection.deliver(frame.reply, frame.reply, msgspec.json.encode(said))
                return
        self._copying |= dict.fromkeys(marks)
        self._committing.add(headers.get(BATCH, ""))
        now = self._now()
        at = max(now + self._rng.uniform(*COPYING_S), self._copied_at.get(stream, 0.0))
        self._copied_at[stream] = at
        leader = self.leader_of(stream)
        asyncio.get_running_loop().call_at(at, self._copied, stream, leader, connection, frame)

    def _copied(self, stream: str, leader: int, connection: ServerConnection, frame: Frame) -> None:
        for mark in self._marks(stream, frame):
            self._copying.pop(mark, None)
        self._committing.discard((frame.headers or {}).get(BATCH, ""))
        if self._leader_of.get(stream) == leader:
            super().receive(connection, frame)
            return
        next_leader_has_it = self._rng.random() < 0.5
        if next_leader_has_it and connection.permits(frame.subject):
            super().receive(connection, msgspec.structs.replace(frame, reply=""))

    def _read_from_old(self, connection: ServerConnection, frame: Frame) -> bool:
        """Answer what any copy may answer from one that is behind; tell whether that was done."""
        now = self._now()
        self._lagging = [(until, alone) for until, alone in self._lagging if now < until]
        operation = frame.subject.removeprefix(API)
        if not self._lagging or not operation.startswith(DIRECT) or self._rng.random() < 0.5:
            return False
        return self._lagging[-1][1].read(connection, frame, operation, wall=self._wall())

    def _cluster(self, stream: str) -> dict[str, object]:
        """Return what a leader says of its copies."""
        leader = self.leader_of(stream)
        away = self._down | self._alone.keys()
        copies = [
            {"name": f"nats-{member}", "active": 10**10 if member in away else 10**8}
            for member in range(MEMBERS)
            if member != leader
        ]
        return {"leader": f"nats-{leader}", "replicas": copies}

    def _stream_of(self, subject: str) -> str:
        if subject.startswith((_ACK, API)):
            names = self.jetstream.streams
            return next((token for token in subject.split(".") if token in names), "")
        taking = self.jetstream.taking(subject)
        return str(taking.config["name"]) if taking is not None else ""

    def _led(self, stream: str) -> bool:
        """Tell whether a stream has a leader; a stream that is new gets one at once."""
        if len(self._together()) <= MEMBERS // 2:
            return False
        if stream:
            self.leader_of(stream)
        return self._now() >= self._elected_at.get(stream, 0.0)

    def _leave(self, member: int) -> None:
        """Let the streams that a server led elect another leader, which takes a while."""
        others = self._together()
        if not others:
            return
        if self._meta == member:
            self._meta = self._rng.choice(others)
        for stream, leader in self._leader_of.items():
            if leader == member:
                if stream in self.jetstream.streams:
                    self.jetstream.streams[stream].forget_batches(but=self._committing)
                self._leader_of[stream] = self._rng.choice(others)
                self._elected_at[stream] = self._now() + self._rng.uniform(*ELECTION_S)

    def _held_by(self, member: int) -> list[tuple[str, str]]:
        """Return, and forget, the consumers that live on one server."""
        held = [key for key, holder in self._holder_of.items() if holder == member]
        for key in held:
            del self._holder_of[key]
        return held

    def _note_holders(self, stream: str) -> None:
        """Let consumers that are not durable live on one server."""
        for name, consumer in self.jetstream.consumers.get(stream, {}).items():
            if not consumer.durable:
                self._holder_of.setdefault((stream, name), self._leader_of[stream])

    def _marks(self, stream: str, frame: Frame) -> dict[tuple[str, str, str], PublishRefusal]:
        """Return what no second publish may bear meanwhile, each with what that is answered."""
        headers = frame.headers or {}
        stored = self.jetstream.streams.get(stream)
        before = stored.staged(headers.get(BATCH, "")) if stored is not None else ()
        marks = {}
        for subject, of in [(frame.subject, headers), *((s.subject, s.headers) for s in before)]:
            if EXPECTED in of:
                marks[stream, "condition", of.get(EXPECTED_OF, subject)] = _SEQUENCE_IN_FLIGHT
            if MSG_ID in of:
                marks[stream, "id", of[MSG_ID]] = _ID_IN_FLIGHT
        return marks
