"""A nats-server with JetStream on the loopback, closed from the first start.

Each service has a user with exactly its subjects (`shared.contracts.permissions`); `admin` may do
everything and is for tests and for the person at the terminal. Passwords are random per data
directory and live in files of mode 0600, never in an argument list.
"""

import asyncio
import json
import secrets
from pathlib import Path
from typing import Final

from pumice.local.files import write_private
from pumice.local.ports import LOOPBACK, claim
from pumice.local.process import Process, ProcessSpec
from shared.contracts.permissions import permissions

ADMIN: Final = "admin"
START_S: Final = 20.0
_MEMORY_MAX: Final = 4 * 1024**3
_FILE_MAX: Final = 16 * 1024**3


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
    ) -> None:
        self.cluster = cluster
        self.directory = directory
        self.port = claim(port, owner="nats-server", flag="--nats-port")
        self.passwords = _passwords(directory / "users.json", cluster)
        self._config = directory / "nats-server.conf"
        self.process = Process(
            ProcessSpec(
                name="nats-server",
                argv=(str(binary), "-c", str(self._config)),
                log=log or directory / "nats-server.log",
            )
        )

    @property
    def url(self) -> str:
        """Address without credentials."""
        return f"nats://{LOOPBACK}:{self.port}"

    def environ(self, user: str = ADMIN) -> dict[str, str]:
        """Return what a program needs in its environment to connect as `user`.

        That is nothing for one that has no user here, since it needs no NATS (admission).
        """
        if user not in self.passwords:
            return {}
        return {"PUMICE_NATS_USER": user, "PUMICE_NATS_PASSWORD": self.passwords[user]}

    async def start(self) -> None:
        """Write the configuration, start the server and wait until JetStream answers."""
        write_private(self._config, json.dumps(self._configuration(), indent=2))
        self.process.start()
        await self.process.ready(self._probe, deadline_s=START_S)

    async def stop(self) -> None:
        """Stop the server in an orderly way; streams in memory are lost."""
        await self.process.stop()

    async def restart(self, *, kill: bool = False) -> None:
        """Stop (or kill -9) the server and start it again on the same port and files."""
        if kill:
            self.process.kill()
        else:
            await self.stop()
        await self.start()

    async def _probe(self) -> str:
        reader, writer = await asyncio.open_connection(LOOPBACK, self.port)
        try:
            greeting = await reader.readline()
        finally:
            writer.close()
        info = json.loads(greeting.removeprefix(b"INFO ") or b"{}")
        return "" if info.get("jetstream") else "JetStream is not up yet"

    def _configuration(self) -> dict[str, object]:
        allowed = permissions(self.cluster)
        users: list[dict[str, object]] = []
        for user, password in self.passwords.items():
            entry: dict[str, object] = {"user": user, "password": password}
            if user in allowed:
                entry["permissions"] = {
                    "publish": list(allowed[user].publish),
                    "subscribe": list(allowed[user].subscribe),
                }
            users.append(entry)
        return {
            "server_name": "pumice-local",
            "listen": f"{LOOPBACK}:{self.port}",
            "jetstream": {
                "store_dir": str(self.directory / "jetstream"),
                "max_memory_store": _MEMORY_MAX,
                "max_file_store": _FILE_MAX,
            },
            "authorization": {"users": users},
        }


def _passwords(path: Path, cluster: str) -> dict[str, str]:
    """Return the password per user, kept in `path`; a user that is new there gets one."""
    known: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    users = [ADMIN, *sorted(permissions(cluster))]
    passwords = {user: known.get(user) or secrets.token_urlsafe(24) for user in users}
    if passwords != known:
        write_private(path, json.dumps(passwords, indent=2))
    return passwords
