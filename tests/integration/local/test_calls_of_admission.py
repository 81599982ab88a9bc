"""How often the embedded API server calls admission: match conditions keep calls away."""

from pathlib import Path

import aiohttp
import pytest

from pumice.local import parts
from pumice.local.control_plane import ControlPlaneOptions
from pumice.local.fleet import Fleet, NodeShape
from pumice.local.stack import LocalStack, StackOptions
from tests.support import world
from tests.support.api import Api, connect
from tests.support.wait import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(150)]

PODS = 20


async def calls(address: str) -> dict[str, float]:
    """Return hook → reviews that admission has answered."""
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}/metrics") as got:
        lines = (await got.text()).splitlines()
    found: dict[str, float] = {}
    for line in lines:
        name, _, value = line.rpartition(" ")
        if name.startswith("pumice_admission_requests_total{"):
            hook = name.partition('hook="')[2].partition('"')[0]
            found[hook] = found.get(hook, 0.0) + float(value)
    return found


async def placed(api: Api) -> bool:
    """Return whether all pods of the job have a node."""
    pods = await api.items("pods", "default")
    return sum(bool(pod["spec"].get("nodeName")) for pod in pods) == PODS


async def test_pods_that_the_controller_makes_cost_no_call(tmp_path: Path) -> None:
    options = StackOptions(
        plane=ControlPlaneOptions(directory=tmp_path, api="embedded"),
        fleet=Fleet(nodes=(NodeShape(count=4, cpu="16"),)),
        services=("cache", "scheduler", "binder", "controller", "admission"),
    )
    async with (
        LocalStack(options, parts.require(["nats-server"])) as stack,
        connect(stack.plane.kubeconfig) as api,
    ):
        await api.create("jobs", world.job("j", world.task("w", PODS)), "default")
        await until(lambda: placed(api), deadline_s=60, describe="all pods have a node")
        found = await calls(stack.services["admission"].address)
    assert found["/users/mutate"] == 1.0  # the Job itself
    assert "/pods/mutate" not in found
    assert "/pods/validate" not in found
