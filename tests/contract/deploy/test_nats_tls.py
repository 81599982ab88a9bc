"""TLS to the NATS server of k8s/base: with its configuration and the certificate of our tool."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
import structlog

from pumice.deploy import nats_secrets
from pumice.events import Unreachable, find, subscribe
from pumice.local.declaring import Declaring
from shared.bus.nats import from_settings
from shared.runtime.clock import SystemClock
from shared.runtime.common import CommonSettings
from shared.runtime.values import Secret
from tests.contract.bus.conftest import Status
from tests.contract.deploy.nats_of_k8s import Server, running_server
from tests.support.wait import until


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with running_server(tmp_path) as running:
        yield running


def settings(server: Server, *, url: str = "", ca: str | None = None) -> CommonSettings:
    return CommonSettings(
        nats=url or server.url,
        nats_user="declarer",
        nats_password=Secret(server.passwords["declarer"]),
        nats_ca=str(server.ca) if ca is None else ca,
        cluster="main",
    )


@asynccontextmanager
async def bus_with(given: CommonSettings) -> AsyncIterator[Status]:
    status = Status()
    bus = from_settings(
        given,
        service="declarer",
        instance="test",
        clock=SystemClock(),
        log=structlog.get_logger(),
        on_status=status.set,
    )
    task = asyncio.create_task(bus.run())
    yield status
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_service_with_the_authority_is_connected(server: Server) -> None:
    async with bus_with(settings(server)) as status:
        await until(lambda: status.ok, describe="the connection")


async def test_a_service_without_the_authority_does_not_trust_the_server(server: Server) -> None:
    async with bus_with(settings(server, ca="")) as status:
        await until(lambda: "certificate verify failed" in status.reasons, describe="the reason")
        assert not status.ok


async def test_a_server_with_anothers_certificate_is_not_trusted(
    server: Server, tmp_path: Path
) -> None:
    other = tmp_path / "other.crt"
    other.write_text(nats_secrets.certificate("pumice-system")["stringData"]["ca.crt"])
    async with bus_with(settings(server, ca=str(other))) as status:
        await until(lambda: "certificate verify failed" in status.reasons, describe="the reason")
        assert not status.ok


async def test_a_client_that_speaks_without_tls_is_refused(server: Server) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        assert b'"tls_required":true' in await reader.readline()
        password = server.passwords["cache"].encode()
        writer.write(b'CONNECT {"user":"cache","pass":"' + password + b'"}\r\nPING\r\n')
        async with asyncio.timeout(5):
            assert b"PONG" not in await reader.read()
    finally:
        writer.close()


@asynccontextmanager
async def stand_in(heard: list[bytes]) -> AsyncIterator[int]:
    """Listen as a NATS server does that knows of no TLS."""

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"version":"2.14.0","max_payload":1048576,"auth_required":true}\r\n')
        heard.append(await reader.read(4096))
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@pytest.mark.parametrize("with_ca", [True, False])
async def test_a_stand_in_for_the_server_hears_no_password(server: Server, with_ca: bool) -> None:
    heard: list[bytes] = []
    async with stand_in(heard) as port:
        scheme, ca = ("nats", str(server.ca)) if with_ca else ("tls", "")
        url = f"{scheme}://127.0.0.1:{port}"
        async with bus_with(settings(server, url=url, ca=ca)) as status:
            await until(lambda: "the server offers no TLS" in status.reasons, describe="reason")
        password = server.passwords["events"]
        with pytest.raises(Unreachable, match="the server offers no TLS"):
            async with aclosing(subscribe(url, user="events", password=password, ca=ca)) as events:
                await anext(events)
    assert heard
    assert not any(heard), "not even a user's name"


async def test_a_new_authority_counts_from_the_servers_next_start_on(server: Server) -> None:
    async with bus_with(settings(server)) as status:
        await until(lambda: status.ok, describe="the connection")
        await server.process.stop()
        await until(lambda: not status.ok, describe="the end of the connection")
        server.renew()
        await server.start()
        await until(lambda: status.ok, deadline_s=10, describe="the connection")


@pytest.fixture
def mounted(server: Server, tmp_path: Path) -> Callable[[bool], Path]:
    def make(with_ca: bool) -> Path:
        secret = tmp_path / f"secret-{with_ca}"
        secret.mkdir()
        (secret / "username").write_text("events")
        (secret / "password").write_text(server.passwords["events"])
        if with_ca:
            (secret / "ca.crt").write_text(server.ca.read_text())
        return secret

    return make


async def test_a_subscriber_takes_the_authority_from_where_its_secret_is_mounted(
    server: Server, mounted: Callable[[bool], Path]
) -> None:
    declaring = Declaring(settings(server))
    await declaring.start()
    try:
        at = find({"PUMICE_NATS": server.url, "PUMICE_CLUSTER": "main"}, secret=mounted(True))
        stream = subscribe(
            at.url, user=at.user, password=at.password, ca=at.ca, cluster="main", follow=False
        )
        async with aclosing(stream) as events:
            assert [each async for each in events] == []
        blind = find({"PUMICE_NATS": server.url}, secret=mounted(False))
        stream = subscribe(blind.url, user=blind.user, password=blind.password, ca=blind.ca)
        async with aclosing(stream) as events:
            with pytest.raises(Unreachable, match="certificate verify failed"):
                await anext(events)
    finally:
        await declaring.stop()


@pytest.mark.parametrize("name", nats_secrets.server_names("pumice-system"))
async def test_the_certificate_serves_each_name_of_the_service(server: Server, name: str) -> None:
    context = ssl.create_default_context(cafile=str(server.ca))
    for called, is_served in ((name.replace("*", "pumice-nats-0"), True), ("elsewhere.svc", False)):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        await reader.readline()
        try:
            await writer.start_tls(context, server_hostname=called)
        except ssl.SSLCertVerificationError:
            assert not is_served
        else:
            assert is_served
        finally:
            writer.close()
