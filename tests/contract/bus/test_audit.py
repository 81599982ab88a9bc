"""A reader of STATE that holds something else reads it anew, and says so."""

import asyncio
from collections.abc import Callable

import pytest
import structlog

from services.cache.adapters.stream_audit import StreamAudit
from services.cache.fold.objects import Published
from services.cache.fold.publish_queue import PublishQueue
from shared.bus.audit import CONFIRM_S, Audit, AuditMetrics
from shared.bus.errors import WrongSequence
from shared.bus.state import StateFollower, Synced
from shared.bus.values import Reset
from shared.contracts import codec
from shared.contracts.digests import UidIndex
from shared.contracts.messages import Fact, Marker, Op
from shared.runtime.clock import SystemClock
from shared.runtime.metrics import Metrics
from shared.runtime.tasks import TaskGroup
from tests.contract.bus.readers import Reader
from tests.support.wait import until

KINDS = ("podgroups", "pods")
INTERVAL_S = 300.0


class HeldClock(SystemClock):
    """Goes on when the test says so."""

    at = 0.0

    def monotonic(self):
        return self.at


class Cache:
    """Writes STATE as the cache does, and can lose what it has written."""

    def __init__(self, bus, declared, subjects):
        self.publisher = bus.publisher(declared.state.name)
        self.subjects = subjects
        self.index = {kind: UidIndex() for kind in KINDS}

    async def put(self, key, uid, *, shown=True):
        self.index["pods"].put(key, uid)
        if shown:
            await self._publish(Fact(kind="pods", key=key, uid=uid, rv="1"))

    async def delete(self, key, uid):
        self.index["pods"].drop(key)
        await self._publish(Fact(kind="pods", key=key, uid=uid, rv="2", op=Op.DELETE))

    async def _publish(self, fact):
        await self.publisher.publish(self.subjects.state(fact.kind, fact.key), codec.encode(fact))

    async def marker(self, *, kinds=KINDS):
        marker = Marker(
            complete=KINDS,
            bookmarks={},
            time=0.0,
            instance="cache-1",
            digests={kind: self.index[kind].digest for kind in kinds},
        )
        await self.publisher.publish(self.subjects.marker, codec.encode(marker))


@pytest.fixture
def clock():
    return HeldClock()


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
def cache(bus, declared, subjects):
    return Cache(bus, declared, subjects)


@pytest.fixture
def follower(bus, declared, subjects, clock, metrics) -> Callable[[], StateFollower]:
    def make(interval_s=INTERVAL_S):
        log = structlog.get_logger()
        return StateFollower(
            bus,
            subjects=subjects,
            kinds=KINDS,
            clock=clock,
            log=log,
            audit=Audit(
                KINDS,
                interval_s=interval_s,
                clock=clock,
                metrics=AuditMetrics(metrics),
                log=log,
            ),
        )

    return make


def differences(metrics: Metrics, kind: str = "pods") -> float:
    name = "pumice_state_differences_total"
    return metrics.registry.get_sample_value(name, {"kind": kind}) or 0.0


async def markers(cache, reader, clock, *, seconds):
    """Have a marker come now, and after so many seconds."""
    for after_s in (0.0, seconds):
        clock.at += after_s
        seen = len(reader.of(Synced)) + 1
        await cache.marker()
        await reader.has(seen, Synced)


async def test_facts_as_the_cache_published_them_are_read_once(cache, follower, clock, metrics):
    await cache.put("ns/a", "u1")
    async with Reader(follower().items()) as reader:
        await until(lambda: reader.of(list), describe="the fact")
        await cache.put("ns/a", "u2")
        await cache.put("ns/b", "u3")
        await cache.delete("ns/b", "u3")
        await markers(cache, reader, clock, seconds=2 * CONFIRM_S)
        await markers(cache, reader, clock, seconds=2 * INTERVAL_S)
        assert reader.of(Reset) == []
    assert differences(metrics) == 0


async def test_a_reader_that_missed_a_fact_reads_the_stream_anew(cache, follower, clock, metrics):
    await cache.put("ns/a", "u1")
    async with Reader(follower().items()) as reader:
        await until(lambda: reader.of(list), describe="the fact")
        await cache.put("ns/b", "u2", shown=False)
        await markers(cache, reader, clock, seconds=CONFIRM_S / 2)
        assert reader.of(Reset) == []
        clock.at += CONFIRM_S
        await cache.marker()
        (reset,) = await reader.has(1, Reset)
        assert reset.reason == "what was read of pods is not what STATE holds"
        await cache.put("ns/b", "u2")
        await until(
            lambda: [f.key for item in reader.of(list) for f in item][-2:] == ["ns/a", "ns/b"],
            describe="all facts again",
        )
    assert differences(metrics) == 1


async def test_a_missed_fact_is_found_while_other_objects_come_and_go(
    cache, follower, clock, metrics
):
    await cache.put("ns/a", "u1")
    async with Reader(follower().items()) as reader:
        await until(lambda: reader.of(list), describe="the fact")
        await cache.put("ns/b", "u2", shown=False)
        for number in range(4):
            await cache.put(f"ns/busy-{number}", f"b{number}")
            await markers(cache, reader, clock, seconds=0.0)
            assert reader.of(Reset) == []
            await cache.delete(f"ns/busy-{number - 1}", f"b{number - 1}")
            clock.at += CONFIRM_S / 4
            seen = len(reader.of(Synced)) + 1
            await cache.marker(kinds=["podgroups"])  # pods are on their way
            await reader.has(seen, Synced)
        await cache.put("ns/last", "b9")
        await cache.marker()
        (reset,) = await reader.has(1, Reset)
        assert reset.reason == "what was read of pods is not what STATE holds"
    assert differences(metrics) == 1


async def test_what_no_later_marker_speaks_of_is_no_difference(cache, follower, clock, metrics):
    await cache.put("ns/a", "u0")
    async with Reader(follower().items()) as reader:
        await until(lambda: reader.of(list), describe="the fact")
        await cache.put("ns/late", "u1", shown=False)
        await markers(cache, reader, clock, seconds=0.0)
        for _ in range(3):
            clock.at += CONFIRM_S
            seen = len(reader.of(Synced)) + 1
            await cache.marker(kinds=["podgroups"])
            await reader.has(seen, Synced)
        await cache.put("ns/late", "u1")
        await markers(cache, reader, clock, seconds=CONFIRM_S)
        assert reader.of(Reset) == []
    assert differences(metrics) == 0


@pytest.mark.parametrize(
    "held",
    [{"ns/a": "u1", "ns/ghost": "u9"}, {}, {"ns/a": "u0"}],
    ids=["an object too many", "one that is missing", "another one of that name"],
)
async def test_a_service_that_holds_something_else_reads_the_stream_anew(
    cache, follower, clock, metrics, held
):
    await cache.put("ns/a", "u1")
    following = follower()
    async with Reader(following.items()) as reader:
        await until(lambda: reader.of(list), describe="the fact")
        following.compare(lambda: {"pods": held})
        clock.at += INTERVAL_S
        following.compare(lambda: {"pods": held})
        clock.at += CONFIRM_S
        await cache.marker()
        await reader.has(1, Synced)
        assert reader.of(Reset) == []
        following.compare(lambda: {"pods": held})
        await cache.marker()
        (reset,) = await reader.has(1, Reset)
        odd = "ns/ghost" if "ns/ghost" in held else "ns/a"
        assert reset.reason == f"1 objects differ from STATE: pods {odd}"
    assert differences(metrics) == 1


async def test_a_difference_that_goes_away_by_itself_is_none(cache, follower, clock, metrics):
    await cache.put("ns/a", "u1")
    following = follower()
    async with Reader(following.items()) as reader:
        await until(lambda: reader.of(list), describe="the fact")
        clock.at += INTERVAL_S
        for held in ({"ns/a": "u0"}, {"ns/a": "u1"}, {"ns/a": "u1"}):
            following.compare(lambda held=held: {"pods": held})
            clock.at += INTERVAL_S
        await markers(cache, reader, clock, seconds=CONFIRM_S)
        assert reader.of(Reset) == []
    assert differences(metrics) == 0


def test_a_busy_cluster_is_compared_no_more_often_than_a_quiet_one(clock, metrics):
    """Each look finds other facts that are on their way; a look may read the whole stream."""
    log = structlog.get_logger()
    audit = Audit(KINDS, interval_s=INTERVAL_S, clock=clock, metrics=AuditMetrics(metrics), log=log)
    looks, reason = 0, ""
    while not reason and clock.at < 10 * INTERVAL_S:
        clock.at += audit.left_s()
        lost = {"ns/lost": "u0"} if clock.at > 5 * INTERVAL_S else {}
        reason = audit.compare({"pods": {f"ns/{looks}": "u1", **lost}}, {"pods": {}})
        looks += 1
    assert "ns/lost" in reason
    assert looks <= 8


async def test_without_an_interval_nothing_is_compared(cache, follower, clock):
    await cache.put("ns/a", "u1")
    following = follower(interval_s=0.0)
    async with Reader(following.items()) as reader:
        await until(lambda: reader.of(list), describe="the fact")
        await cache.put("ns/b", "u2", shown=False)
        clock.at += INTERVAL_S
        assert not following.audit.is_due()
        await markers(cache, reader, clock, seconds=2 * INTERVAL_S)
        assert reader.of(Reset) == []


async def test_a_leader_whose_facts_are_not_in_the_stream_ends_its_term(
    bus, declared, subjects, cache, metrics
):
    log, clock = structlog.get_logger(), SystemClock()
    queue = PublishQueue(KINDS)
    queue.begin({("pods", "ns/a"): Published(uid="u1", rv="1")}.items())
    queue.confirmed(_of_a_pod("ns/b", "u2"))
    measured = AuditMetrics(metrics)

    def audit() -> Audit:
        return Audit(KINDS, interval_s=0.3, clock=clock, metrics=measured, log=log)

    def follow() -> StateFollower:
        return StateFollower(
            bus,
            subjects=subjects,
            kinds=KINDS,
            clock=clock,
            log=log,
            audit=audit(),
        )

    await cache.put("ns/a", "u1")
    async with TaskGroup() as tasks:
        marking = tasks.create_task(_mark(cache), name="markers")
        with pytest.raises(WrongSequence, match="pods ns/b"):
            async with asyncio.timeout(20):
                await StreamAudit(follow, audit(), clock=clock).run(queue)
        marking.cancel()
    assert differences(metrics) == 1


def _of_a_pod(key, uid) -> Fact:
    return Fact(kind="pods", key=key, uid=uid, rv="1")


async def _mark(cache) -> None:
    while True:
        await cache.marker()
        await asyncio.sleep(0.1)
