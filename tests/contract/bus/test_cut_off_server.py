"""One of three NATS servers is cut off from the other two, with clients of ours on it."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
import structlog
from nats.aio.client import Client

from shared.bus.leader import Term
from shared.bus.nats import NatsBus, from_settings, running
from shared.bus.port import CaughtUp, OnlyNew, Reset
from shared.runtime.clock import SystemClock
from shared.runtime.common import CommonSettings
from shared.runtime.values import Secret
from tests.contract.bus.leader_process import leadership
from tests.contract.bus.readers import Reader
from tests.support.nats_cluster import NatsCluster
from tests.support.wait import until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]
GOES_ON_S = 40.0
"""Copies choose a leader and processes leave a lost server within ten seconds; a busy machine takes
longer."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def three(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[NatsCluster]:
    """A running cluster whose servers can be cut off from each other."""
    servers = NatsCluster(tmp_path_factory.mktemp("three") / "nats", cuttable=True)
    try:
        await servers.start()
        yield servers
    finally:
        await servers.stop()


def port_of(bus: NatsBus) -> int:
    """Return the port that a bus is connected to, 0 when it is not."""
    session = bus._connection.current
    client = session.client if session is not None else None
    url = client.connected_url if isinstance(client, Client) else None
    return url.port or 0 if url is not None else 0


@asynccontextmanager
async def bus_on(three: NatsCluster, number: int) -> AsyncIterator[NatsBus]:
    """Open a bus that knows all servers and is connected to one of them."""
    settings = CommonSettings(
        nats=three.url, nats_user="admin", nats_password=Secret(three.passwords["admin"])
    )
    async with contextlib.AsyncExitStack() as stack:
        while True:
            bus = from_settings(
                settings,
                service="test",
                instance="test",
                clock=SystemClock(),
                log=structlog.get_logger(),
                on_status=lambda **_: None,
            )
            await stack.enter_async_context(running(bus))
            if port_of(bus) == three.servers[number].port:
                yield bus
                return
            await stack.aclose()


@asynccontextmanager
async def cut_off(three: NatsCluster, number: int, *, silently: bool) -> AsyncIterator[None]:
    """Cut a server off for the length of a block."""
    three.cut_off(number, silently=silently)
    try:
        yield
    finally:
        three.rejoin(number)
        await three.healthy()


async def test_a_reader_and_a_writer_on_the_server_go_on_at_another_and_miss_nothing(
    three: NatsCluster, declared, subjects
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
                assert port_of(bus) != three.servers[lonely].port
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


class Candidate:
    """Leads when it can, and publishes fact after fact meanwhile."""

    def __init__(self, bus: NatsBus, name: str, subject: str) -> None:
        self.bus = bus
        self.name = name
        self._subject = subject
        self.acknowledged: list[bytes] = []
        self.terms: list[tuple[float, int]] = []
        """When each term began, and the port of the server."""
        self.ended_at = 0.0
        self._task = asyncio.create_task(leadership(bus, name, self._changed).run(self._publish))

    def _changed(self, term: Term | None) -> None:
        if term is not None:
            self.terms.append((time.monotonic(), port_of(self.bus)))
        else:
            self.ended_at = time.monotonic()

    async def _publish(self, term: Term) -> None:
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

    async def gone(self, *, from_port: int) -> None:
        """Wait until its connection is to another server."""

        def is_gone() -> bool:
            return port_of(self.bus) not in (0, from_port)

        await until(is_gone, deadline_s=GOES_ON_S, describe=f"{self.name} to go")

    async def stop(self) -> None:
        """End in order, which gives the lease back."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task


@pytest.mark.parametrize("silently", [False, True], ids=["cut", "silent"])
async def test_a_leader_on_the_server_gives_up_in_time_and_goes_on_at_another(
    three: NatsCluster, declared, subjects, silently: bool
):
    stream = declared.state.name
    lonely = await three.leader_of(declared.lease.name)
    subject = subjects.state("pods", f"ns/{silently}")
    async with (
        bus_on(three, lonely) as bus,
        bus_on(three, (lonely + 1) % 3) as other,
        Reader(other.follow(stream, [subjects.everything])) as reader,
    ):
        first = Candidate(bus, f"first-{silently}", subject)
        await first.leads(1)
        second = Candidate(other, f"second-{silently}", subject)
        async with cut_off(three, lonely, silently=silently):
            cut_at = time.monotonic()
            await until(lambda: first.ended_at > cut_at, describe="the end of its term")
            gave_up_at = first.ended_at
            await first.gone(from_port=three.servers[lonely].port)
            await until(lambda: second.terms or first.terms[1:], deadline_s=GOES_ON_S)
            await second.stop()
            known = len(first.acknowledged)
            await until(lambda: len(first.acknowledged) > known, deadline_s=GOES_ON_S)
            await first.stop()
            later = [*second.terms, *first.terms[1:]]
            assert three.servers[lonely].port not in {port for _, port in later}
            assert all(began > gave_up_at for began, _ in later), "two led at once"
        expected = {*second.acknowledged, *first.acknowledged}
        await reader.until_seen(first.acknowledged[-1])
    ours = [p for p in reader.payloads if p.startswith((b"first-", b"second-"))]
    terms = [payload.rpartition(b"/")[0] for payload in ours]
    assert len(set(ours)) == len(ours), "a fact came twice"
    assert expected <= set(ours), "an acknowledged fact was lost"
    assert [name for name, _ in itertools.groupby(terms)] == list(dict.fromkeys(terms)), (
        "a fact of an older term came behind one of a newer"
    )
