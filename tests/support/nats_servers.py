"""NATS servers of tests, and connections of the administrator to them.

`NatsCluster` is three nats-servers on one machine, `ListeningNats` the server in memory as other
processes meet it: over TCP, with the users of a real one. Both have the members of
`pumice.local.nats.NatsServer` that tests of clients use, so that they run on all.
"""

import asyncio
import json
import shutil
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import structlog
from typing_extensions import override

from pumice.deploy.nats_accounts import ADMIN
from pumice.deploy.nats_config import Routes
from pumice.embedded.memory_nats.client import MemoryClient
from pumice.embedded.memory_nats.listener import NatsAccount, NatsListener
from pumice.embedded.memory_nats.server import MemoryNats
from pumice.local import parts
from pumice.local.declaring import Declaring, declare, login
from pumice.local.nats import NatsServer, ServerReplica, Users
from pumice.local.ports import LOOPBACK, free_port
from shared.bus.connection import BusCredentials, BusOptions
from shared.bus.nats import NatsBus, running
from shared.contracts.permissions import inbox_prefix, permissions
from shared.contracts.streams import Storage, streams
from shared.contracts.subjects import Subjects
from shared.election.lease import Lease, LeaseTiming
from shared.runtime.clock import Clock, SystemClock
from tests.support.proxy import Proxy
from tests.support.wait import until

SERVERS = 3
DECLARED_S = 60.0
"""Each stream and consumer chooses a leader: that takes its time where processors are busy."""


class _Unannounced(NatsServer):
    """A server that the others reach by the addresses that they were given, and by no other.

    It tells them an address at which nothing listens, so that none goes around a proxy.
    """

    @override
    def _configuration(self) -> str:
        document = json.loads(super()._configuration())
        document["cluster"]["advertise"] = "127.0.0.1:1"
        return json.dumps(document)


class CuttableRoutes:
    """The routes between the servers, each through a proxy of its own."""

    def __init__(self, ports: list[int]) -> None:
        self._routes = {
            (here, there): (Proxy(port), free_port())
            for here in range(SERVERS)
            for there, port in enumerate(ports)
            if here != there
        }
        self._listeners: list[asyncio.Server] = []

    def peers(self, number: int) -> tuple[str, ...]:
        """Return the addresses by which a server reaches the others."""
        return tuple(
            f"127.0.0.1:{port}" for (here, _), (_, port) in self._routes.items() if here == number
        )

    async def open(self) -> None:
        """Begin to forward."""
        for proxy, port in self._routes.values():
            proxy.port = port
            self._listeners.append(await asyncio.start_server(proxy.serve, "127.0.0.1", port))

    async def close(self) -> None:
        """Forward nothing any more."""
        for listener in self._listeners:
            listener.close()
        for proxy, _ in self._routes.values():
            proxy.mend()
            proxy.cut()
        await asyncio.sleep(0)  # connections end

    def of(self, number: int) -> Iterator[Proxy]:
        """Yield the proxies of the routes from and to a server."""
        for ends, (proxy, _) in self._routes.items():
            if number in ends:
                yield proxy


class NatsCluster:
    """Servers that tests kill, cut off, rob of their disks and start again.

    Streams have three copies.

    What a test needs of a `NatsServer` it finds here: `url`, `environ`, `start` and `stop`.
    """

    def __init__(
        self,
        directory: Path,
        *,
        cluster: str = "local",
        declares: bool = True,
        cuttable: bool = False,
    ) -> None:
        """With `cuttable` the servers know each other by proxies in this process (`cut_off`)."""
        directory.mkdir(parents=True)
        ports = [free_port() for _ in range(SERVERS)]
        self._routes = CuttableRoutes(ports) if cuttable else None
        peers = tuple(f"127.0.0.1:{port}" for port in ports)
        self.servers: list[NatsServer] = []
        for number, peer in enumerate(peers):
            home = directory / str(number)
            home.mkdir()
            for shared in ("users.json", "state-key") if self.servers else ():
                shutil.copy(self.servers[0].directory / shared, home / shared)
            others = self._routes.peers(number) if self._routes else peers
            self.servers.append(
                (_Unannounced if cuttable else NatsServer)(
                    binary=parts.nats_server_binary(),
                    directory=home,
                    cluster=cluster,
                    declares=False,
                    replica=ServerReplica(
                        f"nats-{number}", Routes(name="three", listen=peer, peers=others)
                    ),
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
        if self._routes:
            await self._routes.open()
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
        if self._routes:
            await self._routes.close()

    def cut_off(self, number: int, *, silently: bool = False) -> None:
        """Cut a server off from the other two, not from its clients.

        `silently` as a network does that drops packets: no connection ends.
        """
        assert self._routes, "made to be cuttable"
        for proxy in self._routes.of(number):
            if silently:
                proxy.silence()
            else:
                proxy.cut()

    def rejoin(self, number: int) -> None:
        """Let a server reach the others again."""
        assert self._routes, "made to be cuttable"
        for proxy in self._routes.of(number):
            proxy.mend()

    async def lose_disk(self, number: int) -> None:
        """Kill a server and remove everything that it has stored."""
        server = self.servers[number]
        server.process.kill()
        shutil.rmtree(server.directory / "jetstream")

    async def restart_one(self, number: int) -> None:
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

    async def server_of(self, client: str) -> int:
        """Return which server a client is connected to, by the client's name."""
        for number, server in enumerate(self.servers):
            found = await asyncio.to_thread(_get, server, "connz?limit=1000")
            if client in {connection.get("name") for connection in found["connections"]}:
                return number
        raise AssertionError(f"{client} is not connected")

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


class NothingDeclares:
    """In place of a declarer: streams are declared once, at the start."""

    async def stop(self) -> None:
        """Do nothing."""


def may_publish(cluster: str) -> dict[str, tuple[str, ...]]:
    """Return what each user may publish; a user that serves requests may reply to visibility.

    A real server lets it publish to the reply subject of each request, and to nothing else.
    """
    replies = (f"{inbox_prefix('visibility')}.>", "_INBOX.>")
    return {
        user: (*granted.publish, *replies) if granted.serves else granted.publish
        for user, granted in permissions(cluster).items()
    }


class ListeningNats:
    """A server on this test's loop; `declares` makes all streams at the start."""

    def __init__(self, directory: Path, *, declares: bool = True) -> None:
        users = Users(directory, "local")
        self.directory = directory
        allowed = permissions("local")
        publish = may_publish("local")
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


@asynccontextmanager
async def admin_bus(server: NatsServer | NatsCluster, user: str = ADMIN) -> AsyncIterator[NatsBus]:
    """Open a bus to `server` as the administrator, or as another user of it."""
    async with bus_of(server.url, user, server.environ(user)["PUMICE_NATS_PASSWORD"]) as bus:
        yield bus


@asynccontextmanager
async def bus_of(url: str, user: str, password: str) -> AsyncIterator[NatsBus]:
    """Open a bus to a server as one of its users."""
    options = BusOptions(
        url=url,
        name=f"test-{user}",
        inbox=f"_INBOX_{user}",
        credentials=BusCredentials(user=lambda: user, password=lambda: password),
        tls=None,
    )
    bus = NatsBus(
        options, clock=SystemClock(), log=structlog.get_logger(), on_status=lambda **_: None
    )
    async with running(bus):
        yield bus


SUBJECTS: Final = Subjects(cluster="local")
PATIENT: Final = LeaseTiming(takeover_s=600.0)
"""For a candidate that must not have waited until the lease expired."""


def lease_of(
    bus: NatsBus,
    holder: str,
    *,
    clock: Clock,
    name: str = "scheduler",
    timing: LeaseTiming | None = None,
    presence: Callable[[str], str] | None = None,
) -> Lease:
    """Return the lease `name` of the cluster `local`, as the process life `holder` sees it."""
    return Lease(
        bus,
        stream=streams("local").lease.name,
        subject=SUBJECTS.lease(name),
        holder=holder,
        clock=clock,
        timing=timing,
        presence=presence,
    )
