"""Histories of jobs are read in bites: what is not wanted is not held."""

import asyncio
import tracemalloc
from collections.abc import AsyncGenerator

import msgspec
import structlog

from pumice.events import GangAdmitted, PodBound
from pumice.events.envelope import encode
from services.visibility.adapters import feeds
from services.visibility.adapters.feeds import EventHistory, UsageFeed
from shared.bus.api import StreamReply
from shared.bus.stored import StoredMessages
from shared.bus.values import FromSequence, Message
from shared.contracts.streams import streams
from shared.contracts.subjects import Subjects
from tests.support.clock import VirtualClock

BATCH = 500
MIB = 1024 * 1024


def bound(number: int, job: str) -> bytes:
    event = PodBound(pod=f"ns/{job}-{number}", uid=f"u{number}", node="n", job=f"ns/{job}")
    return encode(event, id=str(number), time=float(number), source="test")


class Written:
    """A stream that a test writes down; it makes each batch when it is asked for."""

    def __init__(self, count: int, job: str) -> None:
        self._count = count
        self._job = job
        self.reading = self.most = 0

    def stored(self, stream, subjects, *, start) -> "Written":
        assert (stream, start) == ("EVENTS", FromSequence(1))
        return self

    async def new(self) -> AsyncGenerator[list[Message], None]:
        self.reading += 1
        self.most = max(self.most, self.reading)
        try:
            admitted = GangAdmitted(gang="ns/g", job=f"ns/{self._job}")
            first = encode(admitted, id="a", time=0.0, source="test")
            yield [message(1, first)]
            for begin in range(0, self._count, BATCH):
                numbers = range(begin, min(begin + BATCH, self._count))
                yield [message(n + 2, bound(n, self._job)) for n in numbers]
                await asyncio.sleep(0)
        finally:
            self.reading -= 1


def message(sequence: int, payload: bytes) -> Message:
    return Message(subject="s", sequence=sequence, payload=payload, time=0.0)


def history(stream: Written) -> EventHistory:
    return EventHistory(stream, stream="EVENTS", subjects=Subjects(cluster="c"))


async def test_eight_questions_about_a_large_namespace_hold_little():
    """Each event has the letter in it that the job is called by, and is about another job."""
    stream = Written(2_000, "other")
    read = history(stream)
    tracemalloc.start()
    try:
        found = await asyncio.gather(
            *(read.of("ns", "e", lambda event: event.data.about_job == "ns/e") for _ in range(8))
        )
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == [[]] * 8
    assert stream.most == 1
    assert most < 4 * MIB


async def test_of_a_large_job_the_latest_events_of_pods_and_all_others_are_kept(monkeypatch):
    monkeypatch.setattr(feeds, "EVENTS_MAX", 100)
    found = await history(Written(1_000, "job")).of("ns", "job", lambda _: True)
    assert isinstance(found[0].data, GangAdmitted)
    assert [event.id for event in found[1:]] == [str(number) for number in range(900, 1_000)]


class Kept:
    """A stream of gangs that are admitted, which may be made anew."""

    created, gangs = "monday", ("a", "b", "c")

    async def stream(self, _name: str) -> StreamReply:
        state = {"last_seq": len(self.gangs), "first_seq": 1}
        return msgspec.convert({"created": self.created, "state": state, "config": {}}, StreamReply)

    async def next_messages(self, _stream, _subject, where, *, batch, max_bytes):
        events = [GangAdmitted(gang=f"ns/{gang}", uid=gang) for gang in self.gangs]
        found = [
            message(number, encode(event, id=event.uid, time=VirtualClock().now(), source="test"))
            for number, event in enumerate(events, 1)
            if number >= where.get("seq", 1)
        ]
        return found, True

    def stored(self, stream, subjects, *, start) -> StoredMessages:
        clock, log = VirtualClock(), structlog.get_logger()
        return StoredMessages(stream, subjects, start=start, api=self, clock=clock, log=log)


async def test_the_use_of_the_cluster_is_read_anew_from_a_stream_that_was_made_anew():
    stream = Kept()
    feed = UsageFeed(stream, stream=streams("c").events, clock=VirtualClock())

    async def gangs() -> list[str]:
        return [gang for gang, _ in (await feed.read()).all()]

    assert await gangs() == ["ns/a", "ns/b", "ns/c"]
    stream.gangs += ("d",)
    assert await gangs() == ["ns/a", "ns/b", "ns/c", "ns/d"]
    stream.created, stream.gangs = "tuesday", ("e", "f")
    assert await gangs() == ["ns/e", "ns/f"]
