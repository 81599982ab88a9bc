"""One of three NATS servers is cut off from the other two, with clients of ours on it."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator
from functools import partial

import pytest
import pytest_asyncio

from shared.bus.nats import NatsBus
from shared.bus.values import CaughtUp, FromSequence, OnlyNew, Reset
from shared.election.leader_elector import LeadershipTerm
from shared.runtime.errors import Retryable
from tests.contract.bus.cut_servers import THREE, Three, bus_on, cut_off
from tests.contract.bus.leader_process import leadership
from tests.contract.bus.readers import Reader
from tests.support.wait import until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]
GOES_ON_S = 40.0
"""Copies choose a leader and processes leave a lost server within ten seconds; a busy machine takes
longer."""


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=THREE)
async def three(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Three]:
    """Three running servers, real ones and those of the simulation."""
    servers = THREE[request.param](tmp_path_factory.mktemp("three") / "nats")
    try:
        await servers.start()
        yield servers
    finally:
        await servers.stop()


async def test_a_reader_and_a_writer_on_the_server_go_on_at_another_and_miss_nothing(
    three: Three, declared, subjects
):
    stream = declared.outcome.name
    lonely = await three.leader_of(declared.lease.name)
    sent = [b"%d" % number for number in range(4)]
    async with bus_on(three, lonely) as bus, bus_on(three, (lonely + 1) % 3) as other:
        async with Reader(bus.follow(stream, [subjects.outcome(0)], start=OnlyNew())) as reader:
            await reader.has(1, CaughtUp)
            async with cut_off(three, lonely, silently=True):
                for payload in sent[:2]:
                    await stubborn(other, stream, subjects.outcome(0), payload)
                await stubborn(bus, stream, subjects.outcome(0), sent[2])
                await reader.until_seen(sent[2], deadline_s=GOES_ON_S)
                assert three.number_of(bus) != lonely
            await stubborn(bus, stream, subjects.outcome(0), sent[3])
            await reader.until_seen(sent[3])
        assert reader.of(Reset) == []
        assert reader.payloads == sent


async def stubborn(bus: NatsBus, stream: str, subject: str, payload: bytes) -> None:
    """Publish as services do: again under the same id until there is an answer."""
    await until(
        lambda: bus.publisher(stream).publish(subject, payload, msg_id=payload.decode()),
        deadline_s=GOES_ON_S,
        describe=str(payload),
    )


async def test_a_server_that_is_cut_off_stores_nothing_and_reads_what_is_old(
    three: Three, declared, subjects
):
    stream, subject = declared.outcome.name, subjects.outcome(1)
    lonely = await three.leader_of(stream)
    async with (
        bus_on(three, lonely, leaves=False) as bus,
        bus_on(three, (lonely + 1) % 3) as other,
    ):
        await stubborn(bus, stream, subject, b"before")
        async with cut_off(three, lonely, silently=True):
            with pytest.raises(Retryable):
                await bus.publisher(stream).publish(subject, b"alone", msg_id="alone")
            await stubborn(other, stream, subject, b"after")
            with contextlib.suppress(Retryable):
                assert (await bus.last(stream, subject)).payload == b"before"
            with contextlib.suppress(Retryable):
                (found,) = await bus.snapshot(stream, [subject])
                assert found.payload == b"before"
        await until(lambda: reads(bus, stream, subject, b"after"), deadline_s=GOES_ON_S)
        async with Reader(other.follow(stream, [subject], start=FromSequence(1))) as reader:
            # Not CaughtUp: the copy that it reads from may be some milliseconds behind (ADR 24).
            await reader.until_seen(b"after", deadline_s=GOES_ON_S)
        assert [p for p in reader.payloads if p != b"alone"] == [b"before", b"after"]
        assert reader.payloads.count(b"alone") <= 1


async def reads(bus: NatsBus, stream: str, subject: str, payload: bytes) -> bool:
    """Tell whether a copy that anyone may ask has a message as the last one."""
    (found,) = await bus.snapshot(stream, [subject])
    return found.payload == payload


class Candidate:
    """Leads when it can, and publishes fact after fact meanwhile."""

    def __init__(self, three: Three, bus: NatsBus, name: str, subject: str) -> None:
        self._server = partial(three.number_of, bus)
        self.bus = bus
        self.name = name
        self._subject = subject
        self.acknowledged: list[bytes] = []
        self.terms: list[tuple[float, int]] = []
        """When each term began, and on which server."""
        self.ended_at = 0.0
        self._task = asyncio.create_task(leadership(bus, name, self._changed).run(self._publish))

    def _changed(self, term: LeadershipTerm | None) -> None:
        if term is not None:
            self.terms.append((time.monotonic(), self._server()))
        else:
            self.ended_at = time.monotonic()

    async def _publish(self, term: LeadershipTerm) -> None:
        (token,) = term.tokens.values()
        publisher = self.bus.publisher(token.stream)
        for count in itertools.count():
            payload = f"{self.name}/{term.number}/{count}".encode()
            subject = f"{self._subject}-{self.name}-{term.number}-{count}"
            await publisher.publish(subject, payload, fence=token)
            self.acknowledged.append(payload)

    async def leads(self, terms: int, *, deadline_s: float = GOES_ON_S) -> None:
        """Wait until it leads for the so many-th time, and has published."""

        def does() -> bool:
            return len(self.terms) >= terms and self.ended_at < self.terms[-1][0]

        await until(does, deadline_s=deadline_s, describe=f"{self.name} to lead")
        known = len(self.acknowledged)
        await until(lambda: len(self.acknowledged) > known, deadline_s=deadline_s)

    async def gone(self, *, from_server: int) -> None:
        """Wait until its connection is to another server."""

        def is_gone() -> bool:
            return self._server() not in (-1, from_server)

        await until(is_gone, deadline_s=GOES_ON_S, describe=f"{self.name} to go")

    async def stop(self) -> None:
        """End in order, which gives the lease back."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task


@pytest.mark.parametrize("silently", [False, True], ids=["cut", "silent"])
async def test_a_leader_on_the_server_gives_up_in_time_and_goes_on_at_another(
    three: Three, declared, subjects, silently: bool
):
    stream = declared.state.name
    lonely = await three.leader_of(declared.lease.name)
    subject = subjects.state("pods", f"ns/{silently}")
    async with (
        bus_on(three, lonely) as bus,
        bus_on(three, (lonely + 1) % 3) as other,
        Reader(other.follow(stream, [subjects.everything])) as reader,
    ):
        first = Candidate(three, bus, f"first-{silently}", subject)
        await first.leads(1)
        second = Candidate(three, other, f"second-{silently}", subject)
        async with cut_off(three, lonely, silently=silently):
            cut_at = time.monotonic()
            await until(lambda: first.ended_at > cut_at, describe="the end of its term")
            gave_up_at = first.ended_at
            await first.gone(from_server=lonely)
            await until(lambda: second.terms or first.terms[1:], deadline_s=GOES_ON_S)
            await second.stop()
            known = len(first.acknowledged)
            await until(lambda: len(first.acknowledged) > known, deadline_s=GOES_ON_S)
            await first.stop()
            later = [*second.terms, *first.terms[1:]]
            assert lonely not in {server for _, server in later}
            assert all(began > gave_up_at for began, _ in later), "two led at once"
        expected = {*second.acknowledged, *first.acknowledged}
        last = first.acknowledged[-1]
        # A copy of the stream that lags behind when the reader comes to it resets the reader.
        await until(lambda: last in reader.current, describe=f"message {last!r}")
    ours = [p for p in reader.current if p.startswith((b"first-", b"second-"))]
    terms = [payload.rpartition(b"/")[0] for payload in ours]
    assert len(set(ours)) == len(ours), "a fact came twice"
    assert expected <= set(ours), "an acknowledged fact was lost"
    assert [name for name, _ in itertools.groupby(terms)] == list(dict.fromkeys(terms)), (
        "a fact of an older term came behind one of a newer"
    )
