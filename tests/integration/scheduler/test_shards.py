"""A scheduler keeps to its NodeShard on the real stack, and writes its status (CA12)."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from pumice.local.control_plane import ControlPlane
from tests.support import world
from tests.support.api import Api
from tests.support.fleet import Fleet, fleet
from tests.support.wait import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]

NAMESPACE = "default"


@pytest_asyncio.fixture(loop_scope="session")
async def services(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Fleet]:
    """The four services; the scheduler uses the nodes of its shard only."""
    async with fleet(plane, tmp_path) as running:
        await running.start("scheduler", wait=False, scheduler_sharding_mode="hard")
        await running.start_all("cache", "binder", "controller")
        yield running


def shard(name: str, *nodes: str) -> dict[str, Any]:
    return {
        "apiVersion": "shard.volcano.sh/v1alpha1",
        "kind": "NodeShard",
        "metadata": {"name": name},
        "spec": {"nodesDesired": list(nodes)},
    }


async def test_a_node_is_used_when_the_scheduler_before_has_left_it(
    api: Api, services: Fleet
) -> None:
    async def status(**wanted: list[str]) -> None:
        async def probe() -> bool:
            found = (await api.get("nodeshards", "", "volcano")).get("status", {})
            return all(found.get(name, []) == nodes for name, nodes in wanted.items())

        await until(probe, deadline_s=30, describe=services.logs)

    async def placed() -> dict[str, str]:
        found = await api.items("pods", NAMESPACE)
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in found}

    async def is_placed(pods: dict[str, str]) -> None:
        await until(lambda: _equal(placed, pods), deadline_s=40, describe=services.logs)

    await api.create("nodeshards", shard("volcano", "node-0"))
    await api.create("nodeshards", shard("other", "node-1"))
    await api.patch("nodeshards", "", "other", {"status": {"nodesInUse": ["node-1"]}}, "status")
    await status(nodesInUse=["node-0"], nodesToAdd=[], nodesToRemove=[])
    await api.create("jobs", world.job("a", world.task("w", 1, cpu="3")), NAMESPACE)
    await is_placed({"a-w-0": "node-0"})

    await api.patch("nodeshards", "", "other", {"spec": {"nodesDesired": []}})
    both = {"spec": {"nodesDesired": ["node-0", "node-1"]}}
    await api.patch("nodeshards", "", "volcano", both)
    await status(nodesInUse=["node-0"], nodesToAdd=["node-1"])
    await api.create("jobs", world.job("b", world.task("w", 1, cpu="3")), NAMESPACE)
    await is_placed({"a-w-0": "node-0", "b-w-0": ""})

    await api.patch("nodeshards", "", "other", {"status": {"nodesInUse": []}}, "status")
    await status(nodesInUse=["node-0", "node-1"], nodesToAdd=[])
    await is_placed({"a-w-0": "node-0", "b-w-0": "node-1"})

    await api.patch("nodeshards", "", "volcano", {"spec": {"nodesDesired": ["node-1"]}})
    await status(nodesInUse=["node-1"], nodesToRemove=[])


async def _equal(probe: Any, wanted: dict[str, str]) -> bool:
    return bool(await probe() == wanted)
