"""The stage on which the scheduler runs alone."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from pumice.local.nats import NatsServer
from tests.contract.scheduler.scheduler_stage import Stage, scheduler_stage


@pytest_asyncio.fixture
async def stage(nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[Stage]:
    async with scheduler_stage(nats_server, tmp_path) as opened:
        yield opened
