"""A pod that succeeds and is deleted at once, while the controller is away, never runs again."""

import pytest

from tests.restart.scene import Scene
from tests.support import world
from tests.support.wait import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]

JOB, PODS = "train", 3


async def job_says(scene: Scene, **wanted: object) -> None:
    """Wait until the job's status says all that is wanted."""
    status: dict = {}

    async def says() -> bool:
        status.clear()
        status.update((await scene.job(JOB)).get("status", {}))
        shown = {**status, "phase": status.get("state", {}).get("phase")}
        return all(shown.get(name) == value for name, value in wanted.items())

    await until(says, deadline_s=60, describe=lambda: f"{status}\n{scene.services.logs()}")


async def succeed_and_go(scene: Scene, pod: str) -> None:
    """Let a pod succeed, and delete it in the next request."""
    done = {"status": {"phase": "Succeeded"}}
    await scene.api.patch("pods", scene.namespace, pod, done, sub="status")
    await scene.api.delete("pods", scene.namespace, pod)
    key = f"{scene.namespace}/{pod}"
    await until(lambda: key not in scene.judge.pods, describe=f"{pod} to be gone")


async def test_a_pod_that_goes_with_its_success_while_the_controller_is_away_counts_for_good(
    scene: Scene,
):
    running = await scene.services.start_all()
    job = world.job(JOB, world.task("w", PODS))
    await scene.api.create("jobs", job, scene.namespace)
    await job_says(scene, running=PODS, phase="Running")
    running["controller"].kill()
    await succeed_and_go(scene, f"{JOB}-w-1")
    await scene.services.start("controller", instance="again")
    await job_says(scene, running=PODS - 1, succeeded=1, phase="Running")
    for index in (0, 2):
        await succeed_and_go(scene, f"{JOB}-w-{index}")
    await job_says(scene, succeeded=PODS, phase="Completed")
    assert not scene.pods(JOB), "none was made again"
