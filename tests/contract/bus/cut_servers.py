"""Three servers of which one can be cut off: real ones, and those of the simulation."""

import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import structlog
from nats.aio.client import Client

from pumice.embedded.memory_nats.client import MemoryClient
from pumice.embedded.memory_nats.link import PerfectNetwork
from shared.bus.connection import BusCredentials, BusOptions
from shared.bus.nats import NatsBus, running
from shared.contracts.permissions import permissions
from shared.contracts.streams import all_streams, copied, streams
from shared.runtime.clock import SystemClock
from tests.sim.three import MEMBERS, ThreeServers
from tests.support.nats_servers import NatsCluster

_STREAMS = streams("local")


class RealThree:
    """Three nats-servers."""

    def __init__(self, directory: Path) -> None:
        self._servers = NatsCluster(directory, cuttable=True)
        self.start = self._servers.start
        self.stop = self._servers.stop
        self.leader_of = self._servers.leader_of
        self.cut_off = self._servers.cut_off
        self.rejoin = self._servers.rejoin
        self.healthy = self._servers.healthy

    def bus(self, *, leaves: bool) -> NatsBus:
        """Return a bus that knows all servers; with `leaves` it leaves a server that is alone."""
        return _bus(self._servers.url, self._servers.passwords["admin"], leaves=leaves)

    def number_of(self, bus: NatsBus) -> int:
        """Return which server a bus is connected to, -1 when it is not."""
        session = bus._connection.current
        url = session.client.connected_url if session and isinstance(session.client, Client) else 0
        ports = {server.port: number for number, server in enumerate(self._servers.servers)}
        return ports[url.port] if url and url.port else -1


class ModelThree:
    """The three servers of the simulation, in real time."""

    def __init__(self, _directory: Path) -> None:
        table = {user: allowed.publish for user, allowed in permissions("local").items()}
        self._servers = ThreeServers(
            wall=time.time, network=PerfectNetwork(), permissions=table, rng=random.Random(1)
        )
        self.rejoin = self._servers.mend_one

    async def start(self) -> None:
        """Declare the streams."""
        async with running(self.bus(leaves=False)) as bus:
            await bus.ensure_streams(copied(all_streams(_STREAMS), MEMBERS))

    async def stop(self) -> None:
        """End all connections."""
        self._servers.kill()

    async def leader_of(self, stream: str) -> int:
        """Return which server leads a stream."""
        return self._servers.leader_of(stream)

    def cut_off(self, number: int, *, silently: bool) -> None:
        """Cut a server off from the other two."""
        self._servers.cut_one(number, silently=silently)

    async def healthy(self) -> None:
        """Return at once: none is told to be unhealthy."""

    def bus(self, *, leaves: bool) -> NatsBus:
        """Return a bus; with `leaves` it leaves a server that is alone."""
        return _bus("nats://three", "", leaves=leaves, nats=self._servers)

    def number_of(self, bus: NatsBus) -> int:
        """Return which server a bus is connected to, -1 when it is not."""
        session = bus._connection.current
        client = session.client if session is not None else None
        return self._servers.member_of(client) if isinstance(client, MemoryClient) else -1


Three = RealThree | ModelThree
THREE: dict[str, Callable[[Path], Three]] = {"simulated": ModelThree, "nats": RealThree}


def _bus(url: str, password: str, *, leaves: bool, nats: ThreeServers | None = None) -> NatsBus:
    options = BusOptions(
        url=url,
        name="test",
        inbox="_INBOX_admin",
        credentials=BusCredentials(user=lambda: "admin", password=lambda: password),
        copied=_STREAMS.lease.name if leaves else "",
    )
    dial = {} if nats is None else {"dial": partial(MemoryClient, nats)}
    return NatsBus(
        options,
        clock=SystemClock(),
        log=structlog.get_logger(),
        on_status=lambda **_: None,
        **dial,
    )


@asynccontextmanager
async def bus_on(three: Three, number: int, *, leaves: bool = True) -> AsyncIterator[NatsBus]:
    """Open a bus that is connected to one of the servers at first."""
    async with contextlib.AsyncExitStack() as stack:
        while True:
            bus = await stack.enter_async_context(running(three.bus(leaves=leaves)))
            if three.number_of(bus) == number:
                yield bus
                return
            await stack.aclose()


@asynccontextmanager
async def cut_off(three: Three, number: int, *, silently: bool) -> AsyncIterator[None]:
    """Cut a server off for the length of a block."""
    three.cut_off(number, silently=silently)
    try:
        yield
    finally:
        three.rejoin(number)
        await three.healthy()
