"""An installation whose services are replaced one by one, and the judge that watches it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from pumice.local.control_plane import Api as ApiServer
from tests.attack.judge import AttackJudge
from tests.support import world
from tests.support.api import Api, connect
from tests.support.fleet import Fleet, Service, fleet, largest_mib
from tests.upgrade.release import Release
from tests.upgrade.stage import Stage, stage

NODES = 20
REPLICAS = 2
ORDER = ("declarer", "cache", "binder", "controller", "scheduler")
"""In which order services are replaced: those that read before those that write. Back it goes the
other way round."""
SLOW_S = 180.0
"""For a start: nothing hangs on how fast the machine is."""
SET_ASIDE = (
    "command_quarantined",
    "desired_status_quarantined",
    "fact_unreadable",
    "marker_unreadable",
)
"""Events in the logs that say that a message was not understood."""


class Replica:
    """One process of one service."""

    def __init__(self, service: str, number: int, release: Release, running: Service) -> None:
        self.service = service
        self.number = number
        self.release = release
        self.running = running

    @property
    def process(self):
        """The process."""
        return self.running.process


class Installation:
    """All replicas, and what a round of an attack asks for: `api`, `judge`, `namespace`, …"""

    namespace = "upgrade"

    def __init__(self, on: Stage, services: Fleet, api: Api, judge: AttackJudge) -> None:
        self.stage = on
        self.plane = on.plane
        self.api = api
        self.judge = judge
        self._services = services
        self.replicas: list[Replica] = []
        self._made = 0

    async def start(self, service: str, number: int, release: Release) -> Replica:
        """Start one replica; it is ready on return."""
        self._made += 1
        running = await self._services.start(
            service, instance=f"{number}-{self._made}", python=release.python, wait=False
        )
        replica = Replica(service, number, release, running)
        self.replicas.append(replica)
        await running.ready(deadline_s=SLOW_S)
        return replica

    async def start_all(self, release: Release) -> None:
        """Start every service, the declarer first, which makes what the others wait for."""
        await self.start("declarer", 0, release)
        async with asyncio.TaskGroup() as tasks:
            for service in ORDER:
                for number in range(service == "declarer", REPLICAS):
                    starting = self.start(service, number, release)
                    tasks.create_task(starting, name=f"{service}-{number}")

    async def replace(self, service: str, release: Release) -> None:
        """Roll one service as a Deployment does: an old replica ends when a new one is ready."""
        for old in [r for r in self.replicas if r.service == service]:
            await self.start(service, old.number, release)
            await old.process.stop(grace_s=30)
            self.replicas.remove(old)

    def ended(self) -> list[str]:
        """Return the processes that ended though nothing ended them."""
        return [r.process.describe_end() for r in self.replicas if not r.process.pid]

    async def revive(self) -> None:
        """Do nothing: what an upgrade leaves has to go on by itself."""

    async def all_ready(self) -> None:
        """Wait until every replica is ready."""
        for replica in self.replicas:
            await replica.running.ready(deadline_s=SLOW_S)

    def memory_mib(self) -> dict[str, int]:
        """Return the resident memory of NATS and, per service, of its largest replica."""
        replicas = ((replica.service, replica.process.pid) for replica in self.replicas)
        return largest_mib(self.plane.nats.process.pid, replicas)

    def not_understood(self) -> list[str]:
        """Return the lines of all logs so far that say that a message was not understood."""
        lines = self._services.lines()
        return [line for line in lines if any(f'"event": "{word}"' in line for word in SET_ASIDE)]


@asynccontextmanager
async def installation(
    directory: Path, release: Release, on_api: ApiServer
) -> AsyncIterator[Installation]:
    """Open an installation of one release that is ready, with nodes and a judge."""
    async with AsyncExitStack() as stack:
        on = await stack.enter_async_context(stage(directory / "plane", release, on_api))
        api = await stack.enter_async_context(connect(on.plane.kubeconfig))
        await world.add_nodes(api, NODES, cpu="16")
        services = await stack.enter_async_context(fleet(on.plane, directory, forked=False))
        judge = AttackJudge(api)
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        watching = tasks.create_task(judge.run(), name="judge")
        stack.callback(watching.cancel)
        await judge.ready.wait()
        here = Installation(on, services, api, judge)
        await api.create("namespaces", {"metadata": {"name": here.namespace}})
        await here.start_all(release)
        yield here
