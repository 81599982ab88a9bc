"""The NATS server in memory as other processes meet it: over TCP, with the users of a real one.

It has the members of `pumice.local.nats.NatsServer` that tests of clients use, so that they run on
both.
"""

import time
from functools import partial
from pathlib import Path

from pumice.embedded.memory_nats.client import MemoryClient
from pumice.embedded.memory_nats.listener import NatsAccount, NatsListener
from pumice.embedded.memory_nats.server import MemoryNats
from pumice.local.declaring import declare
from pumice.local.nats import Users
from pumice.local.ports import LOOPBACK, free_port
from shared.contracts.permissions import permissions
from shared.contracts.streams import streams


class NothingDeclares:
    """In place of a declarer: streams are declared once, at the start."""

    async def stop(self) -> None:
        """Do nothing."""


class ListeningNats:
    """A server on this test's loop; `declares` makes all streams at the start."""

    def __init__(self, directory: Path, *, declares: bool = True) -> None:
        users = Users(directory, "local")
        self.directory = directory
        allowed = permissions("local")
        publish = {user: each.publish for user, each in allowed.items()}
        self._declares = declares
        self._port = free_port()
        self.environ = users.environ
        self.passwords = users.passwords
        self.url = f"nats://{LOOPBACK}:{self._port}"
        self.declaring = NothingDeclares()
        self.memory = MemoryNats(wall=time.time, permissions=publish)
        hears = {user: each.subscribe for user, each in allowed.items()}
        self._listener = NatsListener(
            self.memory,
            {
                user: NatsAccount(password=password, subscribe=hears.get(user, (">",)))
                for user, password in users.passwords.items()
            },
        )

    async def start(self) -> None:
        """Take connections, and come back with what a real server has in files."""
        self.memory.start()
        await self._listener.start(LOOPBACK, self._port)
        if self._declares:
            await declare(streams("local"), "local", dial=partial(MemoryClient, self.memory))

    async def stop(self) -> None:
        """End all connections."""
        self.memory.kill()
        await self._listener.stop()

    async def restart(self, *, kill: bool = False) -> None:
        """Stop and start again."""
        await self.stop()
        await self.start()
