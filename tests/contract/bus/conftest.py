"""The bus under test. Tests use the port only, unless their file is named `test_nats_*`."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio
import structlog

from pumice.local.nats import NatsServer
from shared.bus.nats import NatsBus, from_settings
from shared.contracts.streams import Streams, streams
from shared.contracts.subjects import Subjects
from shared.runtime.clock import SystemClock
from shared.runtime.common import CommonSettings
from shared.runtime.values import Secret
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


@pytest_asyncio.fixture
async def start_bus() -> AsyncIterator[Callable[..., NatsBus]]:
    """Return a function that starts a bus of one process; all end with the test."""
    tasks: list[asyncio.Task[None]] = []

    def start(
        url: str, user: str, password: str, *, status: Status | None = None, name: str = "test"
    ) -> NatsBus:
        settings = CommonSettings(nats=url, nats_user=user, nats_password=Secret(password))
        bus = from_settings(
            settings,
            service="test",
            instance=name,
            clock=SystemClock(),
            log=structlog.get_logger(),
            on_status=(status or Status()).set,
        )
        tasks.append(asyncio.create_task(bus.run()))
        return bus

    start.tasks = tasks

    yield start
    for task in tasks:
        task.cancel()
    for task in tasks:
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest_asyncio.fixture
async def open_bus(nats_server: NatsServer, start_bus: Callable[..., NatsBus]) -> OpenBus:
    """Return a function that connects one more process to this test's server."""

    async def connect(user: str = "admin", **kwargs: object) -> NatsBus:
        password = nats_server.passwords.get(user, "wrong")
        bus = start_bus(nats_server.url, user, password, **kwargs)
        async with asyncio.timeout(10):
            await bus.connected()
        return bus

    return connect


@pytest_asyncio.fixture
async def bus(open_bus: OpenBus, declared: Streams) -> NatsBus:
    """A connected bus with all streams declared."""
    opened = await open_bus()
    await opened.ensure_streams(list(all_streams(declared)))
    return opened


def all_streams(declared: Streams) -> tuple:
    return tuple(getattr(declared, name) for name in declared.__struct_fields__)


async def freeze(server: NatsServer) -> None:
    """Suspend the server, and wait until each of its threads has stopped."""
    server.process.suspend()
    threads = Path(f"/proc/{server.process.pid}/task")

    def states() -> set[str]:
        return {
            (thread / "stat").read_text().rpartition(")")[2].split()[0]
            for thread in threads.iterdir()
        }

    await until(lambda: states() == {"T"}, describe=f"{threads} to stop")


@pytest_asyncio.fixture
async def admin_api(bus: NatsBus) -> Callable[[str], Awaitable[dict]]:
    """Return a function that calls JetStream's API behind the bus's back."""

    async def call(operation: str) -> dict:
        answer = await bus._api.call(operation, None, dict, about=operation)
        assert isinstance(answer, dict), answer
        return answer

    return call
