"""The stage on which a scheduler and the answers of visibility follow the same facts."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from pumice.local.nats import NatsServer
from services.visibility.app import following_parts
from services.visibility.interface import Queries
from services.visibility.settings import VisibilitySettings
from shared.bus.service import BusComponents
from shared.runtime.tasks import TaskGroup
from tests.support.bus import admin_bus
from tests.support.scheduler_stage import STREAMS, Stage, scheduler_stage
from tests.support.visibility import context_of_a_test


@pytest_asyncio.fixture
async def stage(nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[Stage]:
    async with scheduler_stage(nats_server, tmp_path) as opened:
        yield opened


Instance = Callable[..., contextlib.AbstractAsyncContextManager[Queries]]


@pytest_asyncio.fixture
async def answers(instance: Instance) -> AsyncIterator[Queries]:
    """Answers that follow the bus with the rights of visibility."""
    async with instance() as found:
        yield found


@pytest.fixture
def instance(nats_server: NatsServer, stage: Stage) -> Instance:
    """Give instances of visibility, each of which knows nothing when it begins, by settings."""
    assert stage.marking
    return lambda **settings: _instance(nats_server, VisibilitySettings(**settings))


@contextlib.asynccontextmanager
async def _instance(
    nats_server: NatsServer, settings: VisibilitySettings
) -> AsyncIterator[Queries]:
    context = context_of_a_test()
    async with admin_bus(nats_server, user="visibility") as bus, TaskGroup() as tasks:
        on_bus = BusComponents(context, bus, streams=STREAMS, settings=settings)
        found, _, parts = following_parts(settings, context, bus, on_bus)
        running = [tasks.create_task(part.run(), name=part.name) for part in parts]
        yield found
        for each in running:
            each.cancel()
        await asyncio.wait(running)
