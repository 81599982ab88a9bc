"""What a stream holds is read without a consumer, each message once; what is published is heard."""

import asyncio
from contextlib import aclosing

import pytest

from shared.bus.values import FromSequence, FromTime, Message, Reset
from tests.contract.bus.test_following import fill
from tests.support.wait import until


async def look(stored) -> list[bytes]:
    """Return the payloads that are new."""
    return [message.payload for message in await messages_of(stored)]


async def messages_of(stored) -> list[Message]:
    async with aclosing(stored.new()) as items:
        return [message async for item in items for message in item]


async def test_each_look_gives_what_is_new_in_order_and_makes_no_consumer(bus, declared, subjects):
    stream = declared.events.name
    stored = bus.stored(stream, declared.events.subjects, start=FromSequence(1))
    assert await look(stored) == []
    await fill(bus, stream, lambda i: subjects.event("gang.placed", f"ns{i % 3}/g"), 1200)
    found = await messages_of(stored)
    assert [int(message.payload) for message in found] == list(range(1200))
    assert [message.sequence for message in found] == list(range(1, 1201))
    assert found[4].subject == subjects.event("gang.placed", "ns1/g")
    assert await look(stored) == []
    await fill(bus, stream, lambda _: subjects.event("gang.placed", "ns/g"), 1, first=1200)
    assert await look(stored) == [b"1200"]
    made = await bus._api.call(f"CONSUMER.NAMES.{stream}", None, dict, about=stream)
    assert not made["consumers"]


@pytest.mark.parametrize("share", [2, 40, 2000])
async def test_several_subjects_come_in_the_order_of_the_stream(bus, declared, subjects, share):
    """One of them is as frequent as the other, or rare, or comes first only."""
    stream = declared.events.name
    kinds = ("gang.placed", "gang.admitted", "pod.bound")

    def subject(i: int) -> str:
        return subjects.event(kinds[0] if i % share == 0 else kinds[1 + i % 2], f"ns{i % 5}/g")

    await fill(bus, stream, subject, 2500)
    wanted = [subjects.events_about(kind) for kind in kinds[:2]]
    numbers = [i for i in range(2500) if i % share == 0 or i % 2 == 0]
    stored = bus.stored(stream, wanted, start=FromSequence(1))
    assert [int(payload) for payload in await look(stored)] == numbers


async def test_a_look_that_is_left_early_is_gone_on_with_behind_its_last_batch(
    bus, declared, subjects
):
    stream = declared.events.name
    await fill(bus, stream, lambda _: subjects.event("gang.placed", "ns/g"), 1200)
    stored = bus.stored(stream, declared.events.subjects, start=FromSequence(1))
    async with aclosing(stored.new()) as items:
        first = await anext(items)
    given = len(first)
    assert 0 < given < 1200
    assert [int(payload) for payload in await look(stored)] == list(range(given, 1200))


async def test_reading_begins_at_a_time_or_a_sequence_and_is_of_the_wanted_subject(
    bus, declared, subjects
):
    stream = declared.events.name
    await fill(bus, stream, lambda i: subjects.event("gang.placed", f"ns{i % 2}/g"), 10)
    await asyncio.sleep(0.02)  # the server's clock must move on between the two halves
    await fill(bus, stream, lambda i: subjects.event("gang.placed", f"ns{i % 2}/g"), 10, first=10)
    half = FromTime((await bus.get(stream, 11)).time - 0.01)
    wanted = [subjects.events_of("ns1")]
    assert await look(bus.stored(stream, wanted, start=FromSequence(15))) == [b"15", b"17", b"19"]
    assert await look(bus.stored(stream, wanted, start=half)) == [
        b"%d" % number for number in range(11, 20, 2)
    ]


async def test_a_stream_that_was_made_anew_is_read_from_its_start(bus, declared, subjects):
    stream = declared.events.name
    await fill(bus, stream, lambda _: subjects.event("gang.placed", "ns/g"), 3)
    stored = bus.stored(stream, declared.events.subjects, start=FromSequence(1))
    assert await look(stored) == [b"0", b"1", b"2"]
    await bus._api.call(f"STREAM.DELETE.{stream}", None, dict, about=stream)
    await bus.ensure_streams([declared.events])
    await bus.publisher(stream).publish(subjects.event("gang.placed", "ns/g"), b"new")
    async with aclosing(stored.new()) as items:
        found = [item async for item in items]
    assert [type(item) for item in found] == [Reset, list]
    assert [message.payload for message in found[1]] == [b"new"]


async def test_a_look_waits_for_a_server_that_is_away(bus, declared, subjects, server):
    stream = declared.events.name
    await fill(bus, stream, lambda _: subjects.event("gang.placed", "ns/g"), 3)
    stored = bus.stored(stream, declared.events.subjects, start=FromSequence(1))
    await server.stop()
    reading = asyncio.create_task(look(stored))
    await asyncio.sleep(0)
    await server.start()
    assert await asyncio.wait_for(reading, 20) == [b"0", b"1", b"2"]


async def test_a_stored_event_is_heard_at_once_and_again_after_the_server_was_away(
    bus, declared, subjects, server, open_bus
):
    stream, heard = declared.events.name, []
    other = await open_bus("controller", name="listener")

    async def listen() -> None:
        async with aclosing(other.listen(subjects.admissions)) as payloads:
            async for payload in payloads:
                heard.append(payload)  # noqa: PERF401 - each as it comes

    async def is_heard(number: int) -> None:
        payload = b"%d" % number
        for attempt in range(100):
            about = subjects.event("gang.admitted", f"ns{attempt}/g")
            await bus.publisher(stream).publish(about, payload, msg_id=f"{number}-{attempt}")
            try:
                await until(lambda: payload in heard, deadline_s=0.2)
            except AssertionError:
                continue  # it does not listen yet
            return
        raise AssertionError(f"{number} was not heard: {heard}")

    listening = asyncio.create_task(listen())
    await is_heard(1)
    await bus.publisher(stream).publish(subjects.event("gang.placed", "ns/g"), b"another")
    await server.restart(kill=True)
    await is_heard(2)
    assert b"another" not in heard
    listening.cancel()
