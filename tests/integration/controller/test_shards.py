"""NodeShards on a real API server: they appear, and follow nodes, pods and the ConfigMap (S01)."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import yaml

from tests.integration.controller.conftest import Hand, services_of_a_test
from tests.support.fleet import Fleet
from tests.support.wait import until
from tests.support.world import node

pytestmark = pytest.mark.asyncio(loop_scope="session")

FLAGS = {"controllers": "*"}
services = services_of_a_test


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(services: Fleet, hand: Hand) -> AsyncIterator[Hand]:
    """The hand; what it and the controller make for the whole cluster is removed afterwards."""
    yield hand
    await services.stop()
    for plural in ("nodeshards", "nodes"):
        for one in await hand.api.items(plural):
            if one["metadata"]["name"].startswith(hand.namespace):
                await hand.api.delete(plural, "", one["metadata"]["name"])


def config(hand: Hand, *, most: int = 0, shards: int = 2) -> dict[str, Any]:
    """Return shards of this test's own nodes by what is requested of them."""

    def shard(name: str, low: float, high: float) -> dict[str, Any]:
        bounds = {"minCPUUtil": low, "maxCPUUtil": high}
        mine = {"warmupLabel": "of-test", "warmupLabelValue": hand.namespace}
        policies = [
            {"name": "allocation-rate", "arguments": bounds},
            {"name": "warmup", "weight": 5, "arguments": mine},
            {"name": "node-limit", "arguments": {"maxNodes": most}},
        ]
        return {"name": f"{hand.namespace}-{name}", "type": "volcano", "policies": policies}

    known = [shard("low", 0.0, 0.6), shard("high", 0.7, 1.0)]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "shards"},
        "data": {"sharding.yaml": yaml.safe_dump({"schedulerConfigs": known[:shards]})},
    }


async def add_node(hand: Hand, name: str) -> str:
    body = node(f"{hand.namespace}-{name}", cpu="4")
    body["metadata"].setdefault("labels", {})["of-test"] = hand.namespace
    await hand.api.create("nodes", body)
    return str(body["metadata"]["name"])


async def wait_shards(hand: Hand, services: Fleet, low: set[str], high: set[str]) -> None:
    """Wait until each of the two shards has these nodes of this test, and see them disjoint."""
    seen: dict[str, set[str]] = {}

    async def probe() -> bool:
        nonlocal seen
        found = await hand.api.items("nodeshards")
        every = [name for one in found for name in one["spec"]["nodesDesired"]]
        assert len(every) == len(set(every)), "a node is in two shards"
        seen = {
            one["metadata"]["name"].removeprefix(f"{hand.namespace}-"): {
                name
                for name in one["spec"]["nodesDesired"]
                if name.startswith(f"{hand.namespace}-")
            }
            for one in found
        }
        return seen == {"low": low, "high": high}

    await until(probe, deadline_s=40, describe=lambda: f"{seen}\n{services.logs()}")


async def test_node_shards_appear_and_follow_nodes_and_requests(
    services: Fleet, cluster: Hand
) -> None:
    api, namespace = cluster.api, cluster.namespace
    flags = {"sharding_configmap": "shards", "sharding_configmap_namespace": namespace, **FLAGS}
    await api.create("configmaps", config(cluster), namespace)
    first, second = await add_node(cluster, "n1"), await add_node(cluster, "n2")
    dying = await services.start("controller", **flags)
    await wait_shards(cluster, services, {first, second}, set())

    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "3500m"}}}
    busy = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "busy"},
        "spec": {"nodeName": first, "schedulerName": "another", "containers": [container]},
    }
    await api.create("pods", busy, namespace)
    await wait_shards(cluster, services, {second}, {first})

    dying.kill()
    await api.delete("nodeshards", "", f"{namespace}-low")
    third = await add_node(cluster, "n3")
    await services.start("controller", instance="b", **flags)
    await wait_shards(cluster, services, {second, third}, {first})

    await api.delete("nodes", "", second)
    await cluster.report("busy", "Succeeded", 0)
    await wait_shards(cluster, services, {first, third}, set())

    await api.patch("configmaps", namespace, "shards", {"data": config(cluster, most=1)["data"]})
    await wait_shards(cluster, services, {first}, set())

    one = config(cluster, most=1, shards=1)
    await api.patch("configmaps", namespace, "shards", {"data": one["data"]})

    async def names() -> list[str]:
        return [found["metadata"]["name"] for found in await api.items("nodeshards")]

    async def is_gone() -> bool:
        return f"{namespace}-high" not in await names()

    await until(is_gone, deadline_s=40, describe=services.logs)
    assert f"{namespace}-low" in await names()
