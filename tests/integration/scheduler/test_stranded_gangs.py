"""A gang that loses a pod to a repair of its node gets the node back (volcano#5805)."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from pumice.local.control_plane import ControlPlane
from services.scheduler.config import DEFAULT_TEXT
from tests.support import world
from tests.support.api import Api
from tests.support.fleet import Fleet, fleet
from tests.support.wait import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

NAMESPACE = "default"
BELOW_MINIMUM_FIRST = """\
- name: gang
    arguments: {belowMinimumFirst: true}
"""
ONCE = {"spec": {"restartPolicy": "Never"}}


@pytest_asyncio.fixture(loop_scope="session")
async def services(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Fleet]:
    """The four services; gangs below their minimum come first, the rest is by default."""
    conf = tmp_path / "volcano-scheduler.conf"
    conf.write_text(DEFAULT_TEXT.replace("- name: gang\n", BELOW_MINIMUM_FIRST))
    async with fleet(plane, tmp_path) as running:
        await running.start("scheduler", wait=False, scheduler_conf=str(conf))
        await running.start_all("cache", "binder", "controller")
        yield running


async def nodes_of(api: Api, job: str) -> dict[str, str]:
    """Return pod → node of the pods of a job that have one and are not leaving."""
    pods = await api.items("pods", NAMESPACE)
    return {
        pod["metadata"]["name"]: pod["spec"]["nodeName"]
        for pod in pods
        if pod["metadata"]["name"].startswith(f"{job}-")
        and pod["spec"].get("nodeName")
        and "deletionTimestamp" not in pod["metadata"]
    }


async def why(api: Api, job: str) -> str:
    """Return why the PodGroup of a job waits."""
    groups = await api.items("podgroups", NAMESPACE)
    conditions = [
        condition
        for group in groups
        if group["metadata"]["name"].startswith(f"{job}-")
        for condition in group.get("status", {}).get("conditions", [])
    ]
    return "".join(c["message"] for c in conditions if c["type"] == "Unschedulable")


async def test_a_gang_gets_its_repaired_node_back_before_younger_work(
    api: Api, services: Fleet
) -> None:
    gang = world.job("gang", world.bare_task("w", 2, {"cpu": "3"}, template=ONCE))
    await api.create("jobs", gang, NAMESPACE)

    async def whole() -> bool:
        return set((await nodes_of(api, "gang")).values()) == {"node-0", "node-1"}

    await until(whole, describe=services.logs)
    filler = world.bare_task("w", 2, {"cpu": "3"}, template=ONCE)
    await api.create("jobs", world.job("filler", filler, min_available=1), NAMESPACE)

    async def filler_waits() -> bool:
        return "insufficient cpu" in await why(api, "filler")

    await until(filler_waits, describe=services.logs)
    await api.patch("nodes", "", "node-1", {"spec": {"unschedulable": True}})
    (lost,) = (pod for pod, node in (await nodes_of(api, "gang")).items() if node == "node-1")
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{lost}"
    await api.request("DELETE", path, {"gracePeriodSeconds": 0})

    async def says_so() -> bool:
        message = await why(api, "gang")
        return "1 Pending, 1 Running" in message and "below the minimum of 2" in message

    await until(says_so, describe=services.logs)
    await api.patch("nodes", "", "node-1", {"spec": {"unschedulable": False}})
    await until(whole, describe=services.logs)
    assert await nodes_of(api, "filler") == {}
