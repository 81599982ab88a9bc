"""When a reader of STATE may believe that it knows the whole world."""

import asyncio

import pytest
import structlog

from shared.bus.state import STALE_S, Stale, StateFollower, Synced
from shared.bus.values import Reset
from shared.contracts import codec
from shared.contracts.messages import Fact, Marker
from shared.runtime.clock import SystemClock
from tests.contract.bus.readers import Reader
from tests.support.wait import until

KINDS = ("nodes", "pods")


class Cache:
    """Writes STATE as the cache does."""

    def __init__(self, bus, declared, subjects):
        self.publisher = bus.publisher(declared.state.name)
        self.subjects = subjects

    async def fact(self, kind, key, rv="1"):
        fact = Fact(kind=kind, key=key, uid=f"u-{key}", rv=rv)
        await self.publisher.publish(self.subjects.state(kind, key), codec.encode(fact))

    async def marker(self, *complete):
        marker = Marker(complete=complete, bookmarks={}, time=0.0, instance="cache-1")
        await self.publisher.publish(self.subjects.marker, codec.encode(marker))


class HeldClock(SystemClock):
    """Goes on when the test says so: how long the machine takes for a step makes no silence."""

    at = 0.0

    def monotonic(self):
        return self.at


@pytest.fixture
def cache(bus, declared, subjects):
    return Cache(bus, declared, subjects)


@pytest.fixture
def follower(bus, declared, subjects):
    def make(clock=None):
        return StateFollower(
            bus,
            subjects=subjects,
            kinds=KINDS,
            clock=clock or SystemClock(),
            log=structlog.get_logger(),
        )

    return make


def keys(reader):
    return [fact.key for item in reader.of(list) for fact in item]


async def test_a_marker_from_before_proves_nothing_the_next_one_does(cache, follower):
    await cache.fact("pods", "ns/a")
    await cache.marker(*KINDS)
    following = follower()
    async with Reader(following.items()) as reader:
        await until(lambda: keys(reader) == ["ns/a"], describe="the fact")
        await asyncio.sleep(0.3)
        assert reader.of(Synced) == []
        assert following.why_not_synced() == "no marker of the cache yet"
        await cache.marker(*KINDS)
        (synced,) = await reader.has(1, Synced)
        assert synced.marker.complete == KINDS
        assert following.why_not_synced() == ""


async def test_an_object_updated_behind_a_marker_is_there_when_synced(cache, follower):
    for i in range(50):
        await cache.fact("pods", f"ns/p{i}")
    await cache.marker(*KINDS)
    await cache.fact("pods", "ns/p0", rv="2")
    async with Reader(follower().items()) as reader:
        await until(lambda: len(keys(reader)) == 50, describe="all facts")
        await cache.marker(*KINDS)
        await reader.has(1, Synced)
        assert len(set(keys(reader))) == 50
        assert reader.shape.index("Synced") == len(reader.shape) - 1


async def test_a_kind_that_is_not_listed_yet_keeps_the_reader_waiting(cache, follower):
    following = follower()
    async with Reader(following.items()) as reader:
        await until(lambda: "no marker" in following.why_not_synced(), describe="the replay")
        await cache.marker("pods")
        await until(
            lambda: following.why_not_synced() == "the cache has not listed nodes",
            describe="the reason",
        )
        assert reader.of(Synced) == []
        await cache.marker(*KINDS)
        await reader.has(1, Synced)


async def test_facts_and_markers_keep_their_order(cache, follower):
    following = follower()
    async with Reader(following.items()) as reader:
        await until(lambda: "no marker" in following.why_not_synced(), describe="the replay")
        await cache.marker(*KINDS)
        await reader.has(1, Synced)
        await cache.fact("pods", "ns/a")
        await cache.marker(*KINDS)
        await cache.fact("pods", "ns/b")
        await until(lambda: keys(reader) == ["ns/a", "ns/b"], describe="both facts")
        assert reader.shape[-4:] == ["Synced", "list", "Synced", "list"]


async def test_silence_of_the_cache_makes_the_world_stale_once(cache, follower):
    clock = HeldClock()
    following = follower(clock)
    async with Reader(following.items()) as reader:
        await until(lambda: "no marker" in following.why_not_synced(), describe="the replay")
        await cache.marker(*KINDS)
        await reader.has(1, Synced)
        clock.at = STALE_S + 1
        (stale,) = await reader.has(1, Stale)
        assert stale.reason == "no marker of the cache for 11 s"
        assert following.why_not_synced() == stale.reason
        clock.at = 5 * STALE_S
        await cache.fact("pods", "ns/a")
        await until(lambda: keys(reader) == ["ns/a"], describe="a fact in the silence")
        await cache.marker(*KINDS)
        await reader.has(2, Synced)
        assert len(reader.of(Stale)) == 1


async def test_after_a_restart_that_loses_the_stream_the_reader_begins_again(
    cache, follower, server, bus, declared
):
    async with Reader(follower().items()) as reader:
        await cache.fact("pods", "ns/old")
        await cache.marker(*KINDS)
        await until(lambda: keys(reader) == ["ns/old"], describe="the fact")
        await server.restart(kill=True)
        await reader.has(1, Reset)
        await until(lambda: bus.info(declared.state.name), describe="the stream")
        await cache.fact("pods", "ns/new")
        await until(lambda: "ns/new" in keys(reader), describe="the new fact")
        count = len(reader.of(Synced))
        await cache.marker(*KINDS)
        await reader.has(count + 1, Synced)


async def test_an_unreadable_fact_is_left_out_and_counted(cache, follower, bus, declared, subjects):
    following = follower()
    async with Reader(following.items()) as reader:
        await cache.publisher.publish(subjects.state("pods", "ns/bad"), b"not json")
        await cache.fact("pods", "ns/good")
        await until(lambda: keys(reader) == ["ns/good"], describe="the good fact")
        await cache.marker(*KINDS)
        await reader.has(1, Synced)
        assert keys(reader) == ["ns/good"]
        assert following.unreadable == 1


async def test_a_fact_of_an_unknown_version_delays_the_reader_until_it_is_readable(
    cache, follower, subjects
):
    following = follower()
    async with Reader(following.items()) as reader:
        newer = codec.encode(Fact(v=9, kind="pods", key="ns/a", uid="u", rv="1"))
        await cache.publisher.publish(subjects.state("pods", "ns/a"), newer)
        await cache.marker(*KINDS)
        await until(lambda: following.delayed == 1, describe="the delayed fact")
        await cache.marker(*KINDS)
        await asyncio.sleep(0.2)
        assert reader.of(Synced) == []
        assert "message version 9" in following.why_not_synced()
        await cache.fact("pods", "ns/a", rv="2")
        await cache.marker(*KINDS)
        await reader.has(1, Synced)
        assert following.delayed == 0
