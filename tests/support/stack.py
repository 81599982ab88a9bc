"""Fixtures with real servers: `nats_server` for contract tests, `control_plane` for integration.

`nats_server` is one server per test (it starts in a tenth of a second and may be killed by the
test); `session_nats` one per session and xdist worker, not to be disturbed.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from pumice.local.nats import NatsServer
from pumice.local.parts import nats_server_binary

NatsFactory = Callable[[], NatsServer]


@pytest_asyncio.fixture
async def nats_server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    """A running nats-server of this test alone: `url`, `environ(user)`, `restart(kill=True)`."""
    async with AsyncExitStack() as stack:
        server = NatsServer(binary=nats_server_binary(), directory=tmp_path / "nats")
        stack.push_async_callback(server.stop)
        await server.start()
        yield server


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def session_nats(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[NatsServer]:
    """A nats-server for the whole session: take your own cluster name as subject prefix."""
    directory = tmp_path_factory.mktemp("nats")
    async with AsyncExitStack() as stack:
        server = NatsServer(binary=nats_server_binary(), directory=directory)
        stack.push_async_callback(server.stop)
        await server.start()
        yield server
