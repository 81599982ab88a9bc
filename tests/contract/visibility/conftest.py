"""The stage on which a scheduler and the answers of visibility follow the same facts."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from pumice.local.nats import NatsServer
from services.visibility.app import following_parts
from services.visibility.interface import Queries
from services.visibility.settings import VisibilitySettings
from shared.api.whatifs import WhatIfSpec
from shared.bus.service import BusComponents
from shared.runtime.errors import Retryable
from shared.runtime.tasks import TaskGroup
from tests.contract.scheduler.scheduler_stage import STREAMS, Stage, scheduler_stage
from tests.support.env import context_of_a_test
from tests.support.nats_servers import admin_bus
from tests.support.wait import until


@pytest_asyncio.fixture
async def stage(nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[Stage]:
    async with scheduler_stage(nats_server, tmp_path) as opened:
        yield opened


Instance = Callable[..., contextlib.AbstractAsyncContextManager[Queries]]


@pytest_asyncio.fixture
async def answers(instance: Instance) -> AsyncIterator[Queries]:
    """Queries that follow the bus with the rights of visibility."""
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


def question(**spec: object) -> WhatIfSpec:
    return msgspec.json.decode(msgspec.json.encode(spec), type=WhatIfSpec)


async def pending(answers: Queries) -> list[str] | str:
    """Return the names of the jobs that wait, or why that is not known."""
    try:
        return [job.metadata.name for job in await answers.pending_jobs()]
    except Retryable as error:
        return str(error)


async def until_pending(answers: Queries, *names: str) -> None:
    """Wait until exactly these jobs wait."""
    last: list[str] | str = []

    async def found() -> bool:
        nonlocal last
        last = await pending(answers)
        return last == list(names)

    await until(found, deadline_s=10, describe=lambda: str(last))
