"""What needs a program of a pod says on both API servers that a fake node starts none."""

import pytest

from pumice.embedded.fakekubelet import no_program
from pumice.local.fleet import NodeShape
from tests.contract.apiserver.client import Side
from tests.support.wait import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Protocol": "v4.channel.k8s.io",
}


@pytest.mark.parametrize(
    ("asked", "headers"),
    [
        ("log", {}),
        ("log?follow=true", {}),
        ("exec?command=ls&stdout=true", UPGRADE),
        ("attach?stdout=true", UPGRADE),
        ("portforward", UPGRADE),
    ],
)
async def test_what_needs_a_program_says_that_none_was_started(side: Side, asked, headers):
    prefix = f"{side.kind}-fake"
    await side.plane.add_nodes(NodeShape(count=1, prefix=prefix))
    namespace = await side.namespace(with_account=True)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    spec = {"nodeName": f"{prefix}-0", "containers": [{"name": "main", "image": "none"}]}
    made = await side.request("POST", pods, {"metadata": {"name": "p"}, "spec": spec})
    assert made.status == 201, made

    async def runs() -> bool:
        pod = (await side.request("GET", f"{pods}/p")).body
        return bool(pod["status"].get("phase") == "Running")

    await until(runs, describe="the pod runs")
    refused = await side.request("GET", f"{pods}/p/{asked}", headers=headers)
    assert refused.status >= 400
    assert refused.body["status"] == "Failure"
    assert no_program("p", asked.partition("?")[0]) in refused.body["message"]


async def test_a_node_without_a_status_holds_up_no_other(side: Side):
    name = f"{side.kind}-bare"
    made = await side.request("POST", "/api/v1/nodes", {"metadata": {"name": name}})
    assert made.status == 201, made
    try:
        await side.plane.add_nodes(NodeShape(count=1, prefix=f"{side.kind}-beside"))
    finally:
        await side.request("DELETE", f"/api/v1/nodes/{name}")
