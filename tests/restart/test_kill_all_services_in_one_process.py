"""kill -9 of `pumice run --in-process` under load: services and bus end at once, bus and all."""

from pathlib import Path

import pytest

from tests.restart.scene import Scene
from tests.support.pumice_run import ServicesProcess, pumice_run

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(240)]


async def test_a_burst_survives_kills_of_the_process_with_all_services_and_the_bus(
    scene: Scene, tmp_path: Path
):
    data = tmp_path / "run"
    words = ("--kubeconfig", str(scene.plane.kubeconfig), "--data-dir", str(data))
    async with pumice_run("--in-process", *words) as run:
        await run.ready()
        together = ServicesProcess(data)
        await scene.burst(size=20)
        for bound in (10, 100):
            await scene.some_bound(bound)
            assert scene.bound() < scene.total, "the kill comes too late to break anything"
            await together.kill()
        await scene.all_running(deadline_s=90)
        assert sum("was killed by SIGKILL" in line for line in run.lines) == 2
        await run.stop()
