"""HyperNodes on a real API server: counts of nodes, and discovery (H01 to H04)."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio
import yaml
from aiohttp import encode_basic_auth, web
from aiohttp.test_utils import TestServer

from tests.integration.controller.conftest import Hand, services_of_a_test
from tests.support.fleet import Fleet
from tests.support.roles import NAMESPACE
from tests.support.wait import until
from tests.support.world import node

pytestmark = pytest.mark.asyncio(loop_scope="session")

SOURCE = "volcano.sh/network-topology-source"
FABRIC_SECRET = "pumice-fabric-manager"
services = services_of_a_test


@pytest_asyncio.fixture(loop_scope="session")
async def network(services: Fleet, hand: Hand) -> AsyncIterator[Hand]:
    """The hand; what it and the controller make for the whole cluster is removed afterwards."""
    yield hand
    await services.stop()
    for one in await hand.api.items("hypernodes"):
        meta = one["metadata"]
        if meta["name"].startswith(hand.namespace) or SOURCE in meta.get("labels", {}):
            await hand.api.delete("hypernodes", "", meta["name"])
    for one in await hand.api.items("nodes"):
        if one["metadata"]["name"].startswith(hand.namespace):
            await hand.api.delete("nodes", "", one["metadata"]["name"])


async def add_node(hand: Hand, name: str, **labels: str) -> str:
    """Create a node of this test's own; its labels have keys of this test's own."""
    body = node(f"{hand.namespace}-{name}")
    own = {f"{hand.namespace}/{key}": value for key, value in labels.items()}
    body["metadata"].setdefault("labels", {}).update(own)
    await hand.api.create("nodes", body)
    return str(body["metadata"]["name"])


def config(hand: Hand, *levels: str, **source: Any) -> dict[str, Any]:
    labels = [{"nodeLabel": f"{hand.namespace}/{level}"} for level in levels]
    types = {"roce": [*labels, {"nodeLabel": "kubernetes.io/hostname"}]}
    entry = {"source": "label", "enabled": True, "config": {"networkTopologyTypes": types}}
    text = yaml.safe_dump({"networkTopologyDiscovery": [{**entry, **source}]})
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "topology"},
        "data": {"volcano-controller.conf": text},
    }


async def wait_hypernodes(
    hand: Hand, services: Fleet, holds: Callable[[list[dict[str, Any]]], bool]
) -> list[dict[str, Any]]:
    seen: list[dict[str, Any]] = []

    async def probe() -> bool:
        nonlocal seen
        seen = await hand.api.items("hypernodes")
        return holds(seen)

    def told() -> str:
        return f"{[(h['metadata']['name'], h.get('status')) for h in seen]}\n{services.logs()}"

    await until(probe, deadline_s=40, describe=told)
    return seen


def shape(found: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Return tier and count of nodes of what was discovered."""
    return sorted(
        (one["spec"]["tier"], one.get("status", {}).get("nodeCount", 0))
        for one in found
        if one["metadata"].get("labels", {}).get(SOURCE) == "label"
    )


async def test_nodes_below_a_hypernode_are_counted_as_they_come_and_go(
    services: Fleet, network: Hand
) -> None:
    await services.start("controller", topology_config_map=f"{network.namespace}/topology")
    first = await add_node(network, "n1", rack="a")
    await add_node(network, "n2", rack="a")
    rack, row = f"{network.namespace}-rack", f"{network.namespace}-row"

    def hypernode(name: str, tier: int, kind: str, selector: dict[str, Any]) -> dict[str, Any]:
        return {
            "apiVersion": "topology.volcano.sh/v1alpha1",
            "kind": "HyperNode",
            "metadata": {"name": name},
            "spec": {"tier": tier, "members": [{"type": kind, "selector": selector}]},
        }

    labels = {"labelMatch": {"matchLabels": {f"{network.namespace}/rack": "a"}}}
    await network.api.create("hypernodes", hypernode(rack, 1, "Node", labels))
    await network.api.create(
        "hypernodes", hypernode(row, 2, "HyperNode", {"exactMatch": {"name": rack}})
    )

    def counts(count: int) -> Callable[[list[dict[str, Any]]], bool]:
        def hold(found: list[dict[str, Any]]) -> bool:
            seen = {h["metadata"]["name"]: h.get("status", {}).get("nodeCount", 0) for h in found}
            return seen.get(rack) == seen.get(row) == count

        return hold

    await wait_hypernodes(network, services, counts(2))
    await add_node(network, "n3", rack="a")
    await wait_hypernodes(network, services, counts(3))
    await network.api.delete("nodes", "", first)
    await wait_hypernodes(network, services, counts(2))


async def test_hypernodes_are_discovered_from_labels_and_follow_them(
    services: Fleet, network: Hand
) -> None:
    for name, spine, leaf in (("n1", "s1", "l1"), ("n2", "s1", "l1"), ("n3", "s1", "l2")):
        await add_node(network, name, spine=spine, leaf=leaf)
    await add_node(network, "apart")
    await network.api.create("configmaps", config(network, "spine", "leaf"), network.namespace)
    flags = {"topology_config_map": f"{network.namespace}/topology"}
    dying = await services.start("controller", **flags)
    found = await wait_hypernodes(
        network, services, lambda found: shape(found) == [(1, 1), (1, 2), (2, 3)]
    )
    ours = {one["metadata"]["name"] for one in found}
    assert all(name.startswith("hypernode-roce-tier") for name in ours)

    dying.kill()
    await add_node(network, "n4", spine="s1", leaf="l2")
    await add_node(network, "n5", spine="s2", leaf="l3")
    await services.start("controller", instance="b", **flags)
    found = await wait_hypernodes(
        network,
        services,
        lambda found: shape(found) == [(1, 1), (1, 2), (1, 2), (2, 1), (2, 4)],
    )
    assert ours < {one["metadata"]["name"] for one in found}, "a restart finds the same names"

    await network.api.delete("nodes", "", f"{network.namespace}-n5")
    await wait_hypernodes(network, services, lambda found: shape(found) == [(1, 2), (1, 2), (2, 4)])


async def test_a_fabric_manager_is_asked_for_hypernodes(services: Fleet, network: Hand) -> None:
    asked: list[str | None] = []
    hosts = [await add_node(network, name) for name in ("u1", "u2", "u3")]
    ports = [
        {"description": "Computer IB Port", "system_name": host, "peer_node_name": switch}
        for host, switch in zip(hosts, ("leaf-a", "leaf-a", "leaf-b"), strict=True)
    ]

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.headers.get("Authorization"))
        return web.json_response(ports)

    app = web.Application()
    app.router.add_get("/ufmRest/resources/ports", answer)
    async with TestServer(app) as server:
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": FABRIC_SECRET},
            "stringData": {"username": "reader", "password": "pass"},
        }
        await network.api.create("secrets", secret, NAMESPACE)
        manager = config(
            network,
            source="ufm",
            credentials={"secretRef": {"name": FABRIC_SECRET, "namespace": NAMESPACE}},
            config={"endpoint": str(server.make_url("/"))},
        )
        await network.api.create("configmaps", manager, NAMESPACE)
        place = f"{NAMESPACE}/topology"
        host = str(server.host)
        await services.start("controller", topology_config_map=place, topology_hosts=host)

        def counts(found: list[dict[str, Any]]) -> bool:
            seen = {h["metadata"]["name"]: h.get("status", {}).get("nodeCount") for h in found}
            return seen.items() >= {"leaf-hn-0": 2, "leaf-hn-1": 1, "spine-hn": 3}.items()

        try:
            await wait_hypernodes(network, services, counts)
        finally:
            await network.api.delete("configmaps", NAMESPACE, "topology")
            await network.api.delete("secrets", NAMESPACE, FABRIC_SECRET)
    assert asked == [encode_basic_auth("reader", "pass")], "once within its interval"
