"""When a job will start, asked of the real services behind the real API server.

On a system of its own: where the jobs of a hundred other stories come within seconds, a forecast
expects more of them, and tells of the next seconds alone.
"""

from pathlib import Path

import pytest

from services.scheduler.config import DEFAULT_TEXT
from shared.api.time import parse
from tests.integration.scenarios.answering import answer, full_queue
from tests.integration.scenarios.playing import whole_system
from tests.integration.scenarios.scene import Scene, task

pytestmark = pytest.mark.asyncio(loop_scope="session")

STATED_S = 240


async def a_start_goes_by_what_the_holder_has_stated(scene: Scene) -> None:
    queue = await full_queue(scene, **{"pumice.dev/expected-duration": f"{STATED_S}s"})
    (begun, *_) = [pod["status"]["startTime"] for pod in (await scene.pods(2)).values()]
    await scene.submit("waits", task("a", 1, cpu="1"), queue=queue)
    told = await answer(
        scene, "pendingjobs/waits", lambda said: said.get("expectedStart", {}).get("median")
    )
    waits_s = parse(told["expectedStart"]["median"]) - parse(begun)
    assert 0.75 * STATED_S < waits_s < 1.5 * STATED_S


async def test_a_start_goes_by_what_the_holder_has_stated(tmp_path: Path) -> None:
    async with whole_system(tmp_path, DEFAULT_TEXT) as stage:
        await stage.play(a_start_goes_by_what_the_holder_has_stated)
