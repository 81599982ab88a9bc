"""What a PodGroup asks for at least, for pods as users reported them."""

from typing import Any

import pytest

from shared.api import kinds
from tests.unit.controller.test_jobs_die import JobStage, Successors

CARD = "huawei.com/Ascend910"
EIGHT = {"requests": {"cpu": "1", CARD: "8"}, "limits": {CARD: "8"}}
BEFORE_STOP = {"postStart": {"exec": {"command": ["true"]}}}
MAIN = {"name": "c", "image": "i", "resources": EIGHT}
PREPARES = {"name": "prep", "image": "i", "resources": EIGHT}
STAYS = {**PREPARES, "restartPolicy": "Always", "lifecycle": BEFORE_STOP}


async def made(*, init: list[dict[str, Any]], resources: dict[str, Any]) -> JobStage:
    """Let the controller see a job of one pod."""
    stage = JobStage()
    main = {**MAIN, "resources": resources}
    pod = {"spec": {"containers": [main], "initContainers": init}}
    tasks = [{"name": "w", "replicas": 1, "template": pod}]
    stage.create(kinds.JOB, "j", {"tasks": tasks, "minAvailable": 1})
    successors = Successors(stage, dies_at=0)
    await successors.settle()
    stage.advance_jobs()
    await successors.settle()
    return stage


def minimum(stage: JobStage) -> dict[str, str]:
    (group,) = stage.items(kinds.PODGROUP)
    found: dict[str, str] = group["spec"]["minResources"]
    return found


@pytest.mark.parametrize(
    ("init", "cards"), [([STAYS], "16"), ([PREPARES], "8")], ids=["sidecar", "init container"]
)
async def test_a_sidecar_runs_beside_and_an_init_container_before(
    init: list[dict[str, Any]], cards: str
) -> None:
    """Reported as kubernetes#131379: a pod with a sidecar was placed where it could not start."""
    assert minimum(await made(init=init, resources=EIGHT))[CARD] == cards


async def test_the_lifecycle_of_a_sidecar_is_kept() -> None:
    """Reported as volcano#3794."""
    stage = await made(init=[STAYS], resources=EIGHT)
    (pod,) = stage.items(kinds.POD)
    (container,) = pod["spec"]["initContainers"]
    assert container["lifecycle"] == BEFORE_STOP
    assert container["restartPolicy"] == "Always"
