"""kill -9 each service, NATS and the API server in the middle of a burst; any start order."""

import itertools

import pytest

from tests.restart.scene import Scene
from tests.support.fleet import SERVICES
from tests.support.wait import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]


@pytest.mark.parametrize("victim", SERVICES)
async def test_a_burst_survives_a_kill_of_the(victim, scene: Scene):
    running = await scene.services.start_all()
    await scene.burst()
    await scene.some_bound()
    running[victim].kill()
    await scene.services.start(victim, instance="again")
    await scene.all_running()


async def test_a_burst_survives_a_kill_of_nats_which_loses_its_memory(scene: Scene):
    running = await scene.services.start_all()
    await scene.burst()
    await scene.some_bound()
    await scene.plane.nats.restart(kill=True)
    await scene.all_running()
    for service in running.values():
        assert service.process.pid, service.process.describe_end()
        await service.ready()


async def test_a_burst_survives_a_kill_of_the_api_server(scene: Scene):
    running = await scene.services.start_all()
    await scene.burst()
    await scene.some_bound()
    await scene.plane.restart("kube-apiserver", kill=True)
    await scene.all_running(deadline_s=90)
    for service in running.values():
        assert service.process.pid, service.process.describe_end()
        await service.ready()


ORDERS = [
    SERVICES,
    tuple(reversed(SERVICES)),
    *itertools.islice(itertools.permutations(SERVICES), 7, 20, 8),
]


@pytest.mark.parametrize("order", ORDERS, ids=" ".join)
async def test_services_may_start_in_the_order(order, scene: Scene):
    await scene.submit("early", 5)
    for name in order:
        service = await scene.services.start(name, wait=False)
        alive = service.process
        await until(lambda alive=alive: alive.pid, describe=alive.describe_end)
    await scene.submit("late", 5)
    await scene.all_running()
