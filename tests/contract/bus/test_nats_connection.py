"""Users, passwords, addresses and versions: what the adapter makes of the real server's words."""

import asyncio
import contextlib

import pytest
import structlog

from shared.bus import connection
from shared.bus.errors import NoReply, NotPermitted
from shared.bus.nats import from_settings
from shared.runtime.clock import SystemClock
from shared.runtime.common import CommonSettings
from shared.runtime.errors import Rejected
from tests.contract.bus.conftest import Status, only_nats
from tests.support.wait import until, within


def bus_at(url, status):
    return from_settings(
        CommonSettings(nats=url),
        service="test",
        instance="test",
        clock=SystemClock(),
        log=structlog.get_logger(),
        on_status=status.set,
    )


@only_nats
async def test_a_user_without_the_right_is_refused_at_once(bus, open_bus, declared, subjects):
    cache = await open_bus("cache")
    async with within(3):
        with pytest.raises(NotPermitted, match=r"may not publish to pumice\.local\.command\.p0"):
            await cache.publisher(declared.command.name).publish(
                subjects.command(0), b"bind", msg_id="1"
            )
    assert issubclass(NotPermitted, Rejected)
    assert (await bus.info(declared.command.name)).messages == 0
    publisher = cache.publisher(declared.state.name)
    assert (await publisher.publish(subjects.state("pods", "ns/a"), b"1")).sequence == 1


@only_nats
async def test_a_wrong_password_is_named_and_tried_again(server, start_bus):
    status = Status()
    start_bus(server.bus("nobody", status=status, name="test"))
    await until(lambda: "refuses our user or password" in status.reasons, describe="the reason")
    assert not status.ok
    assert "wrong" not in status.reasons.replace("wrong password", "")


@only_nats
async def test_an_unreachable_server_is_named_and_found_when_it_comes(server, start_bus):
    status = Status()
    await server.stop()
    bus = start_bus(server.bus(status=status, name="test"))
    wanted = f"cannot reach NATS at {server.nats.url}"
    await until(lambda: wanted in status.reasons, describe="the reason")
    with pytest.raises(NoReply):
        await bus.publisher("X").publish("x", b"")
    await server.start()
    await until(lambda: status.ok, describe="the connection")


async def test_an_old_server_is_refused_by_its_version(start_bus):
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"version":"2.10.29","max_payload":1048576,"headers":true}\r\n')
        await reader.readuntil(b"PING\r\n")
        writer.write(b"PONG\r\n")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    status = Status()
    start_bus(bus_at(f"nats://127.0.0.1:{port}", status))
    await until(
        lambda: "version 2.10, but fencing needs 2.11" in status.reasons, describe="the reason"
    )
    server.close()


def test_an_address_that_is_none_is_refused():
    with pytest.raises(Rejected, match="'localhost' is not an address") as refused:
        bus_at("localhost", Status())
    assert refused.value.field == "nats"


@only_nats
async def test_a_cancellation_that_nats_py_hides_ends_the_connection(server, monkeypatch):
    """While it closes a connection nats-py takes a cancellation for that of a task of its own."""
    closing = asyncio.Event()

    async def close(_) -> None:
        closing.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    monkeypatch.setattr(connection, "_discard", close)
    await server.stop()
    running = asyncio.create_task(server.bus(status=Status(), name="test").run())
    await asyncio.wait_for(closing.wait(), 10)
    running.cancel()
    done, _ = await asyncio.wait({running}, timeout=5)
    assert running in done
