"""The server away, frozen, killed or emptied: what the adapter makes of it."""

import asyncio
import resource
from contextlib import contextmanager

import pytest
import structlog

from pumice.local.services import Supervised, Supervisor
from shared.bus.errors import NoReply
from shared.bus.puller import Delivery
from shared.bus.storage_gate import StorageGate
from shared.bus.values import (
    CaughtUp,
    FromSequence,
    FromTime,
    LastPerSubject,
    OnlyNew,
    Reset,
    Started,
)
from shared.contracts.streams import command_consumer
from shared.election.members import Members
from shared.runtime.health import Readiness
from shared.runtime.metrics import Metrics
from shared.runtime.tasks import TaskGroup
from tests.contract.bus.conftest import only_nats
from tests.contract.bus.readers import Reader
from tests.contract.bus.test_following import fill
from tests.support.env import context_of_a_test
from tests.support.wait import stopwatch, until, within


async def test_a_frozen_server_gives_no_answer_in_time(bus, declared, subjects, server):
    publisher = bus.publisher(declared.state.name)
    await server.freeze()
    try:
        async with within(10):
            with pytest.raises(NoReply, match=r"state\.pods"):
                await publisher.publish(subjects.state("pods", "ns/a"), b"1")
    finally:
        server.thaw()


@only_nats
async def test_a_full_disk_is_named_where_a_message_is_not_stored_and_a_restart_ends_it(
    bus, declared, subjects, server
):
    """A limit on the size of files stands for the disk: the server meets it in the same write."""
    publisher = bus.publisher(declared.outcome.name)
    await publisher.publish(subjects.outcome(0), b"before")
    limit, endless = resource.RLIMIT_FSIZE, resource.RLIM_INFINITY
    resource.prlimit(server.nats.process.pid, limit, (1, endless))
    with pytest.raises(NoReply, match="its disk may be full"):
        await publisher.publish(subjects.outcome(0), b"while it is full")
    resource.prlimit(server.nats.process.pid, limit, (endless, endless))
    with pytest.raises(NoReply, match=r"outcome.*its disk may be full"):
        await publisher.publish(subjects.outcome(0), b"while there is room again")
    log = server.nats.directory / "nats-server.log"
    await until(lambda: "file too large" in log.read_text(), describe="the reason in its log")
    await server.restart()
    await bus.connected()
    await publisher.publish(subjects.outcome(0), b"after")
    assert (await bus.last(declared.outcome.name, subjects.outcome(0))).payload == b"after"


@contextmanager
def full_disk(server):
    """Have the server meet the end of its disk in its next write; there is room again after."""
    limit, endless = resource.RLIMIT_FSIZE, resource.RLIM_INFINITY
    pid = server.nats.process.pid
    resource.prlimit(pid, limit, (1, endless))
    try:
        yield
    finally:
        if server.nats.process.pid == pid:
            resource.prlimit(pid, limit, (endless, endless))


@only_nats
async def test_a_service_is_not_ready_and_says_why_while_the_disk_takes_nothing(
    bus, declared, subjects, server
):
    log, metrics, readiness = structlog.get_logger(), Metrics(), Readiness()
    gate = readiness.gate("storage")
    members = Members(
        bus,
        context_of_a_test(),
        subjects=subjects,
        storage=StorageGate(gate=gate, gauge=metrics.gauge("stores", "whether"), log=log),
    )
    async with TaskGroup() as group:
        part = group.create_task(members.run(), name="members")
        await members.known()
        assert gate.ok
        with full_disk(server):
            await until(lambda: not gate.ok, deadline_s=20)
        assert "its disk may be full" in gate.reason
        assert b"stores 0.0" in metrics.render()
        await server.restart()
        await until(lambda: gate.ok, deadline_s=20)
        assert b"stores 1.0" in metrics.render()
        part.cancel()


@only_nats
async def test_a_local_server_whose_disk_was_full_is_started_again_by_itself(
    bus, declared, subjects, server
):
    publisher, said = bus.publisher(declared.outcome.name), []
    await publisher.publish(subjects.outcome(0), b"before")
    nats = server.nats
    first = nats.process.pid
    supervised = Supervised(
        process=nats.process, start=nats.start, needs_restart=nats.needs_restart
    )
    async with TaskGroup() as group:
        supervisor = Supervisor([supervised], report=said.append, check_every_s=0.5)
        keeping = group.create_task(supervisor.run(), name="supervisor")
        with full_disk(server), pytest.raises(NoReply):
            await publisher.publish(subjects.outcome(0), b"while it is full")
        await until(lambda: nats.process.pid not in (0, first), deadline_s=20, describe=str(said))
        await until(lambda: any("is back" in line for line in said), deadline_s=20)
        keeping.cancel()
    await bus.connected()
    await publisher.publish(subjects.outcome(0), b"after")
    assert (await bus.last(declared.outcome.name, subjects.outcome(0))).payload == b"after"
    assert any("as after a full disk" in line and "OUTCOME" in line for line in said), said


@only_nats
async def test_a_local_server_is_left_alone_until_its_disk_has_room(
    bus, declared, subjects, server, monkeypatch
):
    nats, said = server.nats, []
    publisher = bus.publisher(declared.outcome.name)
    assert not await nats.needs_restart(said.append)
    with full_disk(server), pytest.raises(NoReply):
        await publisher.publish(subjects.outcome(0), b"while it is full")
    with monkeypatch.context() as patched:
        patched.setattr("pumice.local.nats.ROOM", 2**62)
        assert [await nats.needs_restart(said.append) for _ in range(4)] == [False] * 4
    (line,) = said
    assert "cannot write to its disk" in line
    assert await nats.needs_restart(said.append)


async def test_what_is_in_flight_over_a_kill_is_stored_exactly_once(
    bus, declared, subjects, server
):
    publisher = bus.publisher(declared.command.name)
    await publisher.publish(subjects.command(0), b"first", msg_id="first")
    await server.freeze()
    pending = [
        await publisher.submit(subjects.command(0), b"%d" % i, msg_id=f"i{i}") for i in range(200)
    ]
    await server.restart(kill=True)
    async with within(20):
        sequences = [(await ack).sequence for ack in pending]
    assert len(set(sequences)) == 200
    assert (await bus.info(declared.command.name)).messages == 201


async def test_more_than_fits_in_flight_waits_instead_of_growing(bus, declared, subjects, server):
    publisher = bus.publisher(declared.command.name)
    await server.freeze()
    sent = 0

    async def flood() -> None:
        nonlocal sent
        for i in range(100):
            await publisher.submit(subjects.command(0), b"x" * 512 * 1024, msg_id=f"i{i}")
            sent += 1

    flooding = asyncio.create_task(flood())
    await until(lambda: sent == 16, describe="8 MiB in flight")
    await asyncio.sleep(0.3)
    assert sent == 16
    server.thaw()
    await asyncio.wait_for(flooding, 30)


async def test_a_follower_goes_on_within_two_seconds_of_a_restart(bus, declared, subjects, server):
    stream = declared.outcome.name
    await fill(bus, stream, lambda _: subjects.outcome(0), 10)
    async with Reader(bus.follow(stream, [subjects.outcome(0)], start=FromSequence(1))) as reader:
        await reader.has(1, CaughtUp)
        took = []
        for number, kill in enumerate((True, False, True)):
            await server.restart(kill=kill)
            publisher = bus.publisher(stream)
            payload = b"after %d" % number
            async with stopwatch() as watch:
                await publisher.publish(subjects.outcome(0), payload, msg_id=f"after{number}")
                await reader.until_seen(payload)
            took.append(watch.seconds)
        assert min(took) < 2.0
        assert reader.of(Reset) == []
        assert [m.sequence for m in reader.messages] == list(range(1, len(reader.messages) + 1))
        assert [s.resumed for s in reader.of(Started)] == [False, True, True, True]


@pytest.mark.parametrize(
    "start", [OnlyNew(), LastPerSubject(), FromSequence(1), FromTime(0.0)], ids=repr
)
async def test_a_reader_that_had_nothing_to_read_yet_misses_nothing_of_what_comes(
    bus, declared, subjects, open_bus, start
):
    stream, other = declared.outcome.name, await open_bus(name="other")
    async with Reader(bus.follow(stream, [subjects.outcome(0)], start=start)) as reader:
        await reader.has(1, CaughtUp)
        bus._connection.current.break_off()
        await fill(other, stream, lambda _: subjects.outcome(0), 3)
        await reader.until_seen(b"2")
        assert reader.payloads == [b"0", b"1", b"2"]


async def test_a_memory_stream_lost_by_a_restart_is_made_again_and_read_from_its_start(
    bus, declared, subjects, server
):
    stream = declared.state.name
    await fill(bus, stream, lambda i: subjects.state("pods", f"ns/p{i}"), 50)
    before = (await bus.info(stream)).created
    async with Reader(bus.follow(stream, [subjects.everything])) as reader:
        await reader.has(1, CaughtUp)
        await server.restart(kill=True)
        (reset,) = await reader.has(1, Reset)
        assert "made anew" in reset.reason
        await fill(bus, stream, lambda i: subjects.state("pods", f"ns/p{i}"), 1, first=777)
        await reader.until_seen(b"777")
        assert reader.of(Started)[-1].created != before
        after = reader.shape.index("Reset")
        assert reader.shape[after + 1] == "Started"
        assert not reader.of(Started)[-1].resumed


async def test_a_file_stream_keeps_its_epoch_over_a_kill(bus, declared, subjects, server):
    before = await bus.info(declared.command.name)
    await fill(bus, declared.command.name, lambda _: subjects.command(0), 20)
    await server.restart(kill=True)
    after = await until(lambda: bus.info(declared.command.name), describe="the stream")
    assert after.created == before.created
    assert after.messages == 20


async def test_a_stream_removed_and_made_anew_resets_its_readers(
    bus, declared, subjects, server, admin_api
):
    stream = declared.command.name
    await fill(bus, stream, lambda _: subjects.command(0), 5)
    async with Reader(bus.pull(command_consumer("local", 0)).deliveries()) as puller:
        await until(lambda: len(puller.items) >= 6, describe="five deliveries")
        await admin_api(f"STREAM.DELETE.{stream}")
        await bus.ensure_streams([declared.command])
        await bus.ensure_consumers([command_consumer("local", 0)])
        (reset,) = await puller.has(1, Reset)
        assert "made anew" in reset.reason
        await fill(bus, stream, lambda _: subjects.command(0), 1, first=50)
        await until(
            lambda: b"50" in [d.message.payload for d in puller.of(Delivery)],
            describe="a delivery from the new stream",
        )


async def test_a_consumer_that_vanishes_is_made_again_without_a_loss(
    bus, declared, subjects, admin_api
):
    stream = declared.outcome.name
    await fill(bus, stream, lambda _: subjects.outcome(0), 5)
    async with Reader(bus.follow(stream, [subjects.outcome(0)], start=FromSequence(1))) as reader:
        await reader.has(1, CaughtUp)
        (name,) = (await admin_api(f"CONSUMER.NAMES.{stream}"))["consumers"]
        await admin_api(f"CONSUMER.DELETE.{stream}.{name}")
        await fill(bus, stream, lambda _: subjects.outcome(0), 5, first=5)
        await reader.until_seen(b"9")
        assert [int(p) for p in reader.payloads] == list(range(10))
        assert reader.of(Reset) == []
