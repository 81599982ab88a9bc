"""What stories about the answers of visibility share: asking, and a queue that is full."""

from collections.abc import Callable
from typing import Any

from shared.api.visibility import API_VERSION
from tests.integration.scenarios.scene import Object, Scene, task
from tests.support import world
from tests.support.api import ApiError

ROOT = f"/apis/{API_VERSION}"


async def answer(scene: Scene, place: str, accept: Callable[[Object], Any]) -> Object:
    """Wait for an answer that is accepted; `place` is below the namespace, or begins with `/`."""
    url = f"{ROOT}{place}" if place[0] == "/" else f"{ROOT}/namespaces/{scene.namespace}/{place}"
    seen: Object | str = ""

    async def found() -> Object | None:
        nonlocal seen
        try:
            seen = await scene.api.request("GET", url)
        except ApiError as error:
            seen = str(error)
            if error.status not in {404, 503}:  # not known yet, or not synced
                raise
            return None
        return seen if accept(seen) else None

    told: Object = await scene.wait(found, lambda: f"{place}, it says {seen}")
    return told


async def full_queue(scene: Scene, **annotations: str) -> str:
    """Make a queue of two CPUs whose one job holds both of them; return its name."""
    queue = await scene.queue("q", capability={"cpu": "2"})
    job = world.job("holder", task("a", 2, cpu="1"), queue=queue)
    job["metadata"]["annotations"] = annotations
    await scene.api.create("jobs", job, scene.namespace)
    await scene.phase("holder", "Running")
    return queue
