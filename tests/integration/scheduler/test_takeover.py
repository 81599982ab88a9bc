"""The nodes of a scheduler that has died go to another one, on a real API server (CA12)."""

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

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(240)]

NAMESPACE = "default"
SHARDS = "second:agent:0.0:1.0:false:0:1,volcano:volcano:0.0:1.0:false:0:100"
LEASES = "volcano-system"


@pytest_asyncio.fixture(loop_scope="session")
async def services(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Fleet]:
    """One installation, with the sharding controller; its scheduler keeps to its shard."""
    async with fleet(plane, tmp_path) as running:
        await running.start("scheduler", wait=False, scheduler_sharding_mode="hard")
        await running.start("cache", wait=False)
        await running.start("binder", wait=False)
        await running.start("controller", wait=False, controllers="*", scheduler_configs=SHARDS)
        yield running


async def claimed_by_another(api: Api, node: str) -> None:
    """Let a scheduler `second` have claimed a node under its Lease, which it renews no more."""
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "second"},
        "spec": {"holderIdentity": "it", "leaseDurationSeconds": 15, "leaseTransitions": 3},
    }
    uid = (await api.create("leases", lease, LEASES))["metadata"]["uid"]
    notes = {"pumice.dev/tenure": f"{LEASES}/second/{uid}.3"}
    await api.patch("nodeshards", "", "second", {"metadata": {"annotations": notes}})
    await api.patch("nodeshards", "", "second", {"status": {"nodesInUse": [node]}}, "status")


async def test_the_nodes_of_a_scheduler_that_died_are_used_by_another(
    api: Api, services: Fleet
) -> None:
    async def shard(name: str) -> dict[str, Any]:
        found = [o for o in await api.items("nodeshards") if o["metadata"]["name"] == name]
        return found[0] if found else {"spec": {"nodesDesired": []}}

    async def dealt() -> bool:
        return len((await shard("second"))["spec"]["nodesDesired"]) == 1

    await until(dealt, deadline_s=90, describe=services.logs)
    (node,) = (await shard("second"))["spec"]["nodesDesired"]
    await claimed_by_another(api, node)
    await api.create("jobs", world.job("a", world.task("w", 2, cpu="3")), NAMESPACE)

    async def placed() -> bool:
        pods = await api.items("pods", NAMESPACE)
        return {pod["spec"].get("nodeName", "") for pod in pods} == {"node-0", "node-1"}

    await until(placed, deadline_s=100, describe=services.logs)
    second, own = await shard("second"), await shard("volcano")
    assert (second["spec"]["nodesDesired"], second["status"]["nodesInUse"]) == ([], [])
    assert own["status"]["nodesInUse"] == ["node-0", "node-1"]
    lease = (await api.get("leases", LEASES, "second"))["spec"]
    assert (lease.get("holderIdentity"), lease["leaseTransitions"]) == (None, 4)
    held = (await api.get("leases", LEASES, "volcano"))["metadata"]["uid"]
    tenure = own["metadata"]["annotations"]["pumice.dev/tenure"]
    assert tenure.startswith(f"{LEASES}/volcano/{held}.")
