"""A real API server and NATS, the cache and the controller as processes, and a hand for the rest.

The hand does what scheduler and kubelet would: it lets groups into the queue and reports phases of
pods. So these tests see the controller alone, and need no nodes.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from pumice.local.control_plane import ControlPlane
from tests.support.api import Api, gone_is_fine
from tests.support.fleet import Fleet, Service, fleet
from tests.support.wait import until


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def services(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Fleet]:
    """The processes of one file, the cache among them."""
    async with fleet(control_plane, tmp_path_factory.mktemp("services")) as running:
        await running.start("cache")
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def services_of_a_test(
    control_plane: ControlPlane, api: Api, tmp_path: Path
) -> AsyncIterator[Fleet]:
    """The processes of one test, for files that kill some or start some with flags of their own.

    A controller that is to die at a fault point would pass it for an object of an earlier test.
    """
    await api.clear("cronjobs", "jobflows", "jobs", "podgroups", "commands")
    async with fleet(control_plane, tmp_path) as running:
        await running.start("cache")
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def controller(services: Fleet) -> Service:
    """A controller that is ready."""
    return await services.start("controller", queue_commands_from="*")


class Hand:
    """Scheduler and kubelet of one namespace."""

    def __init__(self, api: Api, namespace: str, services: Fleet) -> None:
        self.api = api
        self.namespace = namespace
        self._services = services
        self.admits = True
        """Whether groups are let into their queue."""

    async def run(self) -> None:
        """Let each new group in, for ever."""
        while True:
            for group in await self.api.items("podgroups", self.namespace):
                if self.admits and not group.get("status", {}).get("phase"):
                    await self._admit(group["metadata"]["name"])
            await asyncio.sleep(0.05)

    async def _admit(self, name: str) -> None:
        with gone_is_fine():
            await self.api.patch(
                "podgroups", self.namespace, name, {"status": {"phase": "Inqueue"}}
            )

    async def report(
        self, pod: str, phase: str, exit_code: int | None = None, started: str | None = None
    ) -> None:
        """Report the phase of a pod, and when it started."""
        state = {"terminated": {"exitCode": exit_code}} if exit_code is not None else {}
        status = {
            "phase": phase,
            **({"startTime": started} if started else {}),
            "containerStatuses": [
                {
                    "name": "main",
                    "image": "busybox",
                    "imageID": "",
                    "ready": phase == "Running",
                    "restartCount": 0,
                    "state": state,
                }
            ],
        }
        await self.api.patch("pods", self.namespace, pod, {"status": status}, sub="status")

    async def run_all(self) -> None:
        """Report that every pending pod runs."""
        for pod in await self.api.items("pods", self.namespace):
            if pod["status"]["phase"] == "Pending":
                await self.report(pod["metadata"]["name"], "Running")

    async def submit(self, job: dict[str, Any]) -> None:
        """Create a job."""
        await self.api.create("jobs", job, self.namespace)

    async def job(self, name: str) -> dict[str, Any]:
        """Return a job."""
        found: dict[str, Any] = await self.api.get("jobs", self.namespace, name)
        return found

    async def pods(self) -> dict[str, dict[str, Any]]:
        """Return the pods by name."""
        items = await self.api.items("pods", self.namespace)
        return {pod["metadata"]["name"]: pod for pod in items}

    async def wait_pods(self, count: int, **where: str) -> dict[str, dict[str, Any]]:
        """Wait until there are just so many pods that are not being deleted."""
        seen: dict[str, dict[str, Any]] = {}

        async def probe() -> bool:
            nonlocal seen
            seen = {
                name: pod
                for name, pod in (await self.pods()).items()
                if "deletionTimestamp" not in pod["metadata"]
                and all(pod["metadata"]["annotations"].get(k) == v for k, v in where.items())
            }
            return len(seen) == count

        await until(probe, describe=lambda: self._told(f"{count} pods", list(seen)))
        return seen

    async def wait_job(
        self, name: str, holds: Callable[[dict[str, Any]], bool] | str
    ) -> dict[str, Any]:
        """Wait until the job is in a phase, or something else holds; return the job."""
        seen: dict[str, Any] = {}

        async def probe() -> bool:
            nonlocal seen
            seen = await self.job(name)
            if isinstance(holds, str):
                return bool(seen.get("status", {}).get("state", {}).get("phase") == holds)
            return holds(seen)

        def told() -> str:
            return self._told(f"job {name}", seen.get("status"))

        await until(probe, describe=told)
        return seen

    def _told(self, what: str, seen: object) -> str:
        return f"{what}: {seen}\n{self._services.logs(lines=25)}"


@pytest_asyncio.fixture(loop_scope="session")
async def hand(api: Api, namespace: str, services: Fleet) -> AsyncIterator[Hand]:
    """The hand of this test, at work."""
    acting = Hand(api, namespace, services)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(acting.run(), name="hand")
        yield acting
        task.cancel()
