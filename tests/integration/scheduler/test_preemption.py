"""Preemption on the real stack: evicted, nominated, bound, and nobody more than that."""

import asyncio

import pytest

from tests.support import world
from tests.support.api import Api
from tests.support.fleet import Fleet
from tests.support.wait import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]

NAMESPACE = "default"


class Pods:
    """Every state of every pod, as a watch delivers them."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.now: dict[str, dict] = {}
        self.gone: set[str] = set()
        self.nominated: dict[str, set[str]] = {}
        self.targets: set[str] = set()
        self.history: list[str] = []

    async def follow(self) -> None:
        """Take in all events until cancelled."""
        async for event in self._api.follow("pods", NAMESPACE):
            pod = event["object"]
            name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
            status = pod.get("status", {})
            node, ends = pod["spec"].get("nodeName"), pod["metadata"].get("deletionTimestamp")
            self.history.append(f"{event['type']} {name} {uid} on {node}, ends {ends}: {status}")
            if node := status.get("nominatedNodeName"):
                self.nominated.setdefault(name, set()).add(node)
            for condition in status.get("conditions", []):
                if condition.get("reason") == "PreemptionByScheduler":
                    self.targets.add(uid)
            if event["type"] == "DELETED":
                self.now.pop(name, None)
                self.gone.add(uid)
            else:
                self.now[name] = pod

    def nodes(self, job: str) -> dict[str, str]:
        """Return pod → node of the placed pods of a job."""
        placed = {name: pod["spec"].get("nodeName", "") for name, pod in self.now.items()}
        return {name: node for name, node in placed.items() if node and name.startswith(f"{job}-")}


async def test_an_important_gang_gets_the_places_of_as_many_unimportant_pods_as_it_needs(
    api: Api, services: Fleet
):
    pods = Pods(api)
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(pods.follow(), name="pods")

        def seen() -> str:
            return f"{pods.nodes('low')} {pods.nodes('high')}\n{services.logs()}"

        low = world.job(
            "low", world.task("w", 4, cpu="2"), min_available=1, priorityClassName="unimportant"
        )
        await api.create("jobs", low, NAMESPACE)
        await until(lambda: len(pods.nodes("low")) == 4, deadline_s=40, describe=seen)
        high = world.job("high", world.task("w", 2, cpu="2"), priorityClassName="important")
        await api.create("jobs", high, NAMESPACE)
        await until(lambda: len(pods.nodes("high")) == 2, deadline_s=40, describe=seen)
        following.cancel()
    nodes = pods.nodes("high")
    assert {name: {node} for name, node in nodes.items()} == pods.nominated
    assert len(pods.targets) == 2
    assert pods.gone == pods.targets, "\n".join(pods.history)
    assert len(pods.nodes("low")) == 2
