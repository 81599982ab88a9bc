"""Pods of agent-scheduler on the real stack, beside gangs, each scheduler in its shard (Y01)."""

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

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(150)]

NAMESPACE = "default"
AGENT = "agent-scheduler"
BOTH = f"volcano,{AGENT}"


@pytest_asyncio.fixture(loop_scope="session")
async def services(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Fleet]:
    """One installation; each of its two schedulers keeps to the nodes of its shard."""
    async with fleet(plane, tmp_path) as running:
        hard = {"scheduler_sharding_mode": "hard"}
        await running.start("scheduler", wait=False, **hard)
        await running.start(
            "scheduler",
            instance="singles",
            wait=False,
            single_pods="true",
            scheduler_name=AGENT,
            scheduler_sharding_name=AGENT,
            **hard,
        )
        await running.start("cache", scheduler_name=BOTH)
        await running.start("binder", scheduler_name=BOTH)
        await running.start("controller")
        yield running


async def shard(api: Api, name: str, *nodes: str) -> None:
    await api.create(
        "nodeshards",
        {
            "apiVersion": "shard.volcano.sh/v1alpha1",
            "kind": "NodeShard",
            "metadata": {"name": name},
            "spec": {"nodesDesired": list(nodes)},
        },
    )


async def single(api: Api, name: str, *, cpu: str = "1", **more: Any) -> None:
    pod = world.pod(name, cpu=cpu, scheduler=AGENT, **more)
    pod["spec"]["tolerations"] = [{"operator": "Exists"}]
    await api.create("pods", pod, NAMESPACE)


async def test_single_pods_run_beside_gangs_without_groups_of_their_own(
    api: Api, services: Fleet
) -> None:
    async def placed() -> dict[str, str]:
        found = await api.items("pods", NAMESPACE)
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in found}

    async def are(pods: dict[str, str]) -> None:
        async def probe() -> bool:
            return await placed() == pods

        await until(probe, deadline_s=60, describe=services.logs)

    await shard(api, "volcano", "node-0")
    await shard(api, AGENT, "node-1")
    await api.create("jobs", world.job("gang", world.task("w", 2, cpu="1")), NAMESPACE)
    for name in ("a", "b"):
        await single(api, name)
    bound = {"gang-w-0": "node-0", "gang-w-1": "node-0", "a": "node-1", "b": "node-1"}
    await are(bound)
    groups = await api.items("podgroups", NAMESPACE)
    assert [group["metadata"]["name"].rpartition("-")[0][:4] for group in groups] == ["gang"]
    shown = await api.get("nodeshards", "", AGENT)
    assert shown["status"]["nodesInUse"] == ["node-1"]

    await single(api, "chosen", nodeSelector={"zone": "here"})
    bound["chosen"] = ""

    async def unschedulable() -> bool:
        pod = await api.get("pods", NAMESPACE, "chosen")
        reasons = {c["type"]: c.get("reason") for c in pod["status"].get("conditions", ())}
        return reasons.get("PodScheduled") == "Unschedulable"

    await until(unschedulable, deadline_s=30, describe=services.logs)
    await are(bound)
    await api.patch("nodes", "", "node-1", {"metadata": {"labels": {"zone": "here"}}})
    await are(bound | {"chosen": "node-1"})
    queue = await api.get("queues", "", "default")
    assert queue["status"]["allocated"]["cpu"] == "2", "gangs alone count in queues"
