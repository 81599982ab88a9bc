"""Where an attack takes place: a real cluster, two replicas of each service, proxies, a judge."""

import asyncio
import random
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from pumice.local.control_plane import ControlPlane
from shared.contracts.codec import decode_lease
from shared.contracts.streams import streams
from shared.contracts.subjects import Subjects
from tests.attack.judge import AttackJudge
from tests.support import world
from tests.support.api import Api, connect
from tests.support.bus import admin_bus
from tests.support.fleet import SERVICES, Fleet, Service, fleet, largest_mib
from tests.support.proxy import Proxy, kubeconfig_through, proxy
from tests.support.stack import real_plane
from tests.support.wait import until

NODES = 20
REPLICAS = "ab"
LEADS = ("cache", "scheduler")
"""Services of which one replica leads; all replicas of the others work."""


class Replica:
    """One instance of a service, with the ways on which it reaches NATS and the API server."""

    def __init__(self, arena: "Arena", service: str, letter: str, nats: Proxy, kube: Proxy) -> None:
        self._arena = arena
        self.service = service
        self.letter = letter
        self.nats = nats
        self.kube = kube
        self.running: Service | None = None
        self.may_end = False
        """Whether an attack has ended the process, so that its end is no fault of its own."""

    async def start(self, *, fault: str = "") -> None:
        """Start the process; it need not be ready on return."""
        self.may_end = bool(fault)
        config = self._arena.directory / f"{self.service}-{self.letter}.kubeconfig"
        kubeconfig_through(self.kube, self._arena.plane.kubeconfig, config)
        self.running = await self._arena.services.start(
            self.service,
            instance=self.letter,
            fault=fault,
            wait=False,
            kubeconfig=config,
            nats=f"nats://127.0.0.1:{self.nats.port}",
        )

    @property
    def process(self):
        """The process that runs, or ran last."""
        assert self.running is not None, "not started yet"
        return self.running.process

    def kill(self) -> None:
        """Kill -9."""
        self.may_end = True
        self.process.kill()

    async def stop(self) -> None:
        """SIGTERM, as a rolling restart does."""
        self.may_end = True
        await self.process.stop(grace_s=20)

    def __str__(self) -> str:
        return f"{self.service}-{self.letter}"


class Arena:
    """What the faults act on."""

    def __init__(
        self, *, plane: ControlPlane, services: Fleet, api: Api, judge: AttackJudge, directory: Path
    ) -> None:
        self.plane = plane
        self.services = services
        self.api = api
        self.judge = judge
        self.directory = directory
        self.namespace = f"attack-{secrets.token_hex(3)}"
        self.strangers = f"strangers-{secrets.token_hex(3)}"
        judge.strangers = self.strangers
        self.replicas: list[Replica] = []
        self.rng = random.Random(0)

    def of(self, service: str) -> list[Replica]:
        """Return the replicas of a service."""
        return [replica for replica in self.replicas if replica.service == service]

    async def leader(self, service: str) -> Replica:
        """Return the replica that leads, or one that is drawn where all work."""
        replicas = self.of(service)
        if service not in LEADS:
            return self.rng.choice(replicas)
        cluster = self.plane.options.cluster
        subject = Subjects(cluster=cluster).lease(service)

        async def holder() -> Replica | None:
            async with admin_bus(self.plane.nats) as bus:
                found = await bus.last(streams(cluster).lease.name, subject)
            name = decode_lease(found.payload).holder if found else ""
            return next((r for r in replicas if name.startswith(f"{r}.")), None)

        return await until(holder, deadline_s=30, describe=f"a leader of {service}")

    async def all_ready(self, deadline_s: float = 60) -> None:
        """Wait until every replica is ready."""
        for replica in self.replicas:
            assert replica.running is not None
            await replica.running.ready(deadline_s=deadline_s)

    def ended(self) -> list[str]:
        """Return the processes that ended though no attack ended them."""
        return [
            replica.process.describe_end()
            for replica in self.replicas
            if not replica.process.pid and not replica.may_end
        ]

    def memory_mib(self) -> dict[str, int]:
        """Return the resident memory of NATS and, per service, of its largest replica."""
        replicas = ((replica.service, replica.process.pid) for replica in self.replicas)
        return largest_mib(self.plane.nats.process.pid, replicas)

    async def revive(self) -> None:
        """Start what was ended, wake what sleeps, mend every way."""
        for replica in self.replicas:
            replica.nats.mend()
            replica.kube.mend()
            replica.process.resume()
            if not replica.process.pid:
                await replica.start()


@asynccontextmanager
async def arena(directory: Path) -> AsyncIterator[Arena]:
    """Open an arena in which all replicas are ready."""
    async with AsyncExitStack() as stack:
        plane = await stack.enter_async_context(real_plane(directory / "plane", audit_log=True))
        api = await stack.enter_async_context(connect(plane.kubeconfig))
        await world.add_nodes(api, NODES, cpu="16")
        services = await stack.enter_async_context(fleet(plane, directory))
        judge = AttackJudge(api)
        here = Arena(plane=plane, services=services, api=api, judge=judge, directory=directory)
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        watching = tasks.create_task(judge.run(), name="judge")
        stack.callback(watching.cancel)
        await judge.ready.wait()
        for service in SERVICES:
            for letter in REPLICAS:
                nats = await stack.enter_async_context(proxy(plane.nats.port))
                kube = await stack.enter_async_context(proxy(plane.port))
                replica = Replica(here, service, letter, nats, kube)
                await replica.start()
                here.replicas.append(replica)
        for name in (here.namespace, here.strangers):
            await api.create("namespaces", {"metadata": {"name": name}})
        await here.all_ready()
        yield here


async def pause(seconds: float) -> None:
    """Let a fault last: the length of a fault is what is drawn here, not a wait for something."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        await asyncio.sleep(min(left, 0.2))
