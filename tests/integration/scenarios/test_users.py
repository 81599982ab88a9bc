"""Users and their limits, from the request to the message, on a real API server."""

import json
from pathlib import Path

import pytest

from services.scheduler.config import DEFAULT_TEXT
from shared.api import keys
from tests.integration.scenarios.playing import whole_system
from tests.integration.scenarios.scene import Object, Scene, task
from tests.support import world
from tests.support.api import path

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]

CONTROLLER = "system:serviceaccount:pumice-system:pumice-controller"
LIMITED = DEFAULT_TEXT.replace(
    "  - name: gang\n",
    '  - name: gang\n  - {name: limits, arguments: {limits: [{users: ["*"], pods: 2}]}}\n',
)


async def submit_as(scene: Scene, user: str, name: str, *tasks: Object) -> None:
    """Create a job as a user with all rights."""
    headers = {
        "Content-Type": "application/json",
        "Impersonate-User": user,
        "Impersonate-Group": "system:masters",
    }
    job = json.dumps(world.job(name, *tasks))
    await scene.api.text(path("jobs", scene.namespace), "POST", data=job, headers=headers)


def user_of(obj: Object) -> str:
    found: str = obj["metadata"]["annotations"][keys.USER]
    return found


async def a_user_at_a_limit_waits_and_others_do_not(scene: Scene) -> None:
    await submit_as(scene, "ann", "first", task("a", 2))
    await scene.phase("first", "Running")
    assert user_of(await scene.group("first")) == "ann"
    assert {user_of(pod) for pod in (await scene.pods(2)).values()} == {"ann"}
    await submit_as(scene, "ann", "second", task("a", 1))
    await scene.condition("second", "Unschedulable", text="user ann holds 2 of 2 pods")
    await submit_as(scene, "bob", "theirs", task("a", 2))
    await scene.phase("theirs", "Running")
    await scene.api.delete("jobs", scene.namespace, "first")
    await scene.phase("second", "Running")


async def test_a_user_at_a_limit_waits_and_others_do_not(tmp_path: Path) -> None:
    trusted = f"--admission.trusted-requesters={CONTROLLER}"
    async with whole_system(tmp_path, LIMITED, trusted) as stage:
        await stage.play(a_user_at_a_limit_waits_and_others_do_not)
