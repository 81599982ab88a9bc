"""The server away, frozen, killed or emptied: what the adapter makes of it."""

import asyncio
import time

import pytest

from shared.bus.errors import NoAnswer
from shared.bus.port import CaughtUp, FromSequence, Reset, Started
from shared.bus.puller import NatsDelivery
from shared.contracts.streams import command_consumer
from tests.contract.bus.readers import Reader
from tests.contract.bus.test_following import fill
from tests.support.wait import until


async def test_a_frozen_server_gives_no_answer_in_time(bus, declared, subjects, server):
    publisher = bus.publisher(declared.state.name)
    await server.freeze()
    try:
        async with asyncio.timeout(4):
            with pytest.raises(NoAnswer, match=r"state\.pods"):
                await publisher.publish(subjects.state("pods", "ns/a"), b"1")
    finally:
        server.thaw()


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
    async with asyncio.timeout(8):
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
    await asyncio.wait_for(flooding, 10)


async def test_a_follower_goes_on_within_two_seconds_of_a_restart(bus, declared, subjects, server):
    stream = declared.outcome.name
    await fill(bus, stream, lambda _: subjects.outcome(0), 10)
    async with Reader(bus.follow(stream, [subjects.outcome(0)], start=FromSequence(1))) as reader:
        await reader.has(1, CaughtUp)
        for number, kill in enumerate((True, False, True)):
            await server.restart(kill=kill)
            back = time.monotonic()
            publisher = bus.publisher(stream)
            payload = b"after %d" % number
            await publisher.publish(subjects.outcome(0), payload, msg_id=f"after{number}")
            await reader.until_seen(payload)
            assert time.monotonic() - back < 2
        assert reader.of(Reset) == []
        assert [m.sequence for m in reader.messages] == list(range(1, len(reader.messages) + 1))
        assert [s.resumed for s in reader.of(Started)] == [False, True, True, True]


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
        await reader.until_seen(b"777", deadline_s=2)
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
        (reset,) = await puller.has(1, Reset)
        assert "made anew" in reset.reason
        await fill(bus, stream, lambda _: subjects.command(0), 1, first=50)
        await until(
            lambda: b"50" in [d.message.payload for d in puller.of(NatsDelivery)],
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
        await reader.until_seen(b"9", deadline_s=5)
        assert [int(p) for p in reader.payloads] == list(range(10))
        assert reader.of(Reset) == []
