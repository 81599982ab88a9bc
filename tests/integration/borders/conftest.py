"""All four services on a real API server and a NATS of their own: given what they cannot use.

Started once for the whole folder, since nothing in here may break them: that is what is shown.
"""

import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from pumice.local.nats import NatsServer
from tests.support import world
from tests.support.api import Api, connect
from tests.support.fleet import Fleet, Place, Service, fleet
from tests.support.stack import real_plane, running_nats
from tests.support.wait import until

NODES, NODE_CPU = 3, 8


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    """A control plane of this folder's own: its services would bind the pods of other tests."""
    async with real_plane(tmp_path_factory.mktemp("borders-plane")) as plane:
        yield Place(plane.kubeconfig, plane.nats)


@pytest_asyncio.fixture(loop_scope="session")
async def nats_server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    """A nats-server of one test, in the loop of the tests here: its declarer is a task."""
    async with running_nats(tmp_path / "nats") as server:
        yield server


class Borders:
    """One namespace, four services, three nodes of eight CPUs."""

    def __init__(
        self, api: Api, place: Place, fleet: Fleet, services: Mapping[str, Service], namespace: str
    ) -> None:
        self.api = api
        self.place = place
        self.fleet = fleet
        self.services = services
        self.namespace = namespace

    async def submit(self, job: dict[str, Any]) -> str:
        """Create a job under a fresh name unless it has one that matters; returns the name."""
        if job["metadata"]["name"] == "fresh":
            job["metadata"]["name"] = f"job-{secrets.token_hex(3)}"
        await self.api.create("jobs", job, self.namespace)
        return str(job["metadata"]["name"])

    async def has(
        self,
        plural: str,
        name: str,
        holds: Callable[[dict[str, Any]], bool],
        *,
        deadline_s: float = 30,
    ) -> dict[str, Any]:
        """Wait until an object is as it should be; return it."""
        seen: dict[str, Any] = {}

        async def probe() -> bool:
            nonlocal seen
            seen = await self.api.get(plural, self.namespace, name)
            return holds(seen)

        def told() -> str:
            return f"{plural} {name}: {seen.get('status')}\n{self.fleet.logs()}"

        await until(probe, deadline_s=deadline_s, describe=told)
        return seen

    async def runs(self, name: str) -> None:
        """Wait until a job runs."""
        await self.has("jobs", name, lambda job: phase_of(job) in {"Running", "Completed"})

    async def a_good_job_runs(self) -> None:
        """Submit a gang that fits, wait until it runs, remove it; the services never stopped."""
        job = world.job("fresh", world.task("w", 2, cpu="100m", memory="16Mi"))
        name = await self.submit(job)
        await self.runs(name)
        await self.api.delete("jobs", self.namespace, name)
        for service in self.services.values():
            assert service.process.pid, service.process.describe_end()
            assert await service.metric("pumice_work_queue_failures_total") == 0, service.log[
                -2000:
            ]

    async def group_of(self, job: str, holds: Callable[[str], bool]) -> str:
        """Wait for a message of the PodGroup of a job that holds; return it."""
        found = await self.api.get("jobs", self.namespace, job)
        group = f"{job}-{found['metadata']['uid']}"
        seen = await self.has("podgroups", group, lambda group: holds(messages(group)))
        return messages(seen)

    async def warnings(self, job: str, holds: Callable[[str], bool]) -> None:
        """Wait until the warnings about a job say something."""
        text = ""

        async def probe() -> bool:
            nonlocal text
            selector = f"involvedObject.name={job},type=Warning"
            found = await self.api.items("events", self.namespace, fieldSelector=selector)
            text = "\n".join(f"{event['reason']} {event['message']}" for event in found)
            return holds(text)

        await until(probe, deadline_s=20, describe=lambda: f"{text}\n{self.fleet.logs()}")

    async def said(self, service: str, *words: str) -> None:
        """Wait until a line of a service's log has all these words."""
        await self.services[service].said(*words)


def state_of(job: dict[str, Any]) -> dict[str, str]:
    """Return the state of a job: phase, reason, message."""
    state: dict[str, str] = job.get("status", {}).get("state", {})
    return state


def phase_of(job: dict[str, Any]) -> str | None:
    """Return the phase of a job."""
    return state_of(job).get("phase")


def messages(found: dict[str, Any]) -> str:
    """Return what the conditions of a pod or PodGroup say."""
    conditions = found.get("status", {}).get("conditions", [])
    return "; ".join(f"{c.get('reason')}: {c.get('message')}" for c in conditions)


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def borders(place: Place, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Borders]:
    """The services at work."""
    namespace = f"borders-{secrets.token_hex(3)}"
    async with (
        connect(place.kubeconfig) as api,
        fleet(place, tmp_path_factory.mktemp("borders")) as processes,
    ):
        await api.create("namespaces", {"metadata": {"name": namespace}})
        nodes = await world.add_nodes(api, NODES, prefix=namespace, cpu=str(NODE_CPU))
        started = await processes.start_all()
        try:
            yield Borders(api, place, processes, started, namespace)
        finally:
            for name in nodes:
                await api.delete("nodes", "", name)
            await api.delete("namespaces", "", namespace)
