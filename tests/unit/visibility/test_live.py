"""What changes reaches each reader: bounded, once per second, and of his namespace only."""

import asyncio
from contextlib import aclosing

from pumice.events.envelope import encode
from pumice.events.types import (
    CATALOGUE,
    BudgetReached,
    ConfigurationRefused,
    GangAdmitted,
    GangPlaced,
    GangUnschedulable,
    JobPhaseChanged,
    LeaderChanged,
    PodBound,
    PodEvicted,
    QueueStateChanged,
)
from services.visibility.adapters.feeds import EventFeed
from services.visibility.adapters.live import KEEPALIVE_S, KEPT, LISTS, Live
from services.visibility.queries.cluster_mirror import ClusterMirror
from services.visibility.queries.live import entry_of
from shared.api.time import parse
from shared.api.visibility import Change, ObjectRef, TimelineEntry
from shared.bus.pace import Pace
from shared.bus.values import FromTime, Message, Reset
from shared.contracts.streams import streams
from tests.support.clock import VirtualClock

AT = "2026-01-01T00:00:00Z"
AT_S = parse(AT)


class Stage:
    """Readers over a state whose version the test sets."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.version = 1
        self.mirror = ClusterMirror()
        self.asked = self.heeded = self.told = 0
        self.live = Live(self, clock=self.clock)

    def follow_closely(self):
        """Read what comes as it comes for a while."""
        self.heeded += 1

    def happened(self, namespace, name="a"):
        """Tell an event whose entry is `entry(namespace, name)`."""
        self.told += 1
        self.live.add_events([event(bound(namespace, name), str(self.told))])

    async def query(self, work):
        """Ask the mirror, as the mirror's owner does in its thread."""
        self.asked += 1
        return work(self.mirror)

    async def read(self, seconds, act=lambda: None, *, namespace=""):
        """Return what a reader is told in a time, at whose beginning `act` happens."""
        found = []

        async def follow():
            async with aclosing(self.live.changes(namespace)) as changes:
                async for change in changes:
                    found.append(change)  # noqa: PERF401 - kept one by one: a cancellation ends it

        async with asyncio.TaskGroup() as tasks:
            reader = tasks.create_task(follow(), name="reader")
            await self.clock.advance(0)
            act()
            await self.clock.advance(seconds)
            reader.cancel()
        return found


def entry(namespace, name="a"):
    about = ObjectRef(kind="Pod", namespace=namespace, name=name)
    return TimelineEntry(at=AT, what="Bound", about=about, message="to n1")


def bound(namespace, name="a"):
    return PodBound(pod=f"{namespace}/{name}", uid="u", node="n1")


def event(data, name):
    return encode(data, id=name, time=AT_S, source="/pumice/local/binder/x")


async def test_a_new_state_names_the_lists_and_again_when_it_has_settled():
    stage = Stage()

    def change():
        stage.version += 5

    assert await stage.read(1.0, change) == [Change(resources=LISTS)]
    assert await Stage().read(1.0) == []
    stage = Stage()
    assert await stage.read(9.0, change) == [Change(resources=LISTS)] * 2


async def test_nothing_new_is_said_a_few_times_a_minute():
    found = await Stage().read(4 * KEEPALIVE_S)
    assert found == [Change()] * len(found)
    assert 3 <= len(found) <= 4


async def test_a_reader_of_one_namespace_learns_of_no_other():
    stage = Stage()
    for namespace in ("a", "b", ""):
        stage.happened(namespace)

    found = await stage.read(2.0, lambda: stage.happened("b"), namespace="a")

    assert found == [Change(entry=entry("a"))]


async def test_a_new_reader_is_told_the_latest_and_a_slow_one_loses_the_oldest():
    stage = Stage()
    for at in range(KEPT + 50):
        stage.happened("a", f"job-{at}")

    found = await stage.read(1.0)

    assert len(found) == KEPT
    assert found[-1].entry == entry("a", f"job-{KEPT + 49}")


async def test_a_reader_that_has_gone_costs_nothing():
    stage = Stage()
    await stage.read(1.0)
    assert stage.live._readers == set()


async def test_events_are_decoded_when_a_reader_comes_and_at_once_while_one_is_there():
    stage = Stage()
    stage.happened("a", "before")
    assert list(stage.live._recent) == []

    found = await stage.read(1.0, lambda: stage.happened("a", "now"))

    assert [change.entry for change in found] == [entry("a", "before"), entry("a", "now")]


async def test_a_reader_has_what_comes_read_as_it_comes():
    stage = Stage()
    await stage.clock.advance(10.0)
    assert stage.heeded == 0
    await stage.read(3.0)
    assert stage.heeded >= 3


async def test_lists_are_made_once_for_all_who_ask_at_a_time():
    stage = Stage()
    assert await stage.live.running_jobs() == []
    stage.mirror.version += 1
    made = []
    for seconds in (0.0, 0.5, 1.0, 5.0):
        await stage.clock.advance(seconds)
        await stage.live.node_uses()
        made.append(stage.live._lists.version)
    assert made == [0, 0, 1, 1]


def test_an_event_is_told_in_a_sentence():
    placed = GangPlaced(gang="ns/train-1", job="ns/train", pods=8, nodes=tuple("abcdefg"))
    found = entry_of(placed, AT)
    assert found is not None
    assert found.about == ObjectRef(kind="Job", namespace="ns", name="train")
    assert (found.what, found.message) == ("Placed", "8 pods on a, b, c, d, e and 2 more nodes")
    closed = entry_of(QueueStateChanged(queue="q", state="Closed", previous="Open"), AT)
    assert closed is not None
    assert (closed.about.name, closed.message) == ("q", "Open → Closed")
    gone = entry_of(PodEvicted(pod="ns/p", uid="u", node="n", by="preempt", preemptor="ns/x"), AT)
    assert gone is not None
    assert gone.message == "from n by preempt for ns/x"


def test_a_change_of_a_leader_is_no_news_to_users():
    told = {
        JobPhaseChanged: {"job": "ns/a", "uid": "u", "phase": "Running"},
        GangAdmitted: {"gang": "ns/a"},
        GangPlaced: {"gang": "ns/a"},
        GangUnschedulable: {"gang": "ns/a"},
        PodBound: {"pod": "ns/a", "uid": "u"},
        PodEvicted: {"pod": "ns/a", "uid": "u"},
        QueueStateChanged: {"queue": "a", "state": "Open"},
    }
    assert {*CATALOGUE} - {*told} == {BudgetReached, LeaderChanged, ConfigurationRefused}
    for kind, fields in told.items():
        found = entry_of(kind(**fields), AT)
        assert found is not None
        assert found.about.name == "a"
    assert entry_of(LeaderChanged(service="scheduler", instance="x"), AT) is None
    assert entry_of(ConfigurationRefused(service="scheduler", reason="no YAML"), AT) is None
    assert entry_of(BudgetReached(queue="a", budget="b", user="ann"), AT) is None


class OneBatch:
    """A bus on which these payloads lie; it remembers from when it was read."""

    def __init__(self, *payloads: bytes) -> None:
        self.payloads = payloads
        self.asked = ()

    def stored(self, stream, subjects, *, start):
        self.asked = (stream, list(subjects), start)
        return self

    async def new(self):
        yield [
            Message(subject="s", sequence=at, payload=payload, time=0.0)
            for at, payload in enumerate(self.payloads)
        ]
        yield Reset("the stream is another one")


async def test_events_of_the_bus_reach_the_feed_and_one_that_is_unreadable_or_known_is_left_out():
    stage = Stage()
    told = event(bound("ns", "p"), "1")
    bus = OneBatch(b"no event", told, told)
    events = streams("local").events

    pace = Pace(stage.clock)
    feed = EventFeed(bus, events, stage.live, pace=pace, clock=stage.clock)
    reading = asyncio.create_task(feed.run())
    await asyncio.sleep(0)
    reading.cancel()

    stream, _, start = tuple(bus.asked)
    assert (stream, start) == (events.name, FromTime(stage.clock.now() - 900.0))
    assert await stage.read(1.0) == [Change(entry=entry("ns", "p"))]
