"""A real API server that calls admission as processes; no scheduler, no binder.

A control plane of this folder's own: what is registered there is asked about every object that
other tests make, and some tests here let it refuse.
"""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from pumice.local.control_plane import ControlPlane
from pumice.local.ports import free_port
from services.admission.rules.catalogue import HOOKS
from tests.support.api import Api, ApiError, connect, gone_is_fine
from tests.support.fleet import Fleet, Service, fleet
from tests.support.stack import real_plane
from tests.support.wait import until

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"
DEFAULT = {
    "apiVersion": "scheduling.volcano.sh/v1beta1",
    "kind": "Queue",
    "metadata": {"name": "default"},
    "spec": {},
}


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def plane(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ControlPlane]:
    """The control plane of this folder."""
    async with real_plane(tmp_path_factory.mktemp("admission-plane")) as running:
        async with connect(running.kubeconfig) as api:
            await api.create("queues", DEFAULT)
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def space(api: Api) -> str:
    """A namespace of this test's own."""
    name = f"admission-{secrets.token_hex(3)}"
    await api.create("namespaces", {"metadata": {"name": name}})
    return name


class Door:
    """Admission as the API server sees it: the processes behind one registration."""

    def __init__(self, api: Api, services: Fleet, name: str) -> None:
        self.api = api
        self.services = services
        self.name = name
        self.port = free_port()
        self.replica: Service | None = None

    async def start(self, *, wait: bool = True, **flags: str) -> Service:
        """Start a replica that listens at our port."""
        self.replica = await self.services.start(
            "admission",
            wait=wait,
            **{
                "instance": self.name,
                "port": str(self.port),
                "bind_address": "127.0.0.1",
                "webhook_url": f"https://127.0.0.1:{self.port}",
                "configuration_name": self.name,
                **flags,
            },
        )
        return self.replica

    async def calls(self, path: str) -> float:
        """Return how many reviews of a hook the replica that was started last has answered."""
        assert self.replica is not None, "not started"
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{self.replica.address}/metrics") as answer,
        ):
            lines = (await answer.text()).splitlines()
        mark = f'pumice_admission_requests_total{{hook="{path}"'
        return sum(float(line.split()[-1]) for line in lines if line.startswith(mark))

    async def registered(self) -> list[dict[str, Any]]:
        """Return all our webhooks that the API server knows."""
        found = []
        for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
            with gone_is_fine():
                answer = await self.api.request("GET", f"{CONFIGURATIONS}/{kind}/{self.name}")
                found += answer["webhooks"]
        return found

    async def remove(self) -> None:
        """Delete the registration, whoever made it."""
        for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
            with gone_is_fine():
                await self.api.request("DELETE", f"{CONFIGURATIONS}/{kind}/{self.name}")

    async def refuses(
        self, plural: str, body: dict[str, Any], namespace: str = "", *, words: str
    ) -> str:
        """Wait until an object is refused by a webhook of ours; return the message.

        The API server learns of a registration a moment after it is made. An object that came
        through is deleted again.
        """
        said = ""

        async def probe() -> bool:
            nonlocal said
            said = await self.said(plural, body, namespace)
            if not said:
                await self.api.delete(plural, namespace, body["metadata"]["name"])
            return words in said

        await until(probe, deadline_s=30, describe=lambda: f"{said}\n{self.services.logs()}")
        return said

    async def said(self, plural: str, body: dict[str, Any], namespace: str = "") -> str:
        """Create an object; return why it was refused, "" when it was not."""
        try:
            await self.api.create(plural, body, namespace)
        except ApiError as error:
            return str(error)
        return ""


@asynccontextmanager
async def opened(plane: ControlPlane, directory) -> AsyncIterator[Door]:
    """Open a door; nothing of it is left behind."""
    async with connect(plane.kubeconfig) as client, fleet(plane, directory) as services:
        door = Door(client, services, f"door-{secrets.token_hex(3)}")
        try:
            yield door
        finally:
            await door.remove()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def door(
    plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Door]:
    """Admission at work for all tests of a file."""
    async with opened(plane, tmp_path_factory.mktemp("door")) as made:
        gates = "SchedulingGatesQueueAdmission=true"
        await made.start(enabled_admission=_all_paths(), feature_gates=gates)
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def own_door(plane: ControlPlane, tmp_path) -> AsyncIterator[Door]:
    """Admission of one test, which starts it as it wants."""
    async with opened(plane, tmp_path) as made:
        yield made


def _all_paths() -> str:
    return ",".join(HOOKS)
