"""The services on three NATS servers: one dies, freezes, loses its disk or is cut off."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from pumice.local.control_plane import ControlPlane
from shared.contracts.streams import streams
from tests.restart.conftest import NODE_CPU, NODES
from tests.restart.scene import Scene
from tests.support import world
from tests.support.api import connect
from tests.support.nats_servers import NatsCluster
from tests.support.stack import real_plane

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> NatsCluster:
    return NatsCluster(tmp_path_factory.mktemp("three") / "nats", cuttable=True)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def plane(
    three: NatsCluster, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ControlPlane]:
    """A control plane whose NATS are three servers."""
    try:
        async with real_plane(tmp_path_factory.mktemp("restart"), nats=three) as running:
            async with connect(running.kubeconfig) as api:
                await world.add_nodes(api, NODES, cpu=NODE_CPU)
            yield running
    finally:
        await three.stop()


def stream(name: str) -> str:
    """Return the name of a stream of the test's cluster."""
    return str(getattr(streams("local"), name).name)


@pytest.mark.parametrize("led", ["state", "command", "lease"])
async def test_a_burst_goes_on_over_the_death_of_the_server_that_leads(
    led: str, scene: Scene, three: NatsCluster
):
    await scene.services.start_all()
    await scene.burst()
    await scene.some_bound()
    number = await three.leader_of(stream(led))
    three.servers[number].process.kill()
    await scene.all_running(90)
    await scene.submit("with-two-servers", 10)
    await scene.all_running()
    await three.restart_one(number)


async def test_a_burst_goes_on_while_a_server_loses_its_disk_and_then_another_dies(
    scene: Scene, three: NatsCluster
):
    await scene.services.start_all()
    await scene.burst()
    await scene.some_bound()
    first = await three.leader_of(stream("command"))
    await three.lose_disk(first)
    await scene.all_running(90)
    await three.restart_one(first)
    second = (first + 1) % len(three.servers)
    three.servers[second].process.kill()
    await scene.submit("after-both", 10)
    await scene.all_running(90)
    await three.restart_one(second)


async def test_a_burst_goes_on_while_the_server_that_leads_is_frozen_and_when_it_wakes(
    scene: Scene, three: NatsCluster
):
    await scene.services.start_all()
    await scene.burst()
    await scene.some_bound()
    number = await three.leader_of(stream("command"))
    three.servers[number].process.suspend()
    await scene.all_running(120)
    three.servers[number].process.resume()
    await three.healthy(number)
    await scene.submit("after-it-woke", 10)
    await scene.all_running()


async def test_a_burst_goes_on_while_the_server_that_leads_is_cut_off_with_services_on_it(
    scene: Scene, three: NatsCluster
):
    services = await scene.services.start_all()
    number = await three.leader_of(stream("lease"))
    on_it = [s for name, s in services.items() if await three.server_of(f"{name}-a") == number]
    await scene.burst()
    await scene.some_bound()
    three.cut_off(number, silently=True)
    await scene.all_running(90)
    for service in on_it:
        await service.said("has lost the others")
    await scene.submit("with-two-servers", 10)
    await scene.all_running(90)
    three.rejoin(number)
    await three.healthy()
    await scene.submit("after-it-was-back", 10)
    await scene.all_running()
