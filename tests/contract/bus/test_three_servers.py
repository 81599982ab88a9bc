"""Three NATS servers: one dies, freezes or loses its disk, and what the bus promises goes on."""

import asyncio
import resource
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from shared.bus.api import StreamReply
from shared.bus.errors import WrongSequence
from shared.bus.nats import NatsBus
from shared.bus.values import CaughtUp, FencingToken, FromSequence, Reset
from shared.contracts.streams import Streams, all_streams, copied
from shared.runtime.errors import Retryable
from tests.contract.bus.readers import Reader
from tests.contract.bus.test_following import fill
from tests.support.nats_servers import SERVERS, NatsCluster, admin_bus
from tests.support.wait import until, within

pytestmark = pytest.mark.timeout(200)
GOES_ON_S = 10.0
"""A stream chooses a new leader after up to nine seconds without its old one."""


@pytest_asyncio.fixture
async def three(tmp_path: Path) -> AsyncIterator[NatsCluster]:
    """A running cluster of this test alone, whose streams have three copies."""
    servers = NatsCluster(tmp_path / "nats")
    try:
        await servers.start()
        yield servers
    finally:
        await servers.stop()


@pytest_asyncio.fixture
async def bus(three: NatsCluster) -> AsyncIterator[NatsBus]:
    async with admin_bus(three) as opened:
        yield opened


async def copies(bus: NatsBus, stream: str) -> tuple[int, int]:
    """Return how many copies of a stream there are to be, and how many are up to date."""
    answer = await bus._api.call(f"STREAM.INFO.{stream}", None, dict, about=stream)
    followers = answer["cluster"].get("replicas") or []
    current = [f for f in followers if f["current"] and not f.get("offline")]
    return answer["config"]["num_replicas"], 1 + len(current)


async def test_the_declarer_has_each_stream_copied_to_all_servers(bus, declared):
    for spec in all_streams(declared):
        assert (await copies(bus, spec.name))[0] == SERVERS
        await until(lambda name=spec.name: whole(bus, name), describe=spec.name)


async def whole(bus: NatsBus, stream: str) -> bool:
    return (await copies(bus, stream))[1] == SERVERS


async def test_a_stream_of_one_copy_is_given_two_more_and_keeps_what_it_has(
    tmp_path: Path, declared: Streams, subjects
):
    servers, spec = NatsCluster(tmp_path / "nats", declares=False), declared.outcome
    await servers.start()
    try:
        async with admin_bus(servers) as bus:
            await bus.ensure_streams([spec])
            # Each server hears of a stream on another one a moment after it was made.
            await stubborn(bus.publisher(spec.name), subjects.outcome(0), b"kept", "kept")
            await bus.ensure_streams(copied([spec], SERVERS))
            await until(lambda: whole(bus, spec.name), describe="three copies")
            assert (await bus.last(spec.name, subjects.outcome(0))).payload == b"kept"
            await bus.ensure_streams([spec])
            assert (await copies(bus, spec.name))[0] == SERVERS, "copies are never taken away"
            for specs in (copied([declared.state], SERVERS), [declared.state]):
                await bus.ensure_streams(specs)
                config = (await bus._api.stream(declared.state.name)).config
                assert config["allow_atomic"], "a leader's publishes to copies come in batches"
    finally:
        await servers.stop()


@pytest.mark.parametrize("is_leader", [False, True], ids=["of anyone", "of a leader"])
async def test_what_is_in_flight_while_the_leader_of_a_stream_dies_is_stored_exactly_once(
    bus, declared, subjects, three, is_leader
):
    stream = declared.command.name
    publisher = bus.publisher(stream)
    ack = await publisher.publish(subjects.leader("command"), b"first", msg_id="first")
    token = FencingToken(stream=stream, subject=subjects.leader("command"), sequence=ack.sequence)
    leader = three.servers[await three.leader_of(stream)]
    pending = [
        await publisher.submit(
            subjects.command(0), b"%d" % i, msg_id=f"i{i}", fence=token if is_leader else None
        )
        for i in range(300)
    ]
    leader.process.kill()
    stored = set()
    for number, ack in enumerate(pending):
        try:
            stored.add((await ack).sequence)
        except Retryable:
            again = await stubborn(publisher, subjects.command(0), b"%d" % number, f"i{number}")
            stored.add(again.sequence)
    assert len(stored) == 300
    assert (await bus.info(stream)).messages == 301


async def stubborn(publisher, subject: str, payload: bytes, msg_id: str):
    """Publish as services do: again under the same id until there is an answer."""
    return await until(
        lambda: publisher.publish(subject, payload, msg_id=msg_id), deadline_s=60, describe=msg_id
    )


async def test_a_reader_goes_on_over_the_death_of_each_server_and_misses_nothing(
    bus, declared, subjects, three
):
    stream = declared.outcome.name
    publisher = bus.publisher(stream)
    await fill(bus, stream, lambda _: subjects.outcome(0), 10)
    async with Reader(bus.follow(stream, [subjects.outcome(0)], start=FromSequence(1))) as reader:
        await reader.has(1, CaughtUp)
        for number, server in enumerate(three.servers):
            server.process.kill()
            payload = b"after %d" % number
            async with within(GOES_ON_S + 5):
                await stubborn(publisher, subjects.outcome(0), payload, f"after{number}")
                await reader.until_seen(payload, deadline_s=20)
            await three.restart_one(number)
        assert reader.of(Reset) == []
        assert [m.sequence for m in reader.messages] == list(range(1, 14))


async def test_a_server_that_lost_its_disk_has_everything_again_before_the_next_one_goes(
    bus, declared, subjects, three
):
    facts, commands = declared.state.name, declared.command.name
    await fill(bus, facts, lambda i: subjects.state("pods", f"ns/p{i}"), 50)
    await fill(bus, commands, lambda _: subjects.command(0), 20)
    created = (await bus.info(facts)).created
    for number in range(SERVERS):
        await three.lose_disk(number)
        await three.restart_one(number)
    await until(lambda: knows(bus, facts, created, 50), deadline_s=30, describe="the facts")
    await until(lambda: whole(bus, commands), deadline_s=30, describe="three copies")
    assert (await bus.info(commands)).messages == 20


async def knows(bus: NatsBus, stream: str, created: str, messages: int) -> bool:
    info = await bus.info(stream)
    return (info.created, info.messages) == (created, messages)


async def test_a_restart_of_all_servers_at_once_loses_no_fact(bus, declared, subjects, three):
    stream = declared.state.name
    await fill(bus, stream, lambda i: subjects.state("pods", f"ns/p{i}"), 50)
    created = (await bus.info(stream)).created
    for server in three.servers:
        server.process.kill()
    async with asyncio.TaskGroup() as tasks:
        for server in three.servers:
            tasks.create_task(server.start())
    await until(lambda: knows(bus, stream, created, 50), deadline_s=30, describe="the facts")


async def test_without_a_majority_nothing_is_stored_and_a_second_server_ends_that(
    bus, declared, subjects, three
):
    publisher = bus.publisher(declared.outcome.name)
    await publisher.publish(subjects.outcome(0), b"before")
    for number in (0, 1):
        three.servers[number].process.kill()
    with pytest.raises(Retryable):
        await publisher.publish(subjects.outcome(0), b"alone", msg_id="alone")
    await three.servers[0].start()
    await stubborn(publisher, subjects.outcome(0), b"two", "two")
    stored = await bus.info(declared.outcome.name)
    assert stored.messages in (2, 3), "what had no answer may be stored, once"


async def test_a_leader_of_a_stream_that_was_frozen_stores_nothing_of_an_older_term(
    bus, declared, subjects, three
):
    """A publish that names an older mark is refused by whichever server leads then."""
    stream, mark = declared.command.name, subjects.leader("command")
    publisher = bus.publisher(stream)
    old = await publisher.publish(mark, b"old")
    leader = three.servers[await three.leader_of(stream)]

    async def stored() -> int | None:
        """Publish on the condition; where an answer was lost, see that the message is there."""
        try:
            return (await publisher.publish(mark, b"new", expect_last=old.sequence)).sequence
        except WrongSequence:
            last = await bus.last(stream, mark)
            return last.sequence if last.payload == b"new" else None

    leader.process.suspend()
    try:
        new = await until(stored, deadline_s=60)
    finally:
        leader.process.resume()
    token = FencingToken(stream=stream, subject=mark, sequence=old.sequence)
    with pytest.raises(WrongSequence):
        await publisher.publish(subjects.command(0), b"of the old term", fence=token)
    valid = FencingToken(stream=stream, subject=mark, sequence=new)
    await publisher.publish(subjects.command(0), b"of the new term", fence=valid)


async def test_a_server_whose_disk_is_full_is_not_healthy_and_the_others_go_on(
    bus, declared, subjects, three
):
    """A limit on the size of files stands for the disk."""
    publisher = bus.publisher(declared.outcome.name)
    await publisher.publish(subjects.outcome(0), b"before")
    server = three.servers[await three.leader_of(declared.outcome.name)]
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    await stubborn(publisher, subjects.outcome(0), b"after", "after")
    assert not await three.is_healthy(server)
    server.process.kill()
    await three.restart_one(three.servers.index(server))


async def test_none_of_a_leaders_publishes_is_refused_for_another_on_its_way(
    bus, declared, subjects, three
):
    """A copied stream takes no second publish on a condition while the first is being copied."""
    stream, mark = declared.state.name, subjects.leader("state")
    ack = await bus.publisher(stream).publish(mark, b"it")
    token = FencingToken(stream=stream, subject=mark, sequence=ack.sequence)

    async def publish(number: int) -> bytes:
        payload = b"%d" % number
        await bus.publisher(stream).publish(subjects.state("pods", "ns/a"), payload, fence=token)
        return payload

    for takes_batches in (True, False):
        found = await bus._api.stream(stream)
        await bus._api.call(
            f"STREAM.UPDATE.{stream}",
            {**found.config, "allow_atomic": takes_batches},
            StreamReply,
            about=stream,
        )
        assert await asyncio.gather(*map(publish, range(100))) == [b"%d" % n for n in range(100)]
        last = await bus.last(stream, subjects.state("pods", "ns/a"))
        assert last.payload == b"99"
        assert ("Nats-Batch-Id" in last.headers) == takes_batches


async def test_publishes_of_a_leader_wait_for_those_of_another_process(
    bus, declared, subjects, three
):
    """What two processes publish on one condition meets at the server, and all is stored."""
    stream, mark = declared.state.name, subjects.leader("state")
    ack = await bus.publisher(stream).publish(mark, b"it")
    token = FencingToken(stream=stream, subject=mark, sequence=ack.sequence)

    async def flood(publisher, name: str) -> None:
        subject = subjects.state("pods", f"ns/{name}")
        for _ in range(50):
            await publisher.publish(subject, b"x", fence=token)

    async with admin_bus(three) as other:
        publishers = [one.publisher(stream) for one in (bus, other)]
        async with asyncio.TaskGroup() as tasks:
            for number, publisher in enumerate(publishers):
                tasks.create_task(flood(publisher, f"p{number}"))
