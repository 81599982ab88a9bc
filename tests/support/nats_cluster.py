"""Three nats-servers on one machine as one cluster, with the users and accounts of a single one."""

import asyncio
import json
import shutil
import urllib.request
from functools import partial
from pathlib import Path

from pumice.deploy.nats_config import Routes
from pumice.local import parts
from pumice.local.declaring import Declaring, login
from pumice.local.nats import NatsServer
from pumice.local.ports import free_port
from shared.contracts.streams import Storage
from tests.support.wait import until

SERVERS = 3
DECLARED_S = 60.0
"""Each stream and consumer chooses a leader: that takes its time where processors are busy."""


class NatsCluster:
    """Servers that tests kill, rob of their disks and start again; streams have three copies.

    What a test needs of a `NatsServer` it finds here: `url`, `environ`, `start` and `stop`.
    """

    def __init__(self, directory: Path, *, cluster: str = "local", declares: bool = True) -> None:
        directory.mkdir(parents=True)
        ports = [free_port() for _ in range(SERVERS)]
        peers = tuple(f"127.0.0.1:{port}" for port in ports)
        self.servers: list[NatsServer] = []
        for number, peer in enumerate(peers):
            home = directory / str(number)
            home.mkdir()
            for shared in ("users.json", "state-key") if self.servers else ():
                shutil.copy(self.servers[0].directory / shared, home / shared)
            self.servers.append(
                NatsServer(
                    binary=parts.nats_server_binary(),
                    directory=home,
                    cluster=cluster,
                    declares=False,
                    name=f"nats-{number}",
                    routes=Routes(name="three", listen=peer, peers=peers),
                )
            )
        self.cluster = cluster
        self.passwords = self.servers[0].passwords
        self.url = ",".join(server.url for server in self.servers)
        self._declares = declares
        self.declaring = Declaring(
            login(self.url, self.passwords, cluster),
            replicas=SERVERS,
            state_storage=Storage.FILE,
        )

    def environ(self, user: str = "admin") -> dict[str, str]:
        """Return the environment of a program that connects as `user`."""
        return self.servers[0].environ(user)

    async def start(self) -> None:
        """Start all servers; they wait for each other."""
        async with asyncio.TaskGroup() as tasks:
            for server in self.servers:
                tasks.create_task(server.start(), name=server.name)
        await self.healthy()
        if self._declares:
            await self.declaring.start(deadline_s=DECLARED_S)

    async def stop(self) -> None:
        """Stop all servers."""
        await self.declaring.stop()
        async with asyncio.TaskGroup() as tasks:
            for server in self.servers:
                tasks.create_task(server.process.stop(), name=server.name)

    async def lose_disk(self, number: int) -> None:
        """Kill a server and remove everything that it has stored."""
        server = self.servers[number]
        server.process.kill()
        shutil.rmtree(server.directory / "jetstream")

    async def back(self, number: int) -> None:
        """Start a server again and wait until it has everything that the others have."""
        await self.servers[number].start()
        await self.healthy(number)

    async def healthy(self, *numbers: int) -> None:
        """Wait until servers (all, without numbers) have everything that the others have."""
        for number in numbers or range(SERVERS):
            server = self.servers[number]
            await until(partial(self.is_healthy, server), deadline_s=60, describe=server.name)

    async def leader_of(self, stream: str) -> int:
        """Return which server leads a stream, as the servers' monitoring says."""
        for server in self.servers:
            if not server.process.pid:
                continue
            found = await asyncio.to_thread(_get, server, "jsz?streams=true&accounts=true")
            for account in found["account_details"]:
                for detail in account.get("stream_detail", []):
                    if detail["name"] == stream:
                        leader = detail["cluster"].get("leader", "")
                        if leader:
                            return int(leader.removeprefix("nats-"))
        raise AssertionError(f"{stream} has no leader")

    async def is_healthy(self, server: NatsServer) -> bool:
        """Tell what the readiness probe asks for."""
        try:
            return (await asyncio.to_thread(_get, server, "healthz"))["status"] == "ok"
        except OSError:
            return False


def _get(server: NatsServer, path: str) -> dict:
    address = f"http://127.0.0.1:{server.monitor}/{path}"
    with urllib.request.urlopen(address, timeout=2) as answer:
        return json.loads(answer.read())
