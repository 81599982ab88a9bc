"""The keys of plugin ssh on a real API server: made by the controller, and made once (JP3)."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from pumice.local.control_plane import ControlPlane
from tests.integration.controller.conftest import Hand
from tests.support.fleet import Fleet, fleet
from tests.support.world import job, task

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def services(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Fleet]:
    """The processes of one test, whose controller is killed."""
    async with fleet(control_plane, tmp_path) as running:
        await running.start("cache")
        yield running


async def test_the_keys_of_a_job_outlive_the_controller_jp3(services: Fleet, hand: Hand) -> None:
    """Pods that run have read them: a new controller must not make others."""
    first = await services.start("controller", instance="a")
    await hand.submit(job("keyed", task("a", 1), plugins={"ssh": []}))
    await hand.wait_pods(1)
    made = await hand.api.get("secrets", hand.namespace, "keyed-ssh")
    assert set(made["data"]) == {"id_rsa", "id_rsa.pub", "authorized_keys", "config"}
    first.kill()
    await services.start("controller", instance="b")
    scaled = await hand.job("keyed")
    scaled["spec"]["tasks"][0]["replicas"] = 2
    await hand.api.patch("jobs", hand.namespace, "keyed", {"spec": scaled["spec"]})
    await hand.wait_pods(2)
    kept = await hand.api.get("secrets", hand.namespace, "keyed-ssh")
    assert kept["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
