"""How soon work goes on after a kill -9: `python -m benchmarks.takeover --kills 20`.

Each service runs twice. Round by round the process that leads is killed (of controller and binder,
which share the work, one of the two) and eight jobs of one pod are created in that moment: they go
through every service and every share of the controller. What is measured is the time from the kill
until the last of the eight pods is on a node, and until STATE tells of the first job (`told`), and
beside it the same without a kill.

With `--copies 1` each service runs once, and what was killed is started again at once.
`--only nats` kills nats-server and starts it again without its data.

`--gangs 50 --size 100` first makes that many gangs at once and counts the leases that are lost
while they are placed: none may be. `--nodes 5000 --running 50000` does it on a cluster of so many
nodes, on which so many pods run; `--only cache` kills that service alone.
"""

import argparse
import asyncio
import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Literal, NamedTuple

import structlog

from pumice.local import parts
from pumice.local.control_plane import ControlPlane, ControlPlaneOptions
from pumice.local.embedded import plane_of
from pumice.local.fleet import NodeShape
from shared.contracts.codec import decode_lease
from shared.contracts.streams import streams
from shared.contracts.subjects import Subjects
from tests.support import world
from tests.support.api import Api, connect
from tests.support.fleet import Fleet, Service, fleet
from tests.support.nats_servers import admin_bus
from tests.support.stack import CRDS
from tests.support.wait import until

KILLED = ("cache", "scheduler", "controller", "binder")
NATS = "nats"
JOBS = 8
NAMESPACE = "default"
CROWD = "crowd"
"""Namespace of the pods that run all the time."""
CREATORS = 32
READY_S = 300.0


class Taken(NamedTuple):
    """Seconds from the creation of jobs."""

    told_s: float
    bound_s: float


class Stage:
    """One or two replicas of everything on one control plane."""

    def __init__(self, plane: ControlPlane, api: Api, services: Fleet, *, copies: int) -> None:
        self.plane = plane
        self.api = api
        self.services = services
        self.running: dict[str, list[Service]] = {}
        self._copies = copies
        self._count = 0

    async def start(self) -> None:
        for name in ("cache", "scheduler", "binder", "controller"):
            self.running[name] = [
                await self._another(name, wait=False) for _ in range(self._copies)
            ]
        for pair in self.running.values():
            for service in pair:
                await service.ready(deadline_s=READY_S)

    async def crowd(self, pods: int, nodes: int) -> None:
        """Have pods run that have nothing to do with what is measured."""
        await self.api.create("namespaces", {"metadata": {"name": CROWD}})
        numbers = iter(range(pods))

        async def create() -> None:
            for number in numbers:
                node = f"node-{number % nodes}"
                body = world.pod(f"p{number}", cpu="10m", scheduler="default", nodeName=node)
                await self.api.create("pods", body, CROWD)

        async with asyncio.TaskGroup() as group:
            for _ in range(CREATORS):
                group.create_task(create())

        async def run() -> bool:
            asked = {"fieldSelector": "status.phase!=Running", "limit": "1"}
            return not await self.api.items("pods", CROWD, **asked)

        await until(run, deadline_s=1200, every_s=2.0, describe="all pods run")

    async def _another(self, name: str, *, wait: bool) -> Service:
        self._count += 1
        return await self.services.start(name, instance=f"r{self._count}", wait=wait)

    async def holder(self, name: str) -> str:
        """Return the life of a process that holds the service's lease, or the first share."""
        cluster = self.plane.options.cluster
        lease = "controller-p0" if name == "controller" else name
        async with admin_bus(self.plane.nats) as bus:
            subject = Subjects(cluster=cluster).lease(lease)
            found = await bus.last(streams(cluster).lease.name, subject)
        return decode_lease(found.payload).holder if found else ""

    async def work(self) -> Taken:
        """Create jobs and return how long it takes until they are told of, and have nodes."""
        self._count += 1
        begun, name = time.monotonic(), f"work-{self._count}"
        for number in range(JOBS):
            body = world.job(f"{name}-{number}", world.task("t", 1, cpu="10m", memory="1Mi"))
            await self.api.create("jobs", body, NAMESPACE)
        told_s = await self._told(f"{NAMESPACE}/{name}-0") - begun

        async def bound() -> bool:
            pods = await self.api.items("pods", NAMESPACE)
            mine = [pod for pod in pods if pod["metadata"]["name"].startswith(f"{name}-")]
            return len([pod for pod in mine if pod["spec"].get("nodeName")]) == JOBS

        await until(bound, deadline_s=READY_S, every_s=0.02, describe=self.services.logs)
        taken_s = time.monotonic() - begun
        for number in range(JOBS):
            await self.api.delete("jobs", NAMESPACE, f"{name}-{number}")
        return Taken(told_s, taken_s)

    async def _told(self, key: str) -> float:
        """Wait until STATE tells of a job; return when that was."""
        cluster = self.plane.options.cluster
        subject = Subjects(cluster=cluster).state("jobs", key)
        async with admin_bus(self.plane.nats) as bus:
            await until(
                lambda: bus.last(streams(cluster).state.name, subject),
                deadline_s=READY_S,
                every_s=0.02,
                describe=self.services.logs,
            )
        return time.monotonic()

    async def load(self, gangs: int, size: int) -> dict[str, float]:
        """Place many gangs at once; return how long it took and how many leases were lost."""
        begun = time.monotonic()
        for number in range(gangs):
            body = world.job(f"load-{number}", world.task("t", size, cpu="10m", memory="1Mi"))
            await self.api.create("jobs", body, NAMESPACE)

        async def bound() -> bool:
            pods = await self.api.items("pods", NAMESPACE, fieldSelector="spec.nodeName!=")
            return len(pods) >= gangs * size

        await until(bound, deadline_s=300, every_s=1.0, describe=self.services.logs)
        taken_s = time.monotonic() - begun
        lost = sum(
            service.log.count(f'"{event}"')
            for pair in self.running.values()
            for service in pair
            for event in ("leadership_lost", "partition_lost", "leader_refused")
        )
        for number in range(gangs):
            await self.api.delete("jobs", NAMESPACE, f"load-{number}")

        async def gone() -> bool:
            return not await self.api.items("pods", NAMESPACE)

        await until(gone, deadline_s=300, every_s=1.0, describe=self.services.logs)
        return {"pods": gangs * size, "bound_s": round(taken_s, 1), "leases_lost": lost}

    async def strike(self, name: str) -> Taken:
        """Kill the process that leads, measure, and start another in its place.

        That one is started before the measurement where there is no other.
        """
        if name == NATS:
            return await self._lose_data()
        pair = self.running[name]
        leading: list[Service] = []

        async def found() -> bool:
            if name == "binder":
                leading[:] = pair[:1]  # both work, and none leads
                return True
            holder = await self.holder(name)
            leading[:] = [s for s in pair if holder.startswith(f"{s.process.spec.name}.")]
            return bool(leading)

        await until(found, deadline_s=20, describe=f"a leader among the {name}s")
        victim = leading[0]
        victim.kill()
        if self._copies == 1:
            again = await self._another(name, wait=False)
            taken = await self.work()
        else:
            taken = await self.work()
            again = await self._another(name, wait=False)
        pair[pair.index(victim)] = again
        await again.ready(deadline_s=READY_S)
        if name == "controller":
            await asyncio.sleep(2.0)  # shares are spread again
        return taken

    async def _lose_data(self) -> Taken:
        """Kill nats-server, and start it again without its data."""
        nats = self.plane.nats
        nats.process.kill()
        shutil.rmtree(nats.directory / "jetstream")
        async with asyncio.TaskGroup() as group:
            group.create_task(nats.start())
            taken = await self.work()
        for pair in self.running.values():
            for service in pair:
                await service.ready(deadline_s=READY_S)
        return taken


async def measure(asked: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Return median and worst per service, and of undisturbed work under `none`."""
    results: dict[str, dict[str, float]] = {}
    api_kind: Literal["embedded", "real"] = asked.api
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        needed = ["nats-server"] if api_kind == "embedded" else None
        options = ControlPlaneOptions(directory=directory / "plane", api=api_kind)
        binaries = parts.require(needed) if needed else parts.require()
        async with plane_of(options, binaries) as plane:
            await plane.apply_crds(CRDS)
            await plane.add_nodes(NodeShape(count=asked.nodes, cpu="32", memory="64Gi"))
            async with (
                connect(plane.kubeconfig) as api,
                fleet(plane, directory, forked=False) as services,
            ):
                stage = Stage(plane, api, services, copies=asked.copies)
                if asked.running:
                    await stage.crowd(asked.running, asked.nodes)
                await stage.start()
                await stage.work()
                if asked.gangs:
                    results["load"] = await stage.load(asked.gangs, asked.size)
                taken = {"none": [await stage.work() for _ in range(asked.kills)]}
                for name in asked.only or KILLED:
                    taken[name] = [await stage.strike(name) for _ in range(asked.kills)]
    return results | {name: _summary(each) for name, each in taken.items() if each}


def _summary(each: list[Taken]) -> dict[str, float]:
    told_s, bound_s = ([getattr(taken, what) for taken in each] for what in Taken._fields)
    return {
        "told_median_s": round(statistics.median(told_s), 2),
        "told_worst_s": round(max(told_s), 2),
        "median_s": round(statistics.median(bound_s), 2),
        "worst_s": round(max(bound_s), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="kills of each service")
    parser.add_argument("--api", choices=("embedded", "real"), default="embedded")
    parser.add_argument("--gangs", type=int, default=0, help="gangs made at once before")
    parser.add_argument("--size", type=int, default=100, help="pods of each of them")
    parser.add_argument("--nodes", type=int, default=60, help="nodes of the cluster")
    parser.add_argument("--running", type=int, default=0, help="pods that run on them all the time")
    only = (*KILLED, NATS)
    parser.add_argument("--only", nargs="*", choices=only, help="services to kill; else all")
    parser.add_argument("--copies", type=int, choices=(1, 2), default=2, help="of each service")
    options = parser.parse_args()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    found = asyncio.run(measure(options))
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
