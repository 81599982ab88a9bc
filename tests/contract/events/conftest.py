"""A server of the test's own, publishers and subscribers on it.

Subscribers must not tell nats-server from the server in memory: each test runs on both.
"""

import asyncio
import contextlib

import msgspec
import pytest
import pytest_asyncio
import structlog

from pumice.events import subscribe
from shared.bus.nats import from_settings
from shared.contracts.streams import streams
from shared.runtime.clock import SystemClock
from shared.runtime.common import CommonSettings
from shared.runtime.values import Secret
from tests.contract.events.publishing import Publisher
from tests.support.nats_servers import ListeningNats
from tests.support.stack import running_nats


@pytest_asyncio.fixture(params=["nats", "memory"])
async def nats_server(request, tmp_path):
    """A running server of this test alone."""
    if request.param == "nats":
        async with running_nats(tmp_path / "nats") as server:
            yield server
        return
    server = ListeningNats(tmp_path / "nats")
    await server.start()
    yield server
    await server.stop()


@pytest_asyncio.fixture
async def as_user(nats_server):
    """Return a function that connects a bus as one of the server's users."""
    tasks = []

    async def connect(user):
        bus = from_settings(
            CommonSettings(
                nats=nats_server.url,
                nats_user=user,
                nats_password=Secret(nats_server.passwords[user]),
            ),
            service=user,
            instance=f"{user}-1",
            clock=SystemClock(),
            log=structlog.get_logger(),
            on_status=lambda *, ok, reason: None,
        )
        tasks.append(asyncio.create_task(bus.run()))
        await bus.connected()
        return bus

    yield connect
    for task in tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest_asyncio.fixture
async def publisher(as_user):
    return Publisher(await as_user("scheduler"))


@pytest_asyncio.fixture
async def resized(as_user):
    """Return a function that gives the stream another size."""
    bus = await as_user("admin")

    async def resize(max_bytes):
        spec = msgspec.structs.replace(streams("local").events, max_bytes=max_bytes)
        await bus.ensure_streams([spec])

    return resize


@pytest.fixture
def listen(nats_server):
    """Subscribe as the user that the server has for subscribers."""
    return lambda **kwargs: subscribe(
        nats_server.url, user="events", password=nats_server.passwords["events"], **kwargs
    )
