"""NATS of three servers: each stream has three copies and a leader on one of the servers.

What a client can tell from one server, and nothing more: its connection ends with the server that
it is on; a stream whose leader is gone answers nobody until another is elected; a server without
the other two answers nobody at all; a publish that met the end of a leader may be stored or not,
and its acknowledgement never comes; consumers that one server alone held are gone with it. What was
acknowledged stays, streams in memory included, as long as two servers are left.
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from pumice.local.memory_nats.api import API
from pumice.local.memory_nats.link import Frame
from pumice.local.memory_nats.server import Line, MemoryNats, Peer
from tests.sim.weather import NetworkWeather

MEMBERS: Final = 3
ELECTION_S: Final = (0.2, 3.0)
_ACK: Final = "$JS.ACK."


class ThreeServers(MemoryNats):
    """Three servers that act as one; `kill_one`, `cut_one` and their ends are for nemeses."""

    def __init__(
        self,
        *,
        wall: Callable[[], float],
        weather: NetworkWeather,
        permissions: Mapping[str, Iterable[str]],
        rng: random.Random,
    ) -> None:
        super().__init__(wall=wall, weather=weather, permissions=permissions)
        self._rng = rng
        self._down: set[int] = set()
        self._cut: set[int] = set()
        self._member_of: dict[Line, int] = {}
        self._leader_of: dict[str, int] = {}
        self._elected_at: dict[str, float] = {}
        self._holder_of: dict[tuple[str, str], int] = {}

    def connect(self, client: Peer) -> Line:
        """Open a connection to one of the servers that run. Raises OSError when none does."""
        running = [member for member in range(MEMBERS) if member not in self._down]
        if not running:
            raise ConnectionRefusedError("connection refused")
        line = super().connect(client)
        self._member_of[line] = self._rng.choice(running)
        return line

    def draw(self) -> int:
        """Return one of the servers that run and are not cut off."""
        return self._rng.choice(sorted(set(range(MEMBERS)) - self._down - self._cut))

    def kill_one(self, member: int) -> None:
        """Kill -9 of one server: its connections break, its streams and consumers need others."""
        self._down.add(member)
        self._leave(member)
        for line in [line for line, at in self._member_of.items() if at == member]:
            line.break_off()
        for (stream, name), holder in list(self._holder_of.items()):
            if holder == member:
                del self._holder_of[stream, name]
                self._end_consumer(stream, name)

    def start_one(self, member: int) -> None:
        """Start a server again; it has caught up with the others when it takes part."""
        self._down.discard(member)

    def cut_one(self, member: int) -> None:
        """Cut one server off from the other two: its clients are heard by nobody."""
        self._cut.add(member)
        self._leave(member)

    def mend_one(self, member: int) -> None:
        """Let it reach the others again."""
        self._cut.discard(member)

    def receive(self, line: Line, frame: Frame) -> None:
        """Take a message where a leader can take it; what meets none is lost without a word."""
        stream = self._stream_of(frame.subject)
        if self._member_of.get(line) in self._cut or not self._led(stream):
            return
        super().receive(line, frame)
        self._note_holders(stream)

    def reaches(self, line: Line) -> bool:
        """Tell whether a connection is on one of the servers that know each other."""
        return self._member_of.get(line) not in self._cut

    def _stream_of(self, subject: str) -> str:
        if subject.startswith((_ACK, API)):
            return next((token for token in subject.split(".") if token in self._names()), "")
        taking = self.jetstream.taking(subject)
        return taking.config["name"] if taking is not None else ""

    def _names(self) -> dict[str, object]:
        return dict(self.jetstream.streams)

    def _led(self, stream: str) -> bool:
        """Tell whether a stream has a leader; a stream that is new gets one at once."""
        now = asyncio.get_running_loop().time()
        if len(self._down | self._cut) > 1:
            return False
        if stream and stream not in self._leader_of:
            self._leader_of[stream] = self.draw()
        return now >= self._elected_at.get(stream, 0.0)

    def _leave(self, member: int) -> None:
        """Let the streams that a server led elect another leader, which takes a while."""
        now = asyncio.get_running_loop().time()
        others = sorted(set(range(MEMBERS)) - self._down - self._cut)
        for stream, leader in self._leader_of.items():
            if leader == member and others:
                self._leader_of[stream] = self._rng.choice(others)
                self._elected_at[stream] = now + self._rng.uniform(*ELECTION_S)

    def _note_holders(self, stream: str) -> None:
        """Let consumers that are not durable live on one server."""
        for name, consumer in self.jetstream.consumers.get(stream, {}).items():
            if not consumer.durable:
                self._holder_of.setdefault((stream, name), self._leader_of[stream])

    def _end_consumer(self, stream: str, name: str) -> None:
        consumer = self.jetstream.consumers.get(stream, {}).pop(name, None)
        if consumer is not None:
            consumer.end()
