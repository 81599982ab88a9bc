"""The cache as processes of their own, each test with a NATS of its own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pumice.local.nats import NatsServer
from services.cache.kinds import rows
from shared.bus.nats import NatsBus
from shared.bus.values import Message
from shared.contracts import codec
from shared.contracts.messages import Fact, Marker
from shared.contracts.streams import streams
from shared.contracts.subjects import Subjects
from tests.support.fleet import Fleet, Place, fleet
from tests.support.nats_servers import admin_bus
from tests.support.wait import until

KINDS = len(rows(["volcano"]))


class State:
    """What the STATE stream says."""

    def __init__(self, bus: NatsBus, cluster: str) -> None:
        self._bus = bus
        self._subjects = Subjects(cluster=cluster)
        self.stream = streams(cluster).state.name

    async def message(self, kind: str, key: str) -> Message | None:
        return await self._bus.last(self.stream, self._subjects.state(kind, key))

    async def fact(self, kind: str, key: str) -> Fact | None:
        message = await self.message(kind, key)
        return codec.decode_fact(message.payload) if message else None

    async def says(self, op: str, kind: str, key: str, *, text: str = "") -> Fact:
        """Wait until the last fact of an object has this op, and `text` in its body."""

        async def found() -> Fact | None:
            fact = await self.fact(kind, key)
            good = fact and fact.op.value == op and text.encode() in bytes(fact.body)
            return fact if good else None

        return await until(found, describe=f"{op} {kind} {key} {text}")

    async def marker(self) -> Marker | None:
        message = await self._bus.last(self.stream, self._subjects.marker)
        return codec.decode_marker(message.payload) if message else None

    async def marked_by(
        self, instance: str, *, kinds: int = KINDS, deadline_s: float = 30
    ) -> Marker:
        """Wait for a marker of that instance with so many complete kinds."""

        async def found() -> Marker | None:
            marker = await self.marker()
            good = marker and marker.instance == instance and len(marker.complete) == kinds
            return marker if good else None

        return await until(found, deadline_s=deadline_s, describe=f"a marker of {instance}")


@pytest.fixture
async def caches(kubeconfig: Path, nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[Fleet]:
    async with fleet(Place(kubeconfig, nats_server), tmp_path) as services:
        yield services


@pytest.fixture
async def state(nats_server: NatsServer) -> AsyncIterator[State]:
    async with admin_bus(nats_server) as bus:
        yield State(bus, nats_server.cluster)
