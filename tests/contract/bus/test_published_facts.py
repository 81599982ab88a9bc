"""What a standby of the cache has read when its term begins."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import structlog

from services.cache.adapters import published
from services.cache.adapters.published import PublishedFacts
from services.cache.fold.objects import digest
from shared.bus.errors import WrongSequence
from shared.bus.seal import Seal
from shared.bus.values import FencingToken
from shared.contracts import codec
from shared.contracts.messages import Fact, LeaderRecord, Op
from shared.election.leader_elector import LeadershipTerm
from shared.runtime.clock import SystemClock
from shared.runtime.tasks import TaskGroup
from tests.support.wait import until

ME = "cache-me"


class Stream:
    """STATE as its leaders write it, and a standby that follows it."""

    def __init__(self, bus, declared, subjects):
        self.bus = bus
        self.name = declared.state.name
        self.subjects = subjects
        self.publisher = bus.publisher(self.name)
        self.published = PublishedFacts(
            bus,
            stream=self.name,
            subjects=subjects,
            kinds=("nodes", "pods"),
            instance=ME,
            seal=Seal(""),
            clock=SystemClock(),
            log=structlog.get_logger(),
        )

    async def fact(self, kind, key, rv="1", op=Op.PUT):
        fact = Fact(kind=kind, key=key, uid=f"u-{key}", rv=rv, op=op)
        await self.publisher.publish(self.subjects.state(kind, key), codec.encode(fact))

    async def mark(self, instance=ME, time=1.0):
        """Write a leader's message and return the term that begins with it."""
        mark = codec.encode(LeaderRecord(service="cache", instance=instance, time=time))
        subject = self.subjects.leader("state")
        ack = await self.publisher.publish(subject, mark)
        token = FencingToken(stream=self.name, subject=subject, sequence=ack.sequence)
        return LeadershipTerm(number=1, tokens={self.name: token}, time=time)

    async def followed(self, key):
        """Wait until the standby has read an object."""
        await until(lambda: any(slot[1] == key for slot in self.published._facts), describe=key)

    async def at(self, term):
        async with asyncio.timeout(10):
            return await self.published.at(term)


@pytest.fixture
def stream(bus, declared, subjects):
    return Stream(bus, declared, subjects)


@asynccontextmanager
async def following(stream) -> AsyncIterator[None]:
    async with TaskGroup() as group:
        running = group.create_task(stream.published.run(), name="published")
        yield
        running.cancel()


async def test_a_term_begins_with_all_that_was_said_before_its_mark(stream):
    await stream.fact("pods", "ns/goes")
    await stream.fact("pods", "ns/changes")
    async with following(stream):
        await stream.followed("ns/changes")
        await stream.fact("pods", "ns/goes", "2", Op.DELETE)
        await stream.fact("pods", "ns/changes", "3")
        await stream.fact("nodes", "n")
        term = await stream.mark()
        said = await stream.at(term)
    assert {slot: (what.uid, what.rv) for slot, what in said.items()} == {
        ("pods", "ns/changes"): ("u-ns/changes", "3"),
        ("nodes", "n"): ("u-n", "1"),
    }
    assert said["nodes", "n"].digest == digest(b"null", "1")


async def test_a_process_that_leads_as_soon_as_it_starts_reads_all_first(stream):
    for number in range(1500):
        await stream.publisher.submit(
            stream.subjects.state("pods", f"ns/p{number}"),
            codec.encode(Fact(kind="pods", key=f"ns/p{number}", uid="u", rv="1")),
        )
    term = await stream.mark()
    async with following(stream):
        assert len(await stream.at(term)) == 1500


async def test_the_next_term_knows_what_was_said_in_this_one(stream):
    async with following(stream):
        assert await stream.at(await stream.mark()) == {}
        await stream.fact("pods", "ns/a")
        stream.published.resume()
        await stream.fact("pods", "ns/b")
        assert len(await stream.at(await stream.mark(time=2.0))) == 2


async def test_another_leader_ends_the_term_before_it_begins(stream, monkeypatch):
    monkeypatch.setattr(published, "CHECK_S", 0.2)
    term = await stream.mark()
    await stream.mark("cache-other")
    async with following(stream):
        with pytest.raises(WrongSequence):
            await stream.at(term)


async def test_a_mark_at_the_same_place_of_a_stream_made_anew_is_another(
    stream, server, declared, monkeypatch
):
    """STATE is in memory: what was read before tells nothing of the stream that is there now."""
    monkeypatch.setattr(published, "CHECK_S", 0.2)
    async with following(stream):
        first = await stream.mark(time=1.0)
        await stream.fact("pods", "ns/a")
        await stream.followed("ns/a")
        await server.restart(kill=True)
        await stream.bus.ensure_streams([declared.state])
        second = await stream.mark(time=2.0)
        assert second.tokens == first.tokens
        assert await stream.at(second) == {}
        stream.published.resume()
        with pytest.raises(WrongSequence):
            await stream.at(first)
