"""Namespaces in which pods can be created, made many at a time: each waits for its account."""

import asyncio
import secrets

from pumice.local import admin
from pumice.local.control_plane import ControlPlane
from tests.support.stack import make_namespace


class Namespaces:
    """The namespaces of one server."""

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
        async with admin.connect(self._plane.url, self._plane.pki) as client:

            async def make() -> None:
                name = f"c-{secrets.token_hex(4)}"
                await make_namespace(client, self._plane, name, labels={"contract": "yes"})
                self._ready.append(name)

            async with asyncio.TaskGroup() as tasks:
                for number in range(self.BATCH):
                    tasks.create_task(make(), name=f"namespace-{number}")
