"""A nats-server with JetStream on the loopback, closed from the first start.

Each service has a user with exactly its subjects (`shared.contracts.permissions`); `admin` may do
everything and is for tests and for the user at the terminal. Passwords are random per data
directory and live in files of mode 0600, never in an argument list.
"""

import asyncio
import json
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from pumice.deploy.nats_accounts import ADMIN
from pumice.deploy.nats_config import NatsServerConfig, Routes, render
from pumice.directory import USERS
from pumice.local.declaring import Declaring, login
from pumice.local.files import write_private
from pumice.local.ports import LOOPBACK, claim, free_port
from pumice.local.process import Process, ProcessSpec, go_environ
from shared.contracts.permissions import permissions

SEALERS: Final = ("cache", "controller")
"""Services that share the key of STATE."""
START_S: Final = 20.0
_HEALTH_S: Final = 2.0
_UNHEALTHY_CHECKS: Final = 2
ROOM: Final = 64 * 1024**2
"""Bytes that must be free before a server that filled the disk is started again."""
MEMORY_MAX: Final = 4 * 1024**3
FILE_MAX: Final = 16 * 1024**3


class Users:
    """The users of one server, kept in its directory: each has a password, some share a key."""

    def __init__(self, directory: Path, cluster: str, namespaces: tuple[str, ...] = ()) -> None:
        self.passwords = _passwords(directory / USERS.name, cluster, namespaces)
        self._state_key = _state_key(directory / "state-key")

    def environ(self, user: str) -> dict[str, str]:
        """Return the environment of a program that connects as `user`.

        That is nothing for one that has no user here, since it needs no NATS (admission).
        """
        if user not in self.passwords:
            return {}
        given = {"PUMICE_NATS_USER": user, "PUMICE_NATS_PASSWORD": self.passwords[user]}
        if user in SEALERS:
            given[f"PUMICE_{user.upper()}_STATE_KEY"] = self._state_key
        return given


class ServerReplica(msgspec.Struct, frozen=True):
    """One of several servers of a cluster."""

    name: str
    routes: Routes


class NatsServer:
    """One server with its data below `directory`; a restart keeps port, passwords and files."""

    def __init__(
        self,
        *,
        binary: Path,
        directory: Path,
        log: Path | None = None,
        port: int = 0,
        cluster: str = "local",
        declares: bool = True,
        namespaces: tuple[str, ...] = (),
        replica: ServerReplica | None = None,
    ) -> None:
        """With `declares` the streams exist after a start, and are declared again if they vanish.

        `namespaces` have users for subscribers of their own. A `replica` is one of several
        servers.
        """
        self.name = replica.name if replica else "pumice-local"
        self._routes = replica.routes if replica else None
        self.cluster = cluster
        self.directory = directory
        self.port = claim(port, owner="nats-server", flag="--nats-port")
        self.monitor = free_port()
        """Port of the server's monitoring."""
        self._failed_checks = 0
        """Checks in a row that found streams which cannot be written."""
        self._users = Users(directory, cluster, namespaces)
        self.passwords = self._users.passwords
        self._config = directory / "nats-server.conf"
        self._namespaces = namespaces
        self.declaring = Declaring(
            login(self.url, self.passwords, cluster),
            namespaces=namespaces,
        )
        self._declares = declares
        self.process = Process(
            ProcessSpec(
                name="nats-server",
                argv=(str(binary), "-c", str(self._config)),
                log=log or directory / "nats-server.log",
                environ=go_environ(),
            )
        )

    @property
    def url(self) -> str:
        """Address without credentials."""
        return f"nats://{LOOPBACK}:{self.port}"

    def environ(self, user: str = ADMIN) -> dict[str, str]:
        """Return the environment of a program that connects as `user`."""
        return self._users.environ(user)

    async def start(self) -> None:
        """Write the configuration, start the server and wait until JetStream is ready."""
        write_private(self._config, self._configuration())
        self.process.start()
        await self.process.ready(self._probe, deadline_s=START_S)
        if self._declares:
            await self.declaring.start()

    async def stop(self) -> None:
        """Stop the server in an orderly way; streams in memory are lost."""
        await self.declaring.stop()
        await self.process.stop()

    async def restart(self, *, kill: bool = False) -> None:
        """Stop (or kill -9) the server and start it again on the same port and files."""
        if kill:
            self.process.kill()
        else:
            await self.stop()
        await self.start()

    async def needs_restart(self, report: Callable[[str], None]) -> bool:
        """Return whether streams cannot be written any more although there is room for them.

        A stream that met a full disk refuses all messages, without a word to those who send them,
        until the server is started again. Two checks in a row must find it: it may be starting.
        """
        error = await self._unhealthy()
        self._failed_checks = self._failed_checks + 1 if error else 0
        if self._failed_checks < _UNHEALTHY_CHECKS:
            return False
        free = shutil.disk_usage(self.directory).free
        if free >= ROOM:
            report(f"nats-server has stopped writing, as after a full disk: {error}")
            self._failed_checks = 0
            return True
        if self._failed_checks == _UNHEALTHY_CHECKS:
            report(
                f"nats-server cannot write to its disk, {self.directory} has {free >> 20} MiB "
                f"left: {error}; it is started again when there are {ROOM >> 20} MiB"
            )
        return False

    async def _unhealthy(self) -> str:
        """Return the fault that `/healthz` reports; "" also when it times out."""
        try:
            async with asyncio.timeout(_HEALTH_S):
                reader, writer = await asyncio.open_connection(LOOPBACK, self.monitor)
                try:
                    writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
                    response = await reader.read()
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return ""
        head, _, body = response.partition(b"\r\n\r\n")
        return body.decode(errors="replace").strip()[:300] if b" 503 " in head[:20] else ""

    async def _probe(self) -> str:
        reader, writer = await asyncio.open_connection(LOOPBACK, self.port)
        try:
            greeting = await reader.readline()
        finally:
            writer.close()
        info = json.loads(greeting.removeprefix(b"INFO ") or b"{}")
        return "" if info.get("jetstream") else "JetStream is not up yet"

    def _configuration(self) -> str:
        server = NatsServerConfig(
            name=self.name,
            routes=self._routes,
            cluster=self.cluster,
            namespaces=self._namespaces,
            listen=f"{LOOPBACK}:{self.port}",
            monitor=f"{LOOPBACK}:{self.monitor}",
            store_dir=str(self.directory / "jetstream"),
            memory_bytes=MEMORY_MAX,
            file_bytes=FILE_MAX,
        )
        return render(server, self.passwords)


def _passwords(path: Path, cluster: str, namespaces: tuple[str, ...]) -> dict[str, str]:
    """Return the password per user, kept in `path`; a user that is new there gets one."""
    known: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    users = [ADMIN, *sorted(permissions(cluster, namespaces))]
    passwords = {user: known.get(user) or secrets.token_urlsafe(24) for user in users}
    if passwords != known:
        write_private(path, json.dumps(passwords, indent=2))
    return passwords


def _state_key(path: Path) -> str:
    """Return the key that seals jobs on STATE, kept beside the streams."""
    if not path.exists():
        write_private(path, secrets.token_hex(32))
    return path.read_text()
