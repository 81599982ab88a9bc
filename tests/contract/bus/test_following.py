"""What a follower promises: order, nothing lost, and `Reset` when that cannot be shown."""

import asyncio
from contextlib import aclosing

from msgspec.structs import replace

from shared.bus.values import (
    CaughtUp,
    FromSequence,
    FromTime,
    Idle,
    OnlyNew,
    Reset,
    Started,
)
from tests.contract.bus.readers import Reader


async def fill(bus, stream, subject, count, *, first=0):
    publisher = bus.publisher(stream)
    pending = [
        await publisher.submit(subject(i), b"%d" % i, msg_id=f"{stream}-{i}")
        for i in range(first, first + count)
    ]
    for ack in pending:
        await ack


async def test_the_last_of_each_subject_comes_first_then_what_is_new(bus, declared, subjects):
    stream = declared.state.name
    await fill(bus, stream, lambda i: subjects.state("pods", f"ns/p{i % 10}"), 30)
    async with Reader(bus.follow(stream, [subjects.state_kind("pods")])) as reader:
        await reader.has(1, CaughtUp)
        assert [int(p) for p in reader.payloads] == list(range(20, 30))
        await fill(bus, stream, lambda i: subjects.state("pods", "ns/p3"), 1, first=99)
        await reader.until_seen(b"99")
        assert reader.shape == ["Started", "list", "CaughtUp", "list"]
        started = reader.of(Started)[0]
        assert (started.last_seq, started.resumed) == (30, False)
        assert reader.messages[-1].subject == subjects.state("pods", "ns/p3")


async def test_only_the_wanted_subjects_come(bus, declared, subjects):
    stream = declared.state.name
    await fill(bus, stream, lambda i: subjects.state("pods" if i % 2 else "nodes", f"x/p{i}"), 10)
    wanted = [subjects.state_kind("nodes"), subjects.marker]
    async with Reader(bus.follow(stream, wanted)) as reader:
        await reader.has(1, CaughtUp)
        assert [int(p) for p in reader.payloads] == [0, 2, 4, 6, 8]


async def test_an_empty_stream_is_caught_up_at_once(bus, declared, subjects):
    async with Reader(bus.follow(declared.state.name, [subjects.everything])) as reader:
        await reader.has(1, CaughtUp)
        assert reader.shape == ["Started", "CaughtUp"]


async def test_an_object_updated_during_the_replay_is_there_when_caught_up(bus, declared, subjects):
    stream = declared.state.name
    await fill(bus, stream, lambda i: subjects.state("pods", f"ns/p{i}"), 3000)
    publisher = bus.publisher(stream)
    moved = subjects.state("pods", "ns/p2900")
    seen: list[str] = []
    async with aclosing(bus.follow(stream, [subjects.state_kind("pods")])) as items:
        async for item in items:
            if isinstance(item, list):
                if not seen:  # a marker, and behind it the object: it is skipped at its old place
                    await publisher.publish(subjects.marker, b"marker")
                    await publisher.publish(moved, b"moved")
                seen += [m.subject for m in item]
            if isinstance(item, CaughtUp):
                break
    assert seen.count(moved) == 1
    assert len(seen) == 3000


async def test_reading_starts_at_a_sequence_a_time_or_now(bus, declared, subjects):
    stream = declared.outcome.name
    await fill(bus, stream, lambda _: subjects.outcome(0), 5)
    await asyncio.sleep(0.02)  # the server's clock must move on between the two halves
    await fill(bus, stream, lambda _: subjects.outcome(0), 5, first=5)
    half = FromTime((await bus.get(stream, 6)).time - 0.01)
    starts = {FromSequence(8): [7, 8, 9], half: [5, 6, 7, 8, 9], OnlyNew(): []}
    for start, wanted in starts.items():
        async with Reader(bus.follow(stream, [subjects.outcome(0)], start=start)) as reader:
            await reader.has(1, CaughtUp)
            assert [int(p) for p in reader.payloads] == wanted


async def test_a_slow_reader_is_held_back_and_loses_nothing(bus, declared, subjects):
    async def slow(item):
        if isinstance(item, list):
            await asyncio.sleep(0.02)

    stream = declared.events.name
    async with Reader(bus.follow(stream, [subjects.everything]), each=slow) as reader:
        await reader.has(1, CaughtUp)
        await fill(bus, stream, lambda i: subjects.event("t", f"ns/{i}"), 20_000)
        await reader.until_seen(b"19999", deadline_s=20)
        assert [int(p) for p in reader.payloads] == list(range(20_000))
        assert reader.of(Reset) == []


async def test_two_readers_do_not_disturb_each_other(bus, declared, subjects):
    stream = declared.state.name
    await fill(bus, stream, lambda i: subjects.state("pods", f"ns/p{i}"), 100)
    async with Reader(bus.follow(stream, [subjects.everything])) as one:
        await one.has(1, CaughtUp)
        async with Reader(bus.follow(stream, [subjects.everything])) as two:
            await two.has(1, CaughtUp)
            assert two.payloads == one.payloads
        await fill(bus, stream, lambda i: subjects.state("pods", f"ns/p{i}"), 1, first=777)
        await one.until_seen(b"777")


async def test_a_reader_waits_for_a_consumer_that_others_have_used_up_and_then_reads(
    open_bus, declared, subjects
):
    """Subscribers make consumers of their own, up to the server's limit."""
    bus = await open_bus()
    stream, told = declared.events.name, []
    bus._options = replace(bus._options, on_refused=lambda *said: told.append(said))
    await bus.ensure_streams([replace(declared.events, max_consumers=2)])
    await bus.publisher(stream).publish(subjects.event("gang.placed", "a"), b"1")
    for name in ("first", "second"):
        config = {"ack_policy": "none", "deliver_policy": "all", "filter_subjects": [">"]}
        await bus._api.make_consumer(stream, name, config)
    async with aclosing(bus.follow(stream, [">"], start=FromSequence(1))) as items:
        assert isinstance(await anext(items), Idle)  # refused, and it goes on
        assert [(name, bool(reason)) for name, reason in told] == [(stream, True)]
        await bus._api.call(f"CONSUMER.DELETE.{stream}.first", None, dict, about=stream)
        async for item in items:
            if isinstance(item, list):
                assert [message.payload for message in item] == [b"1"]
                break
    assert [(name, bool(reason)) for name, reason in told] == [(stream, True), (stream, False)]
