"""A stage for the scheduler as a process on a real nats-server: the test plays cache and binder."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from pumice.local.nats import NatsServer
from services.scheduler.engine.state.cluster_state import ClusterState
from services.scheduler.policy.catalog import STATES
from shared.bus.nats import NatsBus
from shared.contracts import codec
from shared.contracts import messages as m
from shared.contracts.streams import streams
from shared.contracts.subjects import Subjects
from shared.runtime.errors import Retryable
from tests.support import world
from tests.support.fleet import Fleet, Place, Service, fleet
from tests.support.nats_servers import admin_bus
from tests.support.wait import until
from tests.support.world import stored_group, stored_pod, stored_queue

STREAMS = streams("local")
SUBJECTS = Subjects(cluster="local")
KINDS = tuple(sorted(ClusterState(states=STATES).kinds))


class Stage:
    """Facts in, commands out."""

    def __init__(self, bus: NatsBus, schedulers: Fleet) -> None:
        self.bus, self.fleet = bus, schedulers
        self._facts = bus.publisher(STREAMS.state.name)
        self._outcomes = bus.publisher(STREAMS.outcome.name)
        self._rv = 0
        self.marking = True

    async def fact(self, kind: str, key: str, body: dict | None, uid: str = "") -> None:
        """Publish the fact that an object is so (or, without a body, gone)."""
        self._rv += 1
        rv = str(self._rv)
        if body is None:
            fact = world.gone(kind, key, uid, rv=rv)
        else:
            meta = {"uid": f"uid-{key}", **body["metadata"], **({"uid": uid} if uid else {})}
            fact = world.fact(kind, {**body, "metadata": meta}, rv=rv)
        await self._facts.publish(SUBJECTS.state(kind, key), codec.encode(fact))

    async def mark(self) -> None:
        """Publish the marker every fifth of a second while `marking`."""
        while True:
            if self.marking:
                marker = m.Marker(complete=KINDS, bookmarks={}, time=time.time(), instance="test")
                with contextlib.suppress(Retryable):  # the server is being restarted
                    await self._facts.publish(SUBJECTS.marker, codec.encode(marker))
            await asyncio.sleep(0.2)

    async def start(self, instance: str = "a", *, wait: bool = True, **flags: str) -> Service:
        """Start a scheduler, with `wait` until it is ready; `bug` is as in `Fleet.start`."""
        return await self.fleet.start("scheduler", instance=instance, wait=wait, **flags)

    def kill_first(self) -> None:
        """Kill the scheduler that was started first."""
        self.fleet.processes[0].kill()

    async def commands(self) -> list[m.Command]:
        """Return the intents on COMMAND."""
        found: list[m.Command] = []
        for partition in range(4):
            messages = self.bus.scan(STREAMS.command.name, SUBJECTS.command(partition))
            found += [codec.decode_command(message.payload) async for message in messages]
        return found

    async def until_commands(self, count: int) -> list[m.Command]:
        """Wait for that many intents."""
        last: list[m.Command] = []

        async def enough() -> bool:
            nonlocal last
            last = await self.commands()
            return len(last) >= count

        await until(enough, describe=lambda: f"{last} {self.fleet.logs()}")
        return last

    async def desired(self, kind: str, key: str) -> m.Desired | None:
        """Return what is wanted of an object."""
        for partition in range(4):
            subject = SUBJECTS.desired(partition, kind, key)
            message = await self.bus.last(STREAMS.desired.name, subject)
            if message is not None:
                return codec.decode_desired(message.payload)
        return None

    async def evicted(self, command: m.Evict) -> None:
        """Do what the binder and the API server do about an eviction: the victims are gone."""
        items = tuple(
            m.ItemOutcome(pod=v.pod, uid=v.uid, result=m.Result.EVICTED, node=v.node)
            for v in command.victims
        )
        job = command.victims[0].job
        message = m.Outcome(
            intent=command.id, job=job, items=items, instance="test", time=time.time()
        )
        await self._outcomes.publish(SUBJECTS.outcome(0), codec.encode(message))
        for victim in command.victims:
            await self.fact("pods", victim.pod, None, victim.uid)

    async def outcome(self, command: m.BindGang, result: m.Result) -> None:
        """Say how a bind intent ended."""
        items = tuple(
            m.ItemOutcome(pod=b.pod, uid=b.uid, result=result, node=b.node) for b in command.binds
        )
        message = m.Outcome(
            intent=command.id, job=command.job, items=items, instance="test", time=time.time()
        )
        await self._outcomes.publish(SUBJECTS.outcome(0), codec.encode(message))

    async def settle(self, command: m.BindGang) -> None:
        """Take a command out of COMMAND, as its acknowledgement does."""
        for partition in range(4):
            async for message in self.bus.scan(STREAMS.command.name, SUBJECTS.command(partition)):
                if codec.decode_command(message.payload).id == command.id:
                    await self.bus.purge(STREAMS.command.name, SUBJECTS.command(partition))

    # --- a small world -------------------------------------------------------------------------

    async def cluster(self, nodes: int = 2, cpu: str = "4") -> None:
        """Publish nodes and the default queue."""
        for i in range(nodes):
            await self.fact("nodes", f"n{i}", world.node(f"n{i}", cpu=cpu))
        await self.fact("queues", "default", stored_queue("default", weight=1))

    async def group(
        self,
        name: str,
        size: int,
        phase: str = "Inqueue",
        annotations: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> None:
        """Publish a PodGroup; `spec` goes into its spec."""
        meta = {"annotations": dict(annotations or {})}
        body = stored_group(f"ns/{name}", phase=phase, metadata=meta, minMember=size, **spec)
        await self.fact("podgroups", f"ns/{name}", body)

    async def pod(
        self, group: str, index: int, node: str = "", cpu: str = "1", nominated: str = ""
    ) -> None:
        """Publish one pod of a group."""
        name = f"{group}-{index}"
        body = stored_pod(f"ns/{name}", group=group, cpu=cpu, memory="1Gi", node=node)
        body["status"]["nominatedNodeName"] = nominated
        await self.fact("pods", f"ns/{name}", body)

    async def gang(self, name: str, size: int, phase: str = "Inqueue", cpu: str = "1") -> None:
        """Publish a PodGroup with all its pods."""
        await self.group(name, size, phase)
        for i in range(size):
            await self.pod(name, i, cpu=cpu)


@contextlib.asynccontextmanager
async def scheduler_stage(server: NatsServer, directory: Path) -> AsyncIterator[Stage]:
    place = Place(kubeconfig=None, nats=server)
    async with admin_bus(server) as bus, asyncio.TaskGroup() as tasks:
        await bus.ensure_streams([getattr(STREAMS, name) for name in STREAMS.__struct_fields__])
        async with fleet(place, directory) as schedulers:
            stage = Stage(bus, schedulers)
            marking = tasks.create_task(stage.mark(), name="marker")
            try:
                yield stage
            finally:
                marking.cancel()


def nodes_of(command: m.BindGang) -> dict[str, str]:
    """Return pod → node of a bind intent."""
    return {bind.pod: bind.node for bind in command.binds}
