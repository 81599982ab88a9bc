"""Autoscalers on the real stack, from zero nodes: by pods, and by ProvisioningRequests.

Each test runs an autoscaler in small: it chooses pods as Cluster Autoscaler does, and adds nodes of
one shape that KWOK keeps ready.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from pumice.local.control_plane import ControlPlane
from tests.support import world
from tests.support.api import Api, connect, gone_is_fine, refusal
from tests.support.fleet import Fleet, fleet
from tests.support.stack import real_plane
from tests.support.wait import until
from tests.unit.controller import provisioning

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]

NAMESPACE = "default"
SHAPE = 4
CLASS = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
CONF = """
actions: "enqueue, allocate, backfill"
autoscalerLimits: {cpu: 100, memory: 1Ti}
tiers:
- plugins: [{name: priority}, {name: gang}, {name: autoscaling}]
- plugins: [{name: overcommit}, {name: predicates}, {name: capacity}, {name: nodeorder}]
"""
AT = "2026-01-01T00:00:00Z"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def plane(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ControlPlane]:
    """A real API server without nodes, and queues for each way to ask for some."""
    async with real_plane(tmp_path_factory.mktemp("autoscalers")) as running:
        async with connect(running.kubeconfig) as api:
            for name, by, most in (("pods", "pods", 90), ("narrow", "pods", 4), ("req", CLASS, 90)):
                marked = {"pumice.dev/autoscaling": by}
                body = world.queue(name, annotations=marked, capability={"cpu": str(most)})
                await api.create("queues", body)
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def services(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Fleet]:
    """The four services, on a cluster without jobs and nodes."""
    async with connect(plane.kubeconfig) as api:
        await api.clear("jobs", "podgroups", "pods", "nodes")
    conf = tmp_path / "volcano-scheduler.conf"
    conf.write_text(CONF)
    async with fleet(plane, tmp_path) as running:
        await running.start("scheduler", wait=False, scheduler_conf=str(conf))
        await running.start_all("cache", "binder", "controller")
        yield running


class Autoscaler:
    """Adds nodes of one shape."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.nodes = 0

    async def add_nodes(self, pods: Iterable[dict[str, Any]], cpus: Iterable[int]) -> None:
        """Add nodes for pods with these CPUs that fit into no free room beside the present pods."""
        room = dict.fromkeys((f"auto-{number}" for number in range(self.nodes)), SHAPE)
        for pod in pods:
            if node := pod["spec"].get("nodeName"):
                room[node] -= cpu_of(pod["spec"])
        free = list(room.values())
        for cpu in sorted(cpus, reverse=True):
            at = next((at for at, left in enumerate(free) if left >= cpu), None)
            if at is None:
                await self.api.create("nodes", world.node(f"auto-{self.nodes}", cpu=str(SHAPE)))
                self.nodes += 1
                free.append(SHAPE)
                at = len(free) - 1
            free[at] -= cpu

    async def by_pods(self) -> None:
        """Add nodes for unschedulable pods, by one list: a pod that is placed counts once."""
        pods = await self.api.items("pods", NAMESPACE)
        unfit = [cpu_of(pod["spec"]) for pod in pods if reason_of(pod) == UNFIT]
        await self.add_nodes(pods, unfit)

    async def by_requests(self) -> None:
        """Take each request one step further: accept it, add its nodes, say that they are there."""
        for request in await self.api.items("provisioningrequests", NAMESPACE):
            shown = request.get("status", {}).get("conditions", [])
            types = {each["type"] for each in shown}
            templates = {
                each["metadata"]["name"]: each["template"]["spec"]
                for each in await self.api.items("podtemplates", NAMESPACE)
            }
            sets = request["spec"]["podSets"]
            if not all(each["podTemplateRef"]["name"] in templates for each in sets):
                continue
            following = "Provisioned" if "Accepted" in types else "Accepted"
            if following == "Provisioned" and following not in types:
                pods = await self.api.items("pods", NAMESPACE)
                cpus = (
                    cpu_of(templates[each["podTemplateRef"]["name"]])
                    for each in sets
                    for _ in range(each["count"])
                )
                await self.add_nodes(pods, cpus)
            if following not in types:
                status = {"conditions": [*shown, provisioning.condition(following, at=AT)]}
                name = request["metadata"]["name"]
                body = {"status": status}
                with gone_is_fine():  # a gang that fits starts before its request is Provisioned
                    await self.api.patch("provisioningrequests", NAMESPACE, name, body, "status")


UNFIT = "Unschedulable"


def reason_of(pod: dict[str, Any]) -> str:
    """Return the reason of a pod's PodScheduled condition."""
    shown = pod.get("status", {}).get("conditions", [])
    return next((c.get("reason", "") for c in shown if c["type"] == "PodScheduled"), "")


def cpu_of(spec: dict[str, Any]) -> int:
    """Return the CPUs that a pod requests."""
    return int(spec["containers"][0]["resources"]["requests"]["cpu"])


@asynccontextmanager
async def running(act: Callable[[], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Act again and again, as a controller does."""

    async def loop() -> None:
        while True:
            await act()
            await asyncio.sleep(0.1)

    async with asyncio.TaskGroup() as tasks:
        acting = tasks.create_task(loop(), name="autoscaler")
        yield
        acting.cancel()


async def pods_of(api: Api, job: str) -> list[dict[str, Any]]:
    """Return the pods of a job."""
    pods = await api.items("pods", NAMESPACE)
    return [pod for pod in pods if pod["metadata"]["name"].startswith(f"{job}-")]


async def wait_placed(api: Api, job: str, count: int, services: Fleet) -> list[dict[str, Any]]:
    """Wait until so many pods of a job have nodes; return them."""

    async def placed() -> list[dict[str, Any]]:
        found = [pod for pod in await pods_of(api, job) if pod["spec"].get("nodeName")]
        return found if len(found) == count else []

    return await until(placed, deadline_s=60, describe=services.logs)


async def wait_reasons(api: Api, job: str, reasons: list[str], services: Fleet) -> None:
    """Wait until the pods of a job show these reasons."""

    async def shown() -> bool:
        return [reason_of(pod) for pod in await pods_of(api, job)] == reasons

    await until(shown, deadline_s=60, describe=services.logs)


async def test_a_gang_gets_its_nodes_from_an_autoscaler_that_goes_by_pods(
    plane: ControlPlane, services: Fleet
) -> None:
    """volcano#3804, #3910, #4030: from zero nodes."""
    async with connect(plane.kubeconfig) as api:
        autoscaler = Autoscaler(api)
        async with running(autoscaler.by_pods):
            job = world.job("wide", world.task("w", 3, cpu="3"), queue="pods")
            await api.create("jobs", job, NAMESPACE)
            placed = await wait_placed(api, "wide", 3, services)
        assert len({pod["spec"]["nodeName"] for pod in placed}) == autoscaler.nodes == 3


async def test_no_node_is_added_for_surplus_pods_that_their_queue_refuses(
    plane: ControlPlane, services: Fleet
) -> None:
    """volcano#4710."""
    async with connect(plane.kubeconfig) as api:
        autoscaler = Autoscaler(api)
        async with running(autoscaler.by_pods):
            job = world.job("elastic", world.task("w", 4, cpu="2"), queue="narrow", min_available=1)
            await api.create("jobs", job, NAMESPACE)
            await wait_placed(api, "elastic", 2, services)
            refused = ["NotWaitingForNodes"] * 2

            async def waiting() -> bool:
                pods = await pods_of(api, "elastic")
                return [reason_of(p) for p in pods if not p["spec"].get("nodeName")] == refused

            await until(waiting, deadline_s=60, describe=services.logs)
        assert autoscaler.nodes == 1


async def test_where_provisioning_requests_are_not_served_the_gang_says_so(
    plane: ControlPlane, services: Fleet
) -> None:
    async with connect(plane.kubeconfig) as api:
        await api.create("jobs", world.job("r", world.task("w", 2), queue="req"), NAMESPACE)
        await wait_reasons(api, "r", ["WaitingForProvisioning"] * 2, services)

        async def told() -> bool:
            events = await api.items("events", NAMESPACE)
            return any(event["reason"] == "NoProvisioningRequest" for event in events)

        await until(told, deadline_s=60, describe=services.logs)
        await api.create("nodes", world.node("by-hand"))
        await wait_placed(api, "r", 2, services)


@asynccontextmanager
async def provisioning_requests(api: Api) -> AsyncIterator[None]:
    """Have the API server serve ProvisioningRequests, and no longer than that."""

    async def served() -> bool:
        return not await refusal(api.items("provisioningrequests", NAMESPACE))

    async def not_served() -> bool:
        return "404" in await refusal(api.items("provisioningrequests", NAMESPACE))

    crd = provisioning.definition()
    await api.create("customresourcedefinitions", crd)
    try:
        await until(served, deadline_s=30)
        yield
    finally:
        await api.delete("customresourcedefinitions", "", crd["metadata"]["name"])
        await until(not_served, deadline_s=30)


async def test_a_gang_gets_its_nodes_by_one_provisioning_request(
    plane: ControlPlane, services: Fleet
) -> None:
    async with connect(plane.kubeconfig) as api, provisioning_requests(api):
        autoscaler = Autoscaler(api)
        tasks = (world.task("head", 1, cpu="2"), world.task("w", 3, cpu="3"))
        await api.create("jobs", world.job("gang", *tasks, queue="req"), NAMESPACE)
        await wait_reasons(api, "gang", ["WaitingForProvisioning"] * 4, services)

        async def requested() -> dict[str, Any]:
            found = await api.items("provisioningrequests", NAMESPACE)
            assert len(found) <= 1
            return found[0] if found else {}

        request = await until(requested, deadline_s=60, describe=services.logs)
        assert request["spec"]["provisioningClassName"] == CLASS
        assert sorted(each["count"] for each in request["spec"]["podSets"]) == [1, 3]
        name = request["metadata"]["name"]

        async def explained() -> bool:
            (group,) = await api.items("podgroups", NAMESPACE)
            shown = [c.get("message", "") for c in group["status"]["conditions"]]
            return any(f"{name} is not accepted yet, provisioned 0 of 4" in text for text in shown)

        await until(explained, deadline_s=60, describe=services.logs)
        async with running(autoscaler.by_requests):
            placed = await wait_placed(api, "gang", 4, services)

            async def deleted() -> bool:
                requests = await api.items("provisioningrequests", NAMESPACE)
                return not requests and not await api.items("podtemplates", NAMESPACE)

            await until(deleted, deadline_s=60, describe=services.logs)
        assert autoscaler.nodes == 4
        used = {
            pod["metadata"]["annotations"].get("autoscaling.x-k8s.io/consume-provisioning-request")
            for pod in placed
        }
        assert used <= {name, None}
