"""What a work queue promises: each message to one reader, again until it is answered."""

import asyncio
from contextlib import aclosing

import msgspec

from shared.bus.puller import Delivery
from shared.bus.values import Started
from shared.contracts.streams import command_consumer, desired_consumer
from tests.contract.bus.readers import Reader
from tests.contract.bus.test_following import fill
from tests.support.wait import until


async def quick(bus, **changes):
    """Declare the consumer with times that a test can wait for."""
    spec = msgspec.structs.replace(command_consumer("local", 0), **{"ack_wait_s": 0.5, **changes})
    await bus.ensure_consumers([spec])
    return spec


async def acknowledge(item):
    if isinstance(item, Delivery):
        await item.ack()


async def empty(bus, stream, messages=0):
    async def is_empty() -> bool:
        return (await bus.info(stream)).messages == messages

    await until(is_empty, describe=f"{messages} messages in {stream}")


async def test_every_message_goes_to_one_of_the_readers_and_leaves(
    bus, open_bus, declared, subjects
):
    stream = declared.command.name
    other = await open_bus()
    async with (
        Reader(bus.pull(await quick(bus), batch=4).deliveries(), each=acknowledge) as one,
        Reader(other.pull(await quick(bus), batch=4).deliveries(), each=acknowledge) as two,
    ):
        await one.has(1, Started)
        await two.has(1, Started)
        await fill(bus, stream, lambda _: subjects.command(0), 400)
        await empty(bus, stream)
        got = [int(d.message.payload) for r in (one, two) for d in r.of(Delivery)]
        assert sorted(got) == list(range(400))
        assert one.of(Delivery)
        assert two.of(Delivery)


async def test_what_is_not_answered_comes_again_to_another(bus, open_bus, declared, subjects):
    stream = declared.command.name
    await fill(bus, stream, lambda _: subjects.command(0), 3)
    async with Reader(bus.pull(await quick(bus)).deliveries()) as silent:
        await silent.has(3, Delivery)
    other = await open_bus()
    async with Reader(other.pull(await quick(bus)).deliveries(), each=acknowledge) as reader:
        again = await reader.has(3, Delivery)
        assert [d.attempt for d in again] == [2, 2, 2]
        await empty(bus, stream)


async def test_what_an_ending_reader_has_not_looked_at_goes_to_another_at_once(
    bus, open_bus, declared, subjects
):
    stream = declared.command.name
    spec = await quick(bus, ack_wait_s=30.0)
    await fill(bus, stream, lambda _: subjects.command(0), 8)
    puller = bus.pull(spec)

    async def all_here() -> bool:  # the answer comes behind the messages on the same connection
        return (await puller.backlog()).in_progress == 8

    async with aclosing(puller.deliveries()) as items:
        assert isinstance(await anext(items), Started)
        taken = await anext(items)
        await until(all_here, describe="all eight have arrived")
        await taken.ack()
    other = await open_bus()
    async with Reader(other.pull(spec).deliveries(), each=acknowledge) as reader:
        await reader.has(7, Delivery)
        await empty(bus, stream)


async def test_work_in_progress_is_not_given_to_another(bus, declared, subjects):
    stream = declared.command.name
    async with Reader(bus.pull(await quick(bus)).deliveries()) as reader:
        await fill(bus, stream, lambda _: subjects.command(0), 1)
        (delivery,) = await reader.has(1, Delivery)
        for _ in range(6):
            await delivery.in_progress()
            await asyncio.sleep(0.2)
        assert len(reader.of(Delivery)) == 1
        await delivery.ack()
        await empty(bus, stream)


async def test_a_refused_delivery_comes_again_after_its_delay(bus, declared, subjects):
    stream = declared.command.name
    spec = await quick(bus, ack_wait_s=30.0)
    async with Reader(bus.pull(spec).deliveries()) as reader:
        await fill(bus, stream, lambda _: subjects.command(0), 2)
        now, later = await reader.has(2, Delivery)
        await later.nak(delay_s=0.5)
        await now.nak()
        third, fourth = (await reader.has(4, Delivery))[2:]
        assert [third.message.sequence, fourth.message.sequence] == [1, 2]
        assert fourth.attempt == 2


async def test_a_delivery_that_was_put_off_comes_no_more_when_its_message_has_expired(
    bus, declared, subjects
):
    publisher = bus.publisher(declared.desired.name)
    spec = desired_consumer("local", 0)
    await bus.ensure_consumers([spec])
    puller = bus.pull(spec)

    async def nothing_in_progress() -> bool:
        return (await puller.backlog()).in_progress == 0

    async with Reader(puller.deliveries()) as reader:
        await publisher.publish(subjects.desired(0, "podgroup", "ns/a"), b"expires", ttl_s=1)
        await publisher.publish(subjects.desired(0, "podgroup", "ns/b"), b"stays")
        expires, stays = await reader.has(2, Delivery)
        await expires.nak(delay_s=2.5)
        await stays.nak(delay_s=2.8)
        *_, again = await reader.has(3, Delivery)
        assert again.message.payload == b"stays"
        await again.ack()
        await until(nothing_in_progress, describe="the consumer to forget both")
        assert len(reader.of(Delivery)) == 3


async def test_a_message_delivered_too_often_is_marked_and_can_be_quarantined(
    bus, declared, subjects
):
    stream = declared.command.name
    spec = await quick(bus, max_deliver=2)
    await fill(bus, stream, lambda _: subjects.command(0), 1)
    async with Reader(bus.pull(spec).deliveries()) as reader:
        deliveries = await reader.has(3, Delivery)
        assert [d.exhausted for d in deliveries[:3]] == [False, False, True]
        await deliveries[2].term("cannot be read")
        await empty(bus, stream)


async def test_a_poison_message_does_not_hold_up_the_others(bus, declared, subjects):
    async def handle(item):
        if isinstance(item, Delivery) and item.message.payload != b"0":
            await item.ack()

    stream = declared.command.name
    async with Reader(bus.pull(await quick(bus)).deliveries(), each=handle):
        await fill(bus, stream, lambda _: subjects.command(0), 50)
        await empty(bus, stream, messages=1)


async def test_partitions_are_read_apart(bus, declared, subjects):
    stream = declared.command.name
    await fill(bus, stream, lambda i: subjects.command(i % 2), 10)
    other = command_consumer("local", 1)
    async with (
        Reader(bus.pull(await quick(bus)).deliveries()) as even,
        Reader(bus.pull(other).deliveries()) as odd,
    ):
        await even.has(5, Delivery)
        await odd.has(5, Delivery)
        assert [int(d.message.payload) for d in odd.of(Delivery)] == [1, 3, 5, 7, 9]


async def test_a_queue_goes_on_after_a_restart_of_the_server(bus, declared, subjects, server):
    stream = declared.command.name
    async with Reader(bus.pull(await quick(bus)).deliveries(), each=acknowledge) as reader:
        await reader.has(1, Started)
        for number in range(2):
            await server.restart(kill=True)
            publisher = bus.publisher(stream)
            await publisher.publish(subjects.command(0), b"%d" % number, msg_id=f"n{number}")
            await reader.has(number + 1, Delivery)
        assert [s.resumed for s in reader.of(Started)] == [False, True, True]


async def test_the_backlog_is_visible(bus, declared, subjects):
    stream = declared.command.name
    puller = bus.pull(await quick(bus, ack_wait_s=30.0), batch=2)
    async with aclosing(puller.deliveries()) as items:
        assert isinstance(await anext(items), Started)
        await fill(bus, stream, lambda _: subjects.command(0), 5)
        await anext(items)
        backlog = await puller.backlog()
        assert (backlog.waiting + backlog.in_progress, backlog.in_progress <= 2) == (5, True)


async def test_a_work_queue_can_be_looked_through_without_consuming_it(bus, declared, subjects):
    stream = declared.command.name
    await fill(bus, stream, lambda i: subjects.command(i % 2), 10)
    seen = [int(m.payload) async for m in bus.scan(stream, subjects.command(1))]
    assert seen == [1, 3, 5, 7, 9]
    assert [int(m.payload) async for m in bus.scan(stream, subjects.command(1), from_seq=6)] == [
        5,
        7,
        9,
    ]
    assert (await bus.info(stream)).messages == 10


async def test_no_more_than_declared_are_under_way(bus, declared, subjects):
    stream = declared.command.name
    spec = await quick(bus, max_ack_pending=3, ack_wait_s=30.0)
    await fill(bus, stream, lambda _: subjects.command(0), 10)
    async with Reader(bus.pull(spec).deliveries()) as reader:
        first = (await reader.has(3, Delivery))[0]
        await asyncio.sleep(0.3)
        assert len(reader.of(Delivery)) == 3
        await first.ack()
        assert [d.message.payload for d in await reader.has(4, Delivery)] == [
            b"0",
            b"1",
            b"2",
            b"3",
        ]


async def test_an_id_of_a_done_message_is_forgotten_by_a_restart(bus, declared, subjects, server):
    stream = declared.command.name
    publisher = bus.publisher(stream)
    await publisher.publish(subjects.command(0), b"bind", msg_id="1-1-0")
    async with Reader(bus.pull(await quick(bus)).deliveries(), each=acknowledge) as reader:
        await reader.has(1, Delivery)
        await empty(bus, stream)
        assert (await publisher.publish(subjects.command(0), b"bind", msg_id="1-1-0")).duplicate
        await server.restart(kill=True)
        again = await publisher.publish(subjects.command(0), b"bind", msg_id="1-1-0")
        assert not again.duplicate
        await reader.has(2, Delivery)


async def test_a_purge_below_a_sequence_keeps_what_came_later(bus, declared, subjects):
    stream = declared.outcome.name
    await fill(bus, stream, lambda _: subjects.outcome(0), 5)
    assert await bus.purge(stream, subjects.outcome(0), before_seq=4) == 3
    assert (await bus.info(stream)).first_seq == 4
