"""The nodes of a scheduler that has died go to another one, on a real API server (CA12)."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from pumice.local.control_plane import ControlPlane
from tests.support import world
from tests.support.api import Api
from tests.support.fleet import Fleet, Service, fleet
from tests.support.stack import running_nats
from tests.support.wait import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(240)]

NAMESPACE = "default"
SHARDS = "second:agent:0.0:1.0:false:0:1,volcano:volcano:0.0:1.0:false:0:100"
LEASES = "volcano-system"
OTHER = "second"
"""Scheduler, NodeShard and Lease of the second installation."""


@pytest_asyncio.fixture(loop_scope="session")
async def services(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Fleet]:
    """One installation, with the sharding controller; its scheduler keeps to its shard."""
    both = f"volcano,{OTHER}"
    async with fleet(plane, tmp_path) as running:
        await running.start("scheduler", wait=False, scheduler_sharding_mode="hard")
        await running.start("cache", wait=False, scheduler_name=both)
        await running.start("binder", wait=False)
        await running.start("controller", wait=False, controllers="*", scheduler_configs=SHARDS)
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def others(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[list[Service]]:
    """The second installation, on a bus of its own.

    Its cache has no account: the policy in k8s/base lets that one make Leases of other names only.
    """
    directory = tmp_path / OTHER
    async with (
        running_nats(directory / "nats") as nats,
        fleet(plane, directory, nats=nats) as running,
    ):
        yield [
            await running.start(
                "cache", wait=False, kubeconfig=plane.kubeconfig, scheduler_name=OTHER,
                leader_elect_resource_name=OTHER,
                leader_elect_controller_resource_name=f"{OTHER}-controller",
            ),
            await running.start(
                "scheduler", wait=False, scheduler_name=OTHER, scheduler_sharding_mode="hard",
                scheduler_sharding_name=OTHER,
            ),
            await running.start("binder", wait=False, scheduler_name=OTHER),
        ]  # fmt: skip


async def test_the_nodes_of_an_installation_that_is_killed_are_used_by_another(
    api: Api, services: Fleet, others: list[Service]
) -> None:
    async def shard(name: str) -> dict[str, Any]:
        found = [o for o in await api.items("nodeshards") if o["metadata"]["name"] == name]
        return found[0] if found else {}

    async def in_use(name: str) -> list[str]:
        return (await shard(name)).get("status", {}).get("nodesInUse", [])

    async def both_use_theirs() -> bool:
        return (len(await in_use(OTHER)), len(await in_use("volcano"))) == (1, 1)

    await until(both_use_theirs, deadline_s=90, describe=services.logs)
    held = await api.get("leases", LEASES, OTHER)
    name = f"{LEASES}/{OTHER}/{held['metadata']['uid']}.{held['spec']['leaseTransitions']}"

    async def is_signed() -> bool:
        notes = (await shard(OTHER))["metadata"].get("annotations", {})
        return notes.get("pumice.dev/leadership-term") == name

    await until(is_signed, deadline_s=30, describe=services.logs)
    await api.create("jobs", world.job("a", world.task("w", 2, cpu="3")), NAMESPACE)
    for service in others:
        service.kill()

    async def placed() -> bool:
        pods = await api.items("pods", NAMESPACE)
        return {pod["spec"].get("nodeName", "") for pod in pods} == {"node-0", "node-1"}

    await until(placed, deadline_s=100, describe=services.logs)
    second, own = await shard(OTHER), await shard("volcano")
    assert (second["spec"]["nodesDesired"], second["status"]["nodesInUse"]) == ([], [])
    assert own["status"]["nodesInUse"] == ["node-0", "node-1"]
    lease = (await api.get("leases", LEASES, OTHER))["spec"]
    assert not lease.get("holderIdentity")
    assert lease["leaseTransitions"] == held["spec"]["leaseTransitions"] + 1
    held = (await api.get("leases", LEASES, "volcano"))["metadata"]["uid"]
    term = own["metadata"]["annotations"]["pumice.dev/leadership-term"]
    assert term.startswith(f"{LEASES}/volcano/{held}.")
