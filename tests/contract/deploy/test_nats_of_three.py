"""The configuration of k8s/overlays/nats-of-three on three nats-servers, with its certificate."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from pumice.local.declaring import Declaring
from pumice.local.ports import free_port
from services.declarer.settings import DeclarerSettings
from shared.contracts.streams import Storage
from shared.runtime.common import CommonSettings
from shared.runtime.settings import load
from shared.runtime.values import Secret
from tests.contract.deploy.nats_of_k8s import OneOfThree
from tests.support.manifests import OVERLAYS, named, overlay
from tests.support.wait import until


@pytest_asyncio.fixture
async def servers(tmp_path: Path) -> AsyncIterator[list[OneOfThree]]:
    """Three servers, not started yet; the last has another authority than the first two."""
    ports = [free_port() for _ in range(3)]
    made = [OneOfThree(tmp_path / str(number), number, ports) for number in range(3)]
    made[1].same_certificate(made[0])
    try:
        yield made
    finally:
        async with asyncio.TaskGroup() as tasks:
            for server in made:
                tasks.create_task(server.process.stop())


def declaring(server: OneOfThree) -> Declaring:
    """Return a declarer with the settings of the overlay."""
    given = named(overlay(OVERLAYS / "nats-of-three"), "ConfigMap", "pumice-settings")["data"]
    settings = load(DeclarerSettings, service="declarer", argv=[], environ=given)
    return Declaring(
        CommonSettings(
            nats=server.url,
            nats_user="declarer",
            nats_password=Secret(server.passwords["declarer"]),
            nats_ca=str(server.ca),
            cluster=settings.cluster,
        ),
        replicas=settings.stream_replicas,
        state_storage=Storage(settings.state_storage),
    )


async def test_servers_of_one_certificate_make_a_cluster_and_a_stranger_does_not_join(servers):
    first, second, stranger = servers
    async with asyncio.TaskGroup() as tasks:
        for server in servers:
            tasks.create_task(server.start())

    def refused() -> bool:
        return "TLS route handshake error" in (stranger.directory / "nats.log").read_text()

    await until(refused, describe="the refusal of the stranger")
    await stranger.process.stop()
    stranger.same_certificate(first)
    await stranger.start()
    streams = declaring(second)
    await streams.start()
    await streams.stop()
