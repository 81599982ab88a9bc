"""Events over HTTP to a real receiver that refuses, hangs, goes away and comes back."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from pumice.events import EventsError, decode
from pumice.events.webhook import DeliveryMark, MarkFile, headers_in
from pumice.local.ports import free_port
from tests.contract.events.publishing import EVENTS
from tests.support.wait import until


class Receiver:
    """An HTTP server that keeps what it takes; `answers` says how it treats each request."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        """Statuses of the next requests; 200 when there are none."""
        self.taken: list[tuple[dict[str, str], bytes]] = []
        self.asked = 0
        self.port = free_port()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/events"

    @property
    def sequences(self) -> list[int]:
        return [int(headers["Pumice-Sequence"]) for headers, _ in self.taken]

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.asked += 1
        status = self.answers.pop(0) if self.answers else 200
        if status < 300:
            self.taken.append((dict(request.headers), body))
        return web.Response(status=status)

    @asynccontextmanager
    async def up(self) -> AsyncIterator[None]:
        """Be there, at the same port each time."""
        app = web.Application()
        app.router.add_post("/events", self.take)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self.port)
        await site.start()
        try:
            yield
        finally:
            await runner.cleanup()


class Forwarder:
    """`pumice events --webhook` as a process, which a test may kill."""

    def __init__(self, nats_server, home: Path) -> None:
        self._environ = {
            **os.environ,
            **nats_server.environ("events"),
            "PUMICE_NATS": nats_server.url,
            "XDG_STATE_HOME": str(home),
        }
        self.err = b""

    @asynccontextmanager
    async def running(self, *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """Run it; it is killed at the end, however far it has come."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pumice", "events", *words),
            env=self._environ,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stderr is not None
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            self.err += await process.stderr.read()
            await process.wait()


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
def forwarder(nats_server, tmp_path: Path) -> Forwarder:
    return Forwarder(nats_server, tmp_path / "home")


async def has(receiver: Receiver, count: int) -> None:
    await until(
        lambda: len(set(receiver.sequences)) >= count,
        deadline_s=30,
        describe=lambda: f"{count} events are taken: {receiver.sequences}",
    )


async def test_events_are_delivered_in_order_by_a_receiver_that_fails(
    publisher, receiver: Receiver, forwarder: Forwarder
) -> None:
    await publisher.all()
    receiver.answers = [500, 200, 503, 404, 200, 429]
    async with receiver.up(), forwarder.running("--webhook", receiver.url, "--since", "9000d"):
        await has(receiver, publisher.count)
        assert receiver.sequences == list(range(1, publisher.count + 1))
    assert receiver.asked == publisher.count + 4
    assert b"event 1: " in forwarder.err
    assert b"answers 500" in forwarder.err
    events = [decode(body).data for _, body in receiver.taken]
    assert events == list(EVENTS)
    kinds = {headers["Content-Type"] for headers, _ in receiver.taken}
    assert kinds == {"application/cloudevents+json"}


async def test_nothing_is_lost_over_restarts_of_forwarder_and_receiver(
    publisher, receiver: Receiver, forwarder: Forwarder
) -> None:
    """Each part dies twice while events go on; what was taken twice is the last one only."""
    begin = ("--since", "9000d")
    for _ in range(3):
        await publisher.all()
        async with receiver.up():
            async with forwarder.running("--webhook", receiver.url, *begin):
                await has(receiver, publisher.count - 3)  # killed in the midst of it
            async with forwarder.running("--webhook", receiver.url):
                await has(receiver, publisher.count)
        begin = ()
    async with forwarder.running("--webhook", receiver.url) as process:
        await publisher.all()
        await asyncio.wait([asyncio.create_task(process.wait())], timeout=1.5)
        assert process.returncode is None  # it waits for its receiver
        async with receiver.up():
            await has(receiver, publisher.count)
    once = list(dict.fromkeys(receiver.sequences))
    assert once == list(range(1, publisher.count + 1))
    repeats = len(receiver.sequences) - len(once)
    assert repeats <= 6, "at most one per death"
    assert sorted(receiver.sequences) == receiver.sequences


async def test_binary_mode_puts_attributes_into_headers(
    publisher, receiver: Receiver, forwarder: Forwarder, tmp_path: Path
) -> None:
    await publisher.all()
    headers = tmp_path / "headers"
    headers.write_text("Authorization: Bearer abc\n")
    words = ("--webhook", receiver.url, "--mode", "binary", "--since", "9000d")
    async with receiver.up(), forwarder.running(*words, "--header-file", str(headers)):
        await has(receiver, publisher.count)
    sent, body = receiver.taken[0]
    assert sent["ce-type"] == "io.pumice.job.phase"
    assert sent["ce-subject"] == "ns/a"
    assert sent["ce-id"] == "e1"
    assert (sent["ce-specversion"], sent["Content-Type"]) == ("1.0", "application/json")
    assert sent["Authorization"] == "Bearer abc"
    assert json.loads(body)["phase"] == "Running"


async def test_types_and_queues_select_what_is_sent(
    publisher, receiver: Receiver, forwarder: Forwarder
) -> None:
    await publisher.all()
    words = ("--type", "job.phase", "--type", "gang.placed", "--type", "queue.state")
    async with (
        receiver.up(),
        forwarder.running(
            "--webhook", receiver.url, "--since", "9000d", "--queue", "default", *words
        ),
    ):
        await has(receiver, 3)
    types = [json.loads(body)["type"] for _, body in receiver.taken]
    assert types == ["io.pumice.job.phase", "io.pumice.gang.placed", "io.pumice.queue.state"]


async def test_a_gap_that_cannot_be_closed_is_told_and_passed(
    publisher, resized, receiver: Receiver, forwarder: Forwarder, tmp_path: Path
) -> None:
    await publisher.all()
    place = tmp_path / "place.json"
    MarkFile(place).write(DeliveryMark(sequence=1))
    await resized(1500)
    for _ in range(3):
        await publisher.all()
    oldest = (await publisher.bus.info(publisher.spec.name)).first_seq
    words = ("--webhook", receiver.url, "--state", str(place))
    async with receiver.up(), forwarder.running(*words):
        await until(lambda: publisher.count in receiver.sequences, deadline_s=20)
    assert receiver.sequences == list(range(oldest, publisher.count + 1))
    assert b"event 2: no longer kept" in forwarder.err


async def test_a_receiver_that_wants_no_more_ends_it(
    publisher, receiver: Receiver, forwarder: Forwarder
) -> None:
    await publisher.all()
    receiver.answers = [410]
    words = ("--webhook", receiver.url, "--since", "9000d")
    async with receiver.up(), forwarder.running(*words) as process, asyncio.timeout(20):
        assert await process.wait() == 1
    assert b"accepts no more events: 410" in forwarder.err


def test_a_header_that_is_none_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "headers"
    path.write_text("X: 1\nnonsense\n")
    with pytest.raises(EventsError, match="line 2: write it like"):
        headers_in(path)
