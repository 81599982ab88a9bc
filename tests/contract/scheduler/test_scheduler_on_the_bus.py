"""The scheduler as a process on a real nats-server; the test plays cache and binder by hand."""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from pumice.local.nats import NatsServer
from pumice.local.ports import free_port
from pumice.local.process import Process, ProcessSpec
from services.scheduler.engine import Replica
from shared.bus.nats import NatsBus
from shared.contracts import codec
from shared.contracts import messages as m
from shared.contracts.streams import streams
from shared.contracts.subjects import Subjects
from shared.runtime.errors import Retryable
from tests.support import world
from tests.support.bus import admin_bus
from tests.support.fleet import Service
from tests.support.wait import until

STREAMS = streams("local")
SUBJECTS = Subjects(cluster="local")
KINDS = tuple(sorted(Replica().kinds))


class Stage:
    """Facts in, commands out."""

    def __init__(self, bus: NatsBus, server: NatsServer, directory: Path) -> None:
        self.bus = bus
        self._server = server
        self._directory = directory
        self._facts = bus.publisher(STREAMS.state.name)
        self._outcomes = bus.publisher(STREAMS.outcome.name)
        self._rv = 0
        self._services: list[Process] = []
        self.marking = True

    async def fact(self, kind: str, key: str, body: dict | None, uid: str = "") -> None:
        """Publish the fact that an object is so (or, without a body, gone)."""
        self._rv += 1
        op = m.Op.PUT if body is not None else m.Op.DELETE
        raw = msgspec.Raw(msgspec.json.encode(body))
        fact = m.Fact(
            kind=kind, key=key, uid=uid or f"uid-{key}", rv=str(self._rv), op=op, body=raw
        )
        await self._facts.publish(SUBJECTS.state(kind, key), codec.encode(fact))

    async def mark(self) -> None:
        """Publish the marker every fifth of a second while `marking`."""
        while True:
            if self.marking:
                marker = m.Marker(complete=KINDS, bookmarks={}, time=time.time(), instance="test")
                with contextlib.suppress(Retryable):  # the server is being restarted
                    await self._facts.publish(SUBJECTS.marker, codec.encode(marker))
            await asyncio.sleep(0.2)

    async def start(self, instance: str = "a", **flags: str) -> Service:
        """Start a scheduler and wait until it is ready."""
        service = self.spawn(instance, **flags)
        await service.ready()
        return service

    def spawn(self, instance: str = "a", **flags: str) -> Service:
        """Start a scheduler."""
        address = f"127.0.0.1:{free_port()}"
        spec = ProcessSpec(
            name=f"scheduler-{instance}",
            argv=(
                sys.executable,
                "-P",
                "-m",
                "services.scheduler",
                f"--nats={self._server.url}",
                f"--instance={instance}",
                f"--listen-address={address}",
                *(f"--{k.replace('_', '-')}={v}" for k, v in flags.items()),
            ),
            log=self._directory / f"{instance}.log",
            environ=self._server.environ("scheduler"),
        )
        process = Process(spec)
        self._services.append(process)
        process.start()
        return Service(process, address, None)

    def kill_first(self) -> None:
        """Kill the scheduler that was started first."""
        self._services[0].kill()

    async def stop(self) -> None:
        """Stop what was started."""
        for process in self._services:
            await process.stop(grace_s=2)

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

        await until(enough, deadline_s=10, describe=lambda: f"{last} {self._logs()}")
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

    def _logs(self) -> str:
        return "\n".join(p.last_words() for p in self._services)

    # --- a small world -------------------------------------------------------------------------

    async def cluster(self, nodes: int = 2, cpu: str = "4") -> None:
        """Publish nodes and the default queue."""
        for i in range(nodes):
            body = world.node(f"n{i}", cpu=cpu)
            body["metadata"]["uid"] = f"uid-n{i}"
            await self.fact("nodes", f"n{i}", body)
        queue = {"metadata": {"name": "default", "uid": "uid-default"}, "spec": {"weight": 1}}
        queue["status"] = {"state": "Open"}
        await self.fact("queues", "default", queue)

    async def group(self, name: str, size: int, phase: str = "Inqueue", **spec: str) -> None:
        """Publish a PodGroup; `spec` goes into its spec."""
        body = {
            "metadata": {"name": name, "namespace": "ns", "uid": f"uid-ns/{name}"},
            "spec": {"minMember": size, "queue": "default", **spec},
            "status": {"phase": phase},
        }
        await self.fact("podgroups", f"ns/{name}", body)

    async def pod(
        self, group: str, index: int, node: str = "", cpu: str = "1", nominated: str = ""
    ) -> None:
        """Publish one pod of a group."""
        name = f"{group}-{index}"
        template = world.task("w", 1, cpu=cpu)["template"]
        meta = {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-ns/{name}",
            "annotations": {"scheduling.k8s.io/group-name": group},
        }
        spec = {**template["spec"], "schedulerName": "volcano"}
        phase = "Pending"
        if node:
            spec["nodeName"] = node
            phase = "Running"
        status = {"phase": phase, "nominatedNodeName": nominated}
        body = {"metadata": meta, "spec": spec, "status": status}
        await self.fact("pods", f"ns/{name}", body)

    async def gang(self, name: str, size: int, phase: str = "Inqueue", cpu: str = "1") -> None:
        """Publish a PodGroup with all its pods."""
        await self.group(name, size, phase)
        for i in range(size):
            await self.pod(name, i, cpu=cpu)


@contextlib.asynccontextmanager
async def _stage(server: NatsServer, directory: Path) -> AsyncIterator[Stage]:
    async with admin_bus(server) as bus, asyncio.TaskGroup() as tasks:
        declared = [getattr(STREAMS, name) for name in STREAMS.__struct_fields__]
        await bus.ensure_streams(declared)
        stage = Stage(bus, server, directory)
        marking = tasks.create_task(stage.mark(), name="marker")
        try:
            yield stage
        finally:
            marking.cancel()
            await stage.stop()


@pytest_asyncio.fixture
async def stage(nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[Stage]:
    async with _stage(nats_server, tmp_path) as opened:
        yield opened


def nodes_of(command: m.BindGang) -> dict[str, str]:
    return {bind.pod: bind.node for bind in command.binds}


async def test_a_gang_is_bound_by_one_message_and_its_group_admitted_first(stage: Stage):
    await stage.cluster()
    await stage.start()
    await stage.group("g", 3, phase="Pending")

    async def admitted() -> bool:
        wanted = await stage.desired("podgroups", "ns/g")
        return isinstance(wanted, m.DesiredPodGroup) and wanted.phase == "Inqueue"

    await until(admitted, describe="the group is admitted")
    await stage.gang("g", 3)
    (command,) = await stage.until_commands(1)
    assert isinstance(command, m.BindGang)
    assert set(nodes_of(command)) == {"ns/g-0", "ns/g-1", "ns/g-2"}
    assert command.job == "ns/g"


async def test_a_gang_that_does_not_fit_gets_no_bind_and_its_reason(stage: Stage):
    await stage.cluster(nodes=1)
    await stage.start()
    await stage.gang("big", 3, cpu="2")
    await stage.gang("small", 2)
    (command,) = await stage.until_commands(1)
    assert command.job == "ns/small"
    wanted = await until(lambda: stage.desired("podgroups", "ns/big"), describe="a status")
    assert isinstance(wanted, m.DesiredPodGroup)
    condition = next(c for c in wanted.conditions if c.type == "Unschedulable")
    assert condition.reason == "NotEnoughResources"


async def test_what_a_killed_scheduler_asked_for_is_counted_by_the_next(stage: Stage):
    await stage.cluster(nodes=1)
    first = await stage.start("first")
    await stage.gang("g", 3)
    (asked,) = await stage.until_commands(1)
    first.kill()
    await stage.start("second")
    await stage.gang("late", 3)
    await stage.gang("tiny", 1)
    commands = await stage.until_commands(2)
    assert [c.job for c in commands if c.id != asked.id] == ["ns/tiny"]


async def test_a_bind_that_state_does_not_show_yet_still_counts_after_a_restart(stage: Stage):
    await stage.cluster(nodes=1)
    first = await stage.start("first")
    await stage.gang("g", 3)
    (asked,) = await stage.until_commands(1)
    first.kill()
    await stage.outcome(asked, m.Result.BOUND)
    await stage.settle(asked)
    await stage.start("second")
    await stage.gang("late", 3)
    await stage.gang("tiny", 1)
    (command,) = await stage.until_commands(1)
    assert command.job == "ns/tiny"


async def test_a_bind_that_failed_is_decided_again(stage: Stage):
    await stage.cluster(nodes=1)
    await stage.start()
    await stage.gang("g", 2)
    (asked,) = await stage.until_commands(1)
    await stage.settle(asked)
    await stage.outcome(asked, m.Result.FAILED)
    (again,) = await stage.until_commands(1)
    assert again.id != asked.id
    assert nodes_of(again).keys() == nodes_of(asked).keys()


async def test_an_intent_of_a_newer_version_keeps_a_scheduler_waiting_not_dying(stage: Stage):
    await stage.cluster()
    await stage.start()
    newer = b'{"type":"bind","v":9,"id":"9-9-9"}'
    await stage.bus.publisher(STREAMS.command.name).publish(SUBJECTS.command(0), newer)
    second = stage.spawn("second")
    stage.kill_first()
    await until(lambda: _says(second, "needs a newer scheduler"), describe="the second says what it lacks")
    await stage.gang("g", 2)
    assert second.process.pid
    await stage.bus.purge(STREAMS.command.name, SUBJECTS.command(0))
    await stage.until_commands(1)
    await second.ready()


async def _says(service: Service, words: str) -> bool:
    return words in await service.unready()


async def test_no_cycle_starts_while_the_cache_is_silent(stage: Stage):
    await stage.cluster(nodes=1)
    service = await stage.start()
    stage.marking = False

    async def not_ready() -> bool:
        return "no marker" in await service.unready()

    await until(not_ready, deadline_s=15, describe="readiness says that the marker is missing")
    await stage.gang("g", 2)
    folded = await service.metric("pumice_scheduler_facts_total")
    await stage.pod("other", 0)
    await until(lambda: _more_facts(service, folded), describe="facts are folded all the same")
    assert await stage.commands() == []
    stage.marking = True
    await stage.until_commands(1)


async def _more_facts(service: Service, before: float) -> bool:
    return await service.metric("pumice_scheduler_facts_total") > before


async def test_state_that_begins_anew_is_read_anew(stage: Stage, nats_server: NatsServer):
    await stage.cluster(nodes=1)
    service = await stage.start()
    await stage.gang("g", 3)
    (asked,) = await stage.until_commands(1)
    await nats_server.restart(kill=True)
    await until(lambda: _epoch_is_new(stage), describe="STATE exists again")
    await stage.cluster(nodes=1)
    await stage.gang("g", 3)
    await stage.gang("late", 2)
    await stage.gang("tiny", 1)
    commands = await stage.until_commands(2)
    assert [c.job for c in commands if c.id != asked.id] == ["ns/tiny"]
    assert service.process.pid


async def _epoch_is_new(stage: Stage) -> bool:
    return (await stage.bus.info(STREAMS.state.name)).last_seq < 5


@pytest.mark.parametrize("how", ["rewrite", "rename"])
async def test_a_replaced_configuration_is_used_at_once(stage: Stage, tmp_path: Path, how):
    conf = tmp_path / "volcano-scheduler.conf"
    conf.write_text('actions: "enqueue"\ntiers:\n- plugins:\n  - name: gang\n')
    await stage.cluster()
    service = await stage.start(scheduler_conf=str(conf))
    await stage.gang("g", 2)
    text = (
        'actions: "enqueue, allocate"\ntiers:\n- plugins:\n  - name: gang\n  - name: predicates\n'
    )
    conf.write_text("actions: allocate, fly\n")
    await until(lambda: "fly" in service.log, describe="the bad configuration is refused")
    assert await stage.commands() == []
    if how == "rename":
        (tmp_path / "new").write_text(text)
        (tmp_path / "new").rename(conf)
    else:
        conf.write_text(text)
    await stage.until_commands(1)


async def test_a_wrong_key_in_the_configuration_is_named_at_start(stage: Stage, tmp_path: Path):
    conf = tmp_path / "volcano-scheduler.conf"
    conf.write_text("actions: allocate\ntires: []\n")
    service = stage.spawn(scheduler_conf=str(conf))
    assert await asyncio.wait_for(service.process.exited(), 10) == 2
    assert "tires" in service.process.last_words()


PREEMPTING = """
actions: "enqueue, allocate, preempt, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: predicates}, {name: nodeorder}]
"""


async def _preempting(stage: Stage, directory: Path) -> list[m.Evict]:
    """Fill two nodes with a job of low priority; return what a gang of high priority evicts."""
    conf = directory / "volcano-scheduler.conf"
    conf.write_text(PREEMPTING)
    for name, value in (("low", 1), ("high", 1000)):
        body = {"metadata": {"name": name, "uid": f"uid-{name}"}, "value": value}
        await stage.fact("priorityclasses", name, body)
    await stage.cluster(nodes=2, cpu="4")
    await stage.group("low", 1, phase="Running", priorityClassName="low")
    for index in range(8):
        await stage.pod("low", index, node=f"n{index % 2}")
    await stage.start(scheduler_conf=str(conf))
    await stage.group("high", 2, priorityClassName="high")
    for index in range(2):
        await stage.pod("high", index, cpu="2")
    commands = await stage.until_commands(2)
    assert all(isinstance(command, m.Evict) for command in commands)
    return [command for command in commands if isinstance(command, m.Evict)]


async def test_room_for_a_gang_is_made_by_one_message_per_pod_that_waits(
    stage: Stage, tmp_path: Path
):
    intents = await _preempting(stage, tmp_path)
    takers = {intent.preemptor.pod: intent.preemptor for intent in intents if intent.preemptor}
    assert takers.keys() == {"ns/high-0", "ns/high-1"}
    for intent in intents:
        assert intent.reason == "preempt"
        assert intent.preemptor is not None
        assert {victim.node for victim in intent.victims} == {intent.preemptor.node}
        assert len(intent.victims) == 2
        assert {victim.job for victim in intent.victims} == {"ns/low"}
    assert len({victim.uid for intent in intents for victim in intent.victims}) == 4


async def test_those_who_waited_are_bound_where_room_was_made_and_nobody_else_is_evicted(
    stage: Stage, tmp_path: Path
):
    intents = await _preempting(stage, tmp_path)
    nodes = {i.preemptor.pod: i.preemptor.node for i in intents if i.preemptor}
    for index in range(2):
        await stage.pod("high", index, cpu="2", nominated=nodes[f"ns/high-{index}"])
    assert len(await stage.commands()) == 2
    for intent in intents:
        await stage.evicted(intent)
    commands = await stage.until_commands(3)
    (bind,) = [command for command in commands if isinstance(command, m.BindGang)]
    assert nodes_of(bind) == nodes
    assert len(commands) == 3
