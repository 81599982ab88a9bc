"""Pods that shun each other, on the real stack: one per node, and the rest told why not."""

import pytest

from tests.support import world
from tests.support.api import Api
from tests.support.fleet import Fleet
from tests.support.wait import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]

NAMESPACE = "default"


async def test_pods_that_shun_each_other_get_a_node_each_and_the_third_is_told_why(
    api: Api, services: Fleet
):
    task = world.task("w", 3, cpu="100m", memory="16Mi")
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"volcano.sh/job-name": "apart"}},
    }
    task["template"]["spec"]["affinity"] = {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    }
    await api.create("jobs", world.job("apart", task, min_available=2), NAMESPACE)
    found: dict[str, dict] = {}

    async def placed() -> bool:
        for pod in (await api.get("pods", NAMESPACE))["items"]:
            found[pod["metadata"]["name"]] = pod
        ours = [pod for name, pod in found.items() if name.startswith("apart-")]
        refused = [p for p in ours if "anti-affinity" in str(p["status"].get("conditions"))]
        return sum("nodeName" in p["spec"] for p in ours) == 2 and len(refused) == 1

    await until(placed, deadline_s=40, describe=lambda: f"{found}\n{services.logs()}")
    nodes = [p["spec"].get("nodeName") for n, p in found.items() if n.startswith("apart-")]
    assert len({node for node in nodes if node}) == 2
