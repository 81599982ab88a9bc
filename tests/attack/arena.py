"""Where an attack takes place: a real cluster, two replicas of each service, proxies, a judge."""

import asyncio
import random
import secrets
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import yaml

from pumice.local.control_plane import ControlPlane
from pumice.local.nats import NatsServer
from shared.contracts.codec import decode_lease
from shared.contracts.streams import streams
from shared.contracts.subjects import SINGLE_PODS, Subjects
from tests.attack import doors
from tests.attack.installations import (
    AGENT,
    DOORS,
    INSTALLATIONS,
    PLAIN,
    REPLICAS,
    SINGLES,
    Installation,
)
from tests.attack.judge import AttackJudge
from tests.support import world
from tests.support.api import Api, connect
from tests.support.fleet import Fleet, Service, fleet, largest_mib, resident_mib
from tests.support.invariants import amount
from tests.support.manifests import BASE
from tests.support.nats_servers import NatsCluster, admin_bus
from tests.support.proxy import Proxy, kubeconfig_through, proxy
from tests.support.stack import real_plane
from tests.support.wait import until

NODES = 20
LEADS = ("cache", "scheduler", SINGLES)
"""Services of which one replica leads; all replicas of the others work."""
NATS = "nats"
API = "api"
HALF = NODES // 2
"""Nodes of each shard where there are two."""


class Routes:
    """The proxies by which one replica reaches servers that stand for each other."""

    def __init__(self, proxies: Sequence[Proxy]) -> None:
        self._proxies = proxies

    @property
    def url(self) -> str:
        """The servers, as a service is given them."""
        return ",".join(f"nats://127.0.0.1:{each.port}" for each in self._proxies)

    def cut(self) -> None:
        """Break all connections and accept no new ones."""
        for each in self._proxies:
            each.cut()

    def silence(self) -> None:
        """Hold everything back and close nothing."""
        for each in self._proxies:
            each.silence()

    def mend(self) -> None:
        """Let everything pass again."""
        for each in self._proxies:
            each.mend()


class Replica:
    """One instance of a service, with the ways on which it reaches NATS and the API server."""

    def __init__(
        self,
        arena: "Arena",
        service: str,
        letter: str,
        nats: Routes,
        kube: Proxy,
        *,
        door: doors.ClusterService | None = None,
    ) -> None:
        self._arena = arena
        self.service = service
        self.letter = letter
        self.nats = nats
        self.kube = kube
        self._door = door
        self.running: Service | None = None
        self.may_end = False
        """Whether an attack has ended the process, so that its end is no fault of its own."""

    async def start(
        self, *, fault: str = "", python: Path | str = sys.executable, **more: str
    ) -> None:
        """Start the process, with `more` flags; it need not be ready on return."""
        self.may_end = bool(fault)
        config = self._arena.directory / f"{self.service}-{self.letter}.kubeconfig"
        kubeconfig_through(self.kube, self._arena.plane.kubeconfig, config)
        flags = self._arena.installation.flags(self.service)
        if self._door is not None:
            endpoint = self._door.endpoints[REPLICAS.index(self.letter)]
            flags |= doors.flags(self.service, self._door, endpoint)
        single = self.service == SINGLES
        self.running = await self._arena.services.start(
            "scheduler" if single else self.service,
            instance=f"{SINGLES}-{self.letter}" if single else self.letter,
            fault=fault,
            wait=False,
            kubeconfig=config,
            nats=self.nats.url,
            python=python,
            **flags,
            **more,
        )
        if self._door is not None:
            endpoint.address = self.running.address

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
        prefix = "scheduler-" if self.service == SINGLES else ""
        return f"{prefix}{self.service}-{self.letter}"


class Arena:
    """What the faults act on."""

    def __init__(
        self,
        installation: Installation,
        *,
        plane: ControlPlane,
        services: Fleet,
        api: Api,
        judge: AttackJudge,
        directory: Path,
    ) -> None:
        self.installation = installation
        self.plane = plane
        self.services = services
        self.api = api
        self.judge = judge
        self.directory = directory
        self.namespace = f"attack-{secrets.token_hex(3)}"
        self.strangers = f"strangers-{secrets.token_hex(3)}"
        judge.strangers = self.strangers
        self.replicas: list[Replica] = []
        self.probes: list[doors.DoorProbe] = []
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
        subject = Subjects(cluster=cluster).lease(SINGLE_PODS if service == SINGLES else service)

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

    @property
    def nats_servers(self) -> list[NatsServer]:
        """The servers of NATS: one or three."""
        nats: NatsServer | NatsCluster = self.plane.nats
        return nats.servers if isinstance(nats, NatsCluster) else [nats]

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
        largest = max(self.nats_servers, key=lambda each: resident_mib(each.process.pid))
        return largest_mib(largest.process.pid, replicas)

    def over_limit(self) -> list[str]:
        """Return the services that have more memory than k8s/base lets them have."""
        limits = memory_limits_mib()
        return [
            f"{name} has {mib} MiB, and k8s/base allows {limits[name]}"
            for name, mib in self.memory_mib().items()
            if mib > limits.get(name, mib)
        ]

    def complaints(self) -> list[str]:
        """Return what a round showed beside its gangs: too much memory, a door without answers."""
        return [*self.over_limit(), *filter(None, (each.complaint() for each in self.probes))]

    async def revive(self, only: str = "") -> None:
        """Start what was ended, wake what sleeps, mend every way.

        `only` those of a role, the servers of NATS (`NATS`) or of Kubernetes (`API`).
        """
        if only in ("", NATS):
            await self._revive_nats()
        if only in ("", API):
            for name, process in self.plane.processes.items():
                process.resume()
                if not process.pid and name != "nats-server":
                    await self.plane.start_program(name)
        for replica in self.of(only) if only else self.replicas:
            replica.nats.mend()
            replica.kube.mend()
            replica.process.resume()
            if not replica.process.pid:
                await replica.start()

    async def _revive_nats(self) -> None:
        nats: NatsServer | NatsCluster = self.plane.nats
        for number, server in enumerate(self.nats_servers):
            if isinstance(nats, NatsCluster):
                nats.rejoin(number)
            server.process.resume()
            if not server.process.pid:
                await server.start()


def memory_limits_mib() -> dict[str, int]:
    """Return the limit of memory per service in k8s/base, which the chart has as well."""
    limits = {}
    for path in (BASE / "services").glob("*.yaml"):
        for manifest in yaml.safe_load_all(path.read_text("utf-8")):
            if manifest and manifest["kind"] == "Deployment":
                container = manifest["spec"]["template"]["spec"]["containers"][0]
                limits[path.stem] = int(amount(container["resources"]["limits"]["memory"]) / 2**20)
    return {**limits, SINGLES: limits["scheduler"]}


@asynccontextmanager
async def arena(
    directory: Path, installation: Installation = INSTALLATIONS[PLAIN]
) -> AsyncIterator[Arena]:
    """Open an arena in which all replicas are ready."""
    async with AsyncExitStack() as stack:
        directory.mkdir(parents=True, exist_ok=True)
        three = None
        if installation.nats_servers > 1:
            three = NatsCluster(directory / "nats", cuttable=True)
            stack.push_async_callback(three.stop)
        plane = await stack.enter_async_context(
            real_plane(directory / "plane", audit_log=True, nats=three)
        )
        api = await stack.enter_async_context(connect(plane.kubeconfig))
        await world.add_nodes(api, NODES, cpu="16")
        services = await stack.enter_async_context(fleet(plane, directory, forked=False))
        judge = AttackJudge(api)
        here = Arena(
            installation, plane=plane, services=services, api=api, judge=judge, directory=directory
        )
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        watching = tasks.create_task(judge.run(), name="judge")
        stack.callback(watching.cancel)
        await judge.ready.wait()
        for name in (here.namespace, here.strangers):
            await api.create("namespaces", {"metadata": {"name": name}})
        if installation.single_pods:
            await deal_nodes(api, HALF)
        for role in installation.roles():
            door = None
            if role in DOORS:
                door = await stack.enter_async_context(doors.cluster_service(len(REPLICAS)))
                if role == "visibility":
                    await doors.register_visibility(api, door)
            for letter in REPLICAS:
                routes = [
                    await stack.enter_async_context(proxy(server.port))
                    for server in here.nats_servers
                ]
                kube = await stack.enter_async_context(proxy(plane.port))
                replica = Replica(here, role, letter, Routes(routes), kube, door=door)
                await replica.start()
                here.replicas.append(replica)
            if door is not None:
                probing = tasks.create_task(door.run(), name=f"endpoints-{role}")
                stack.callback(probing.cancel)
        await here.all_ready(120)
        if installation.doors:
            here.probes = doors.probes(api, here.namespace)
        for probe in here.probes:
            asking = tasks.create_task(probe.run(), name=f"ask-{probe.name}")
            stack.callback(asking.cancel)
            await until(lambda p=probe: p.right, deadline_s=60, describe=f"{probe.name} answers")
        yield here


async def deal_nodes(api: Api, first: int) -> None:
    """Give the first nodes to the scheduler for groups, the rest to that for single pods."""
    names = [f"node-{number}" for number in range(NODES)]
    dealt = {"volcano": names[:first], AGENT: names[first:]}
    known = {shard["metadata"]["name"] for shard in await api.items("nodeshards")}
    for name in sorted(dealt, key=lambda each: len(dealt[each])):  # the one that loses some, first
        spec = {"spec": {"nodesDesired": dealt[name]}}
        if name in known:
            await api.patch("nodeshards", "", name, spec)
            continue
        head = {"apiVersion": "shard.volcano.sh/v1alpha1", "kind": "NodeShard"}
        await api.create("nodeshards", {**head, "metadata": {"name": name}, **spec})


async def pause(seconds: float) -> None:
    """Let a fault last: the length of a fault is what is drawn here, not a wait for something."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        await asyncio.sleep(min(left, 0.2))
