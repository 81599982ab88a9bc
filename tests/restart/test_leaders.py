"""Two of each: one leads and the other takes over, a zombie is refused, replicas share the work."""

import pytest

from services.cache.adapters.watcher import RELIST_MAX
from shared.contracts.codec import decode_lease
from shared.contracts.streams import streams
from shared.contracts.subjects import Subjects
from tests.restart.scene import GANGS, Scene
from tests.support.fleet import NEVER, SERVICES, Service
from tests.support.nats_servers import admin_bus
from tests.support.wait import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]


async def leader(scene: Scene, service: str) -> str:
    """Return the instance that holds a service's lease, read from the stream itself."""
    cluster = scene.plane.options.cluster
    async with admin_bus(scene.plane.nats) as bus:
        found = await bus.last(
            streams(cluster).lease.name, Subjects(cluster=cluster).lease(service)
        )
    return decode_lease(found.payload).holder if found else ""


@pytest.mark.parametrize("service", ["cache", "scheduler"])
async def test_a_standby_takes_over_from_a_killed_leader_long_before_its_lease_runs_out(
    service, scene: Scene
):
    first = await _two_replicas_at_work(scene, service, lease_takeover=NEVER)
    first.kill()
    await until(lambda: _led_by(scene, service, "second"), describe="second leads")
    await scene.all_running()


async def test_a_cache_that_holds_many_pods_takes_over_in_a_rush_and_loses_none(scene: Scene):
    """So many that it does not list them anew, but goes on with its watch."""
    first = await _two_replicas_at_work(scene, "cache", gangs=52, cpu="100m")
    await until(
        lambda: len(scene.judge.pods) > RELIST_MAX, deadline_s=60, describe=scene.services.logs
    )
    first.kill()
    await scene.all_running(deadline_s=120)
    assert await _led_by(scene, "cache", "second")


async def _two_replicas_at_work(
    scene: Scene, service: str, gangs: int = GANGS, cpu: str = "1", **of_standby: str
) -> Service:
    """Return the replica that leads while another stands by and pods are being bound.

    The standby is given the flags `of_standby`.
    """
    first = await scene.services.start(service, instance="first", wait=False)
    await scene.services.start_all(*(name for name in SERVICES if name != service))
    await first.ready()
    await until(lambda: _led_by(scene, service, "first"), describe="first leads")
    await scene.services.start(service, instance="second", **of_standby)
    await scene.burst(gangs, cpu=cpu)
    await scene.some_bound()
    return first


async def _led_by(scene: Scene, service: str, instance: str) -> bool:
    return (await leader(scene, service)).startswith(f"{service}-{instance}.")


@pytest.mark.parametrize("service", ["cache", "scheduler"])
async def test_a_frozen_leader_that_wakes_up_is_refused(service, scene: Scene):
    first = await _two_replicas_at_work(scene, service)
    first.process.suspend()
    await until(lambda: _led_by(scene, service, "second"), describe="second leads")
    await scene.submit("meanwhile", 10)
    first.process.resume()
    await scene.all_running()
    assert await _led_by(scene, service, "second")
    await first.ready()
    assert await first.said("leadership_lost")


async def test_a_scheduler_that_starts_knows_binds_that_the_frozen_cache_does_not(scene: Scene):
    cache = await scene.services.start("cache")
    running = await scene.services.start_all("scheduler", "binder", "controller")
    capacity = 320
    await scene.submit("first", capacity * 55 // 100)
    await scene.submit("second", capacity * 55 // 100)
    await scene.some_bound(5)
    cache.process.suspend()
    await until(
        lambda: scene.bound() == capacity * 55 // 100, deadline_s=30, describe=scene.services.logs
    )
    running["scheduler"].kill()
    again = await scene.services.start("scheduler", instance="again", wait=False)
    await until(lambda: _is_not_ready(again), describe="the new scheduler waits for a marker")
    cache.process.resume()
    await again.ready()
    settled = scene.judge.events
    await scene.submit("small", 5)
    await until(
        lambda: len([p for p in scene.pods("small") if p["spec"].get("nodeName")]) == 5,
        deadline_s=30,
        describe=scene.services.logs,
    )
    assert scene.judge.events > settled
    assert scene.bound() == capacity * 55 // 100 + 5
    scene.expected.pop("second")


async def _is_not_ready(service) -> bool:
    missing = await service.unready()
    return bool(missing) and "ClientConnectorError" not in missing


async def test_two_binders_and_two_controllers_share_the_work(scene: Scene):
    await scene.services.start_all("cache", "scheduler")
    binders = [await scene.services.start("binder", instance=i) for i in "ab"]
    controllers = [await scene.services.start("controller", instance=i) for i in "ab"]
    await scene.burst()
    await scene.all_running()
    for binder in binders:
        assert await binder.metric("pumice_binder_items_total") > 0, binder.log[-2000:]
    for controller in controllers:
        assert await controller.metric("pumice_controller_writes_total") > 0
    binders[0].kill()
    controllers[0].kill()
    await scene.submit("after", 20)
    await scene.all_running()
