"""What a publisher promises: fencing, publishing, tombstones, dedupe."""

import gc
import tracemalloc

import msgspec
import pytest

from shared.bus.errors import StreamFull, StreamMissing, TooLarge, WrongSequence
from shared.bus.values import FencingToken
from shared.runtime.errors import Conflict, Rejected, Retryable
from tests.support.wait import until, within


async def test_a_publish_is_answered_with_its_sequence(bus, declared, subjects):
    publisher = bus.publisher(declared.state.name)
    first = await publisher.publish(subjects.state("pods", "ns/a"), b"1")
    second = await publisher.publish(subjects.state("pods", "ns/b"), b"2")
    assert (first.sequence, second.sequence) == (1, 2)


async def test_a_message_id_is_stored_once(bus, declared, subjects):
    publisher = bus.publisher(declared.command.name)
    first = await publisher.publish(subjects.command(0), b"bind", msg_id="7-1-0")
    again = await publisher.publish(subjects.command(0), b"bind", msg_id="7-1-0")
    assert not first.duplicate
    assert again.duplicate
    assert again.sequence == first.sequence
    assert (await bus.info(declared.command.name)).messages == 1


async def test_many_publishes_in_flight_keep_their_order(bus, declared, subjects):
    publisher = bus.publisher(declared.events.name)
    subject = subjects.event("job.phase", "ns/a")
    pending = [await publisher.submit(subject, b"%d" % i, msg_id=f"m{i}") for i in range(10_000)]
    sequences = [(await ack).sequence for ack in pending]
    assert sequences == list(range(1, 10_001))


async def test_an_older_leaders_publish_is_refused_on_every_subject(bus, declared, subjects):
    publisher = bus.publisher(declared.state.name)
    mark = subjects.leader("state")
    old = await publisher.publish(mark, b"old leader")
    token = FencingToken(stream=declared.state.name, subject=mark, sequence=old.sequence)
    await publisher.publish(subjects.state("pods", "ns/a"), b"1", fence=token, msg_id="a1")
    new = await publisher.publish(mark, b"new leader")
    with pytest.raises(WrongSequence):
        await publisher.publish(subjects.state("pods", "ns/a"), b"2", fence=token, msg_id="a2")
    fresh = msgspec.structs.replace(token, sequence=new.sequence)
    await publisher.publish(subjects.state("pods", "ns/b"), b"3", fence=fresh, msg_id="a3")
    last = await bus.last(declared.state.name, subjects.state("pods", "ns/a"))
    assert last.payload == b"1"


async def test_a_stored_message_sent_again_behind_a_new_leader_is_refused(bus, declared, subjects):
    publisher = bus.publisher(declared.command.name)
    mark = subjects.leader("command")
    old = await publisher.publish(mark, b"old leader")
    token = FencingToken(stream=declared.command.name, subject=mark, sequence=old.sequence)
    await publisher.publish(subjects.command(0), b"bind", fence=token, msg_id="1-1-0")
    again = await publisher.publish(subjects.command(0), b"bind", fence=token, msg_id="1-1-0")
    assert again.duplicate
    await publisher.publish(mark, b"new leader")
    with pytest.raises(WrongSequence):
        await publisher.publish(subjects.command(0), b"bind", fence=token, msg_id="1-1-0")


async def test_the_oldest_goes_when_a_stream_that_discards_it_is_full(bus, declared, subjects):
    small = msgspec.structs.replace(declared.events, max_bytes=4096)
    await bus.ensure_streams([small])
    publisher = bus.publisher(small.name)
    for i in range(8):
        await publisher.publish(subjects.event("t", "ns/a"), b"x" * 1000 + b"%d" % i)
    info = await bus.info(small.name)
    assert (info.messages, info.first_seq, info.last_seq) == (3, 6, 8)
    assert await bus.get(small.name, 5) is None


async def test_a_full_stream_still_takes_the_next_state_of_what_it_holds(bus, declared, subjects):
    small = msgspec.structs.replace(declared.desired, max_bytes=4096)
    await bus.ensure_streams([small])
    publisher = bus.publisher(small.name)
    for _ in range(2):
        for i in range(3):
            await publisher.publish(subjects.desired(0, "pods", f"ns/p{i}"), b"x" * 1000)
    assert (await bus.info(small.name)).messages == 3


async def test_what_a_predecessor_got_in_before_stays(bus, declared, subjects):
    publisher = bus.publisher(declared.command.name)
    mark = subjects.leader("command")
    old = await publisher.publish(mark, b"old leader")
    token = FencingToken(stream=declared.command.name, subject=mark, sequence=old.sequence)
    intent = await publisher.publish(subjects.command(1), b"bind", fence=token, msg_id="1-1-0")
    await publisher.publish(mark, b"new leader")
    assert (await bus.get(declared.command.name, intent.sequence)).payload == b"bind"


async def test_compare_and_set_lets_one_of_two_writers_through(bus, declared, subjects):
    publisher = bus.publisher(declared.lease.name)
    subject = subjects.lease("scheduler")
    first = await publisher.publish(subject, b"a", expect_last=0)
    with pytest.raises(WrongSequence) as refused:
        await publisher.publish(subject, b"b", expect_last=0)
    assert isinstance(refused.value, Conflict)
    await publisher.publish(subject, b"c", expect_last=first.sequence)


async def test_a_full_stream_says_so_and_keeps_what_it_has(bus, declared, subjects):
    small = msgspec.structs.replace(declared.desired, max_bytes=4096)
    await bus.ensure_streams([small])
    publisher = bus.publisher(small.name)
    for i in range(3):
        await publisher.publish(subjects.desired(0, "pods", f"ns/p{i}"), b"x" * 1000)
    with pytest.raises(StreamFull) as refused:
        await publisher.publish(subjects.desired(0, "pods", "ns/p3"), b"x" * 1000)
    assert isinstance(refused.value, Retryable)
    assert "maximum bytes" in str(refused.value)
    assert (await bus.info(small.name)).messages == 3


async def test_a_message_beyond_the_limit_is_not_sent(bus, declared, subjects):
    publisher = bus.publisher(declared.state.name)
    with pytest.raises(TooLarge, match="1048576 bytes"):
        await publisher.publish(subjects.state("pods", "ns/a"), b"x" * 1024 * 1024)
    assert issubclass(TooLarge, Rejected)
    assert (await publisher.publish(subjects.state("pods", "ns/a"), b"x")).sequence == 1


async def test_a_subject_without_a_stream_is_answered_at_once(bus):
    async with within(3):
        with pytest.raises(StreamMissing, match=r"nobody\.takes\.this"):
            await bus.publisher("NONE").publish("nobody.takes.this", b"x", msg_id="1")


async def test_a_tombstone_expires(bus, declared, subjects):
    publisher = bus.publisher(declared.state.name)
    subject = subjects.state("pods", "ns/gone")
    await publisher.publish(subject, b"deleted", ttl_s=1)
    assert (await bus.last(declared.state.name, subject)).payload == b"deleted"

    async def expired() -> bool:
        return await bus.last(declared.state.name, subject) is None

    await until(expired, describe="the tombstone to expire")


async def test_one_message_per_object_is_kept(bus, declared, subjects):
    publisher = bus.publisher(declared.state.name)
    for i in range(5):
        await publisher.publish(subjects.state("pods", "ns/a"), b"%d" % i)
    info = await bus.info(declared.state.name)
    assert (info.messages, info.last_seq) == (1, 5)
    found = await bus.snapshot(declared.state.name, [subjects.state_kind("pods")])
    assert [(m.payload, m.sequence) for m in found] == [(b"4", 5)]


async def test_a_leaders_mark_takes_the_place_of_those_before_it_and_still_fences(
    bus, declared, subjects
):
    publisher = bus.publisher(declared.command.name)
    mark, last = subjects.leader("command"), 0
    await publisher.publish(subjects.command(0), b"bind")
    for number in range(20):
        before = last
        ack = await publisher.publish(mark, b"%d" % number, expect_last=last, rollup=True)
        last = ack.sequence
    assert (await bus.info(declared.command.name)).messages == 2
    old, new = (
        FencingToken(stream=declared.command.name, subject=mark, sequence=number)
        for number in (before, last)
    )
    with pytest.raises(WrongSequence):
        await publisher.publish(subjects.command(0), b"late", fence=old)
    await publisher.publish(subjects.command(0), b"bind", fence=new)
    assert (await bus.info(declared.command.name)).messages == 3


async def test_what_is_kept_whole_cannot_be_rolled_up(bus, declared, subjects):
    publisher = bus.publisher(declared.outcome.name)
    await publisher.publish(subjects.outcome(0), b"1")
    with pytest.raises((Rejected, Retryable)):
        await publisher.publish(subjects.outcome(0), b"2", rollup=True)
    assert (await bus.info(declared.outcome.name)).messages == 1


async def test_what_says_how_long_it_counts_leaves_nothing_behind(bus, declared, subjects):
    gone = [
        (declared.desired.name, lambda n: subjects.desired(0, "podgroups", f"ns/{n}")),
        (declared.state.name, lambda n: subjects.state("pods", f"ns/{n}")),
        (declared.lease.name, lambda n: subjects.member("binder", f"b-{n}")),
    ]
    for stream, subject in gone:
        publisher = bus.publisher(stream)
        for first in range(0, 2000, 200):  # no more than a busy server answers in time
            some = range(first, first + 200)
            for ack in [await publisher.submit(subject(n), b"x", ttl_s=1) for n in some]:
                await ack

    async def empty() -> bool:
        return not any([(await bus.info(stream)).messages for stream, _ in gone])

    await until(empty, describe="all streams are empty")


async def test_a_snapshot_that_was_read_leaves_nothing_in_memory(bus, declared, subjects):
    publisher = bus.publisher(declared.state.name)
    for name in "abcdefgh":
        await publisher.publish(subjects.state("pods", f"ns/{name}"), b"x" * 1_000)

    async def read(times: int) -> int:
        for _ in range(times):
            assert len(await bus.snapshot(declared.state.name, [subjects.state_kind("pods")])) == 8
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = await read(50)
        assert await read(50) - before < 50 * 8 * 1_000 / 4
    finally:
        tracemalloc.stop()
