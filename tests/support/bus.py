"""A bus connection of the administrator, for tests that look into the streams."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from pumice.deploy.nats_accounts import ADMIN
from pumice.local.nats import NatsServer
from shared.bus.connection import BusCredentials, BusOptions
from shared.bus.nats import NatsBus, running
from shared.runtime.clock import SystemClock
from tests.support.nats_cluster import NatsCluster


@asynccontextmanager
async def admin_bus(server: NatsServer | NatsCluster, user: str = ADMIN) -> AsyncIterator[NatsBus]:
    """Open a bus to `server` as the administrator, or as another user of it."""
    password = server.environ(user)["PUMICE_NATS_PASSWORD"]
    options = BusOptions(
        url=server.url,
        name=f"test-{user}",
        inbox=f"_INBOX_{user}",
        credentials=BusCredentials(user=lambda: user, password=lambda: password),
        tls=None,
    )
    bus = NatsBus(
        options, clock=SystemClock(), log=structlog.get_logger(), on_status=lambda **_: None
    )
    async with running(bus):
        yield bus
