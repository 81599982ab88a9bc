"""The bus under test, on nats-server and on the server in memory: one suite for both.

The server in memory is met twice: through its own client, and over TCP as other processes meet it.
What a test says holds for all unless it is marked `only_nats`: users, passwords, processes and
addresses are matters of the real server alone.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio
import structlog

from pumice.embedded.memory_nats.client import MemoryClient
from pumice.embedded.memory_nats.server import MemoryNats
from pumice.local import parts
from pumice.local.nats import NatsServer
from shared.bus.connection import BusCredentials, BusOptions
from shared.bus.nats import NatsBus, from_settings
from shared.contracts.streams import Streams, all_streams, durable_consumers, streams
from shared.contracts.subjects import Subjects
from shared.runtime.clock import SystemClock
from shared.runtime.common import CommonSettings
from shared.runtime.values import Secret
from tests.support.nats_servers import ListeningNats, may_publish
from tests.support.wait import until

OpenBus = Callable[..., Awaitable[NatsBus]]


class Status:
    """What the bus said of its connection, in order."""

    def __init__(self) -> None:
        self.said: list[tuple[bool, str]] = []

    def set(self, *, ok: bool, reason: str) -> None:
        self.said.append((ok, reason))

    @property
    def ok(self) -> bool:
        return bool(self.said) and self.said[-1][0]

    @property
    def reasons(self) -> str:
        return "\n".join(reason for _, reason in self.said)


@pytest.fixture
def subjects() -> Subjects:
    return Subjects(cluster="local")


@pytest.fixture
def declared() -> Streams:
    return streams("local")


class RealServer:
    """nats-server in a process of its own."""

    def __init__(self, directory: Path) -> None:
        self.nats: NatsServer | ListeningNats = NatsServer(
            binary=parts.nats_server_binary(), directory=directory, declares=False
        )

    async def start(self) -> None:
        await self.nats.start()

    async def stop(self) -> None:
        await self.nats.stop()

    async def restart(self, *, kill: bool = False) -> None:
        await self.nats.restart(kill=kill)

    def bus(self, user: str = "admin", *, status: Status, name: str) -> NatsBus:
        """Return the bus of one more process, as its settings make it."""
        settings = CommonSettings(
            nats=self.nats.url,
            nats_user=user,
            nats_password=Secret(self.nats.passwords.get(user, "wrong")),
        )
        return from_settings(
            settings,
            service="test",
            instance=name,
            clock=SystemClock(),
            log=structlog.get_logger(),
            on_status=status.set,
        )

    async def freeze(self) -> None:
        """Suspend the server, and wait until each of its threads has stopped."""
        self.nats.process.suspend()
        threads = Path(f"/proc/{self.nats.process.pid}/task")

        def states() -> set[str]:
            return {
                (thread / "stat").read_text().rpartition(")")[2].split()[0]
                for thread in threads.iterdir()
            }

        await until(lambda: states() == {"T"}, describe=f"{threads} to stop")

    def thaw(self) -> None:
        self.nats.process.resume()


class MemoryServer:
    """`pumice.embedded.memory_nats` on this test's loop."""

    def __init__(self, _directory: Path) -> None:
        self.memory = MemoryNats(wall=time.time, permissions=may_publish("local"))

    async def start(self) -> None:
        self.memory.start()

    async def stop(self) -> None:
        self.memory.kill()

    async def restart(self, *, kill: bool = False) -> None:
        self.memory.kill()
        await asyncio.sleep(0.05)
        self.memory.start()

    def bus(self, user: str = "admin", *, status: Status, name: str) -> NatsBus:
        """Return the bus of one more process."""
        return NatsBus(
            BusOptions(
                url="nats://memory",
                name=name,
                credentials=BusCredentials(user=lambda: user, password=lambda: ""),
            ),
            clock=SystemClock(),
            log=structlog.get_logger(),
            on_status=status.set,
            dial=partial(MemoryClient, self.memory),
        )

    async def freeze(self) -> None:
        self.memory.freeze()

    def thaw(self) -> None:
        self.memory.thaw()


class ListeningServer(RealServer):
    """The same server as clients of other processes meet it: over TCP, through nats-py."""

    def __init__(self, directory: Path) -> None:
        self.nats = ListeningNats(directory, declares=False)

    async def freeze(self) -> None:
        self.nats.memory.freeze()

    def thaw(self) -> None:
        self.nats.memory.thaw()


SERVERS = {"memory": MemoryServer, "listening": ListeningServer, "nats": RealServer}
Server = RealServer | MemoryServer
only_nats = pytest.mark.parametrize("server", ["nats"], indirect=True)
"""For what can be said of the real server alone."""


@pytest_asyncio.fixture(params=SERVERS)
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Server]:
    """A running server of this test alone, to be frozen and killed at will."""
    running: Server = SERVERS[request.param](tmp_path / "nats")
    await running.start()
    yield running
    await running.stop()


@pytest_asyncio.fixture
async def start_bus(server: Server) -> AsyncIterator[Callable[..., NatsBus]]:
    """Return a function that starts a bus of one process; all end with the test."""
    tasks: list[asyncio.Task[None]] = []

    def start(bus: NatsBus) -> NatsBus:
        tasks.append(asyncio.create_task(bus.run()))
        return bus

    start.tasks = tasks  # type: ignore[attr-defined]

    yield start
    for task in tasks:
        task.cancel()
    for task in tasks:
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest_asyncio.fixture
async def open_bus(server: Server, start_bus: Callable[..., NatsBus]) -> OpenBus:
    """Return a function that connects one more process to this test's server."""

    async def connect(
        user: str = "admin", *, status: Status | None = None, name: str = "test"
    ) -> NatsBus:
        bus = start_bus(server.bus(user, status=status or Status(), name=name))
        async with asyncio.timeout(10):
            await bus.connected()
        return bus

    return connect


@pytest_asyncio.fixture
async def bus(open_bus: OpenBus, declared: Streams) -> NatsBus:
    """A connected bus with all streams declared."""
    opened = await open_bus()
    await opened.ensure_streams(all_streams(declared))
    await opened.ensure_consumers(durable_consumers("local"))
    return opened


@pytest_asyncio.fixture
async def admin_api(bus: NatsBus) -> Callable[[str], Awaitable[dict]]:
    """Return a function that calls JetStream's API behind the bus's back."""

    async def call(operation: str) -> dict:
        answer = await bus._api.call(operation, None, dict, about=operation)
        assert isinstance(answer, dict), answer
        return answer

    return call
