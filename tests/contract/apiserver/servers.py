"""Fresh namespaces on a server, and dialogues in them."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec

from pumice.local import admin
from pumice.local.control_plane import ControlPlane
from tests.contract.apiserver.dialogue import Dialogue
from tests.support.api import credentials


class Namespaces:
    """Namespaces of one server in which pods can be created, made many at a time."""

    BATCH = 48

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._ready: list[str] = []

    async def take(self) -> str:
        """Return a fresh one. It is not deleted: its server ends soon, and has enough to do."""
        if not self._ready:
            await self._make()
        return self._ready.pop()

    async def _make(self) -> None:
        api = self._plane.processes[self._plane.api_program]
        async with admin.connect(self._plane.url, self._plane.pki) as client:

            async def make() -> None:
                name = f"c-{secrets.token_hex(4)}"
                meta = {"name": name, "labels": {"contract": "yes"}}
                body = msgspec.json.encode({"metadata": meta})
                assert (await client.request("POST", "/api/v1/namespaces", body=body)).ok
                await api.ready(lambda: client.accounts_ready(name), deadline_s=30.0)
                self._ready.append(name)

            async with asyncio.TaskGroup() as tasks:
                for number in range(self.BATCH):
                    tasks.create_task(make(), name=f"namespace-{number}")


class Server:
    """One server, with a session of its administrator that all dialogues share."""

    def __init__(self, plane: ControlPlane, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._namespaces = Namespaces(plane)

    async def dialogue(self) -> Dialogue:
        """Return a dialogue in a namespace of its own."""
        return Dialogue(self._session, await self._namespaces.take())


@asynccontextmanager
async def opened(plane: ControlPlane) -> AsyncIterator[Server]:
    """Open a session on a control plane."""
    server, headers, tls = credentials(Path(plane.kubeconfig))
    async with aiohttp.ClientSession(
        server, headers=headers, connector=aiohttp.TCPConnector(ssl=tls)
    ) as session:
        yield Server(plane, session)
