"""kill -9 at each named fault point, in the middle of a burst: nothing is lost, nothing doubled."""

import pytest

from tests.restart.scene import Scene
from tests.support.wait import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]

IN_A_BURST = {
    "binder.after-write": "binder.after-write@7",
    "binder.after-outcome": "binder.after-outcome@2",
    "binder.mid-gang": "binder.mid-gang@9",
    "scheduler.before-publish": "scheduler.before-publish",
    "cache.before-publish": "cache.before-publish@60",
    "cache.after-publish": "cache.after-publish@60",
}
"""Fault point to passage; the controller's and the eviction's have tests of their own."""


@pytest.mark.parametrize("point", IN_A_BURST)
async def test_a_burst_survives_a_kill_at(point, scene: Scene):
    victim = point.partition(".")[0]
    for name in ("cache", "scheduler", "binder", "controller"):
        fault = IN_A_BURST[point] if name == victim else ""
        started = await scene.services.start(name, fault=fault, wait=False)
        if name == victim:
            dying = started
    await scene.burst()
    await dying.died_at_its_fault()
    await scene.services.start(victim, instance="again")
    await scene.all_running()


async def test_a_restart_of_a_job_counts_once_when_the_controller_dies_in_it(scene: Scene):
    await scene.services.start_all("cache", "scheduler", "binder")
    controller = await scene.services.start("controller", fault="controller.after-kill")
    policy = [{"event": "PodEvicted", "action": "RestartJob"}]
    await scene.submit("again", 5, policies=policy)
    await scene.all_running()
    before = {pod["metadata"]["uid"] for pod in scene.pods("again")}
    victim = scene.pods("again")[0]["metadata"]["name"]
    await scene.api.delete("pods", scene.namespace, victim, grace_s=0)
    await controller.died_at_its_fault()
    await scene.services.start("controller", instance="again")

    async def renewed() -> bool:
        now = {pod["metadata"]["uid"] for pod in scene.pods("again")}
        return len(now) == 5 and not now & before

    await until(renewed, deadline_s=60, describe=scene.services.logs)
    await scene.all_running()
    status = (await scene.job("again"))["status"]
    assert status["retryCount"] == 1, status
