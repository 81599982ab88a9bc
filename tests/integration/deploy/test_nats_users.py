"""The NATS configuration in k8s/ on a real server: each user may say its own and nothing else."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import nats
import pytest
import pytest_asyncio
from nats.aio.client import Client
from nats.errors import NoRespondersError

from pumice.deploy import nats_config, nats_secrets
from pumice.local.parts import nats_server_binary
from pumice.local.ports import free_port
from pumice.local.process import Process, ProcessSpec
from shared.contracts.permissions import inbox_prefix
from tests.support.manifests import BASE, build, named
from tests.support.wait import until


class Server:
    """A nats-server with the configuration of the ConfigMap and the passwords of fresh Secrets."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        text = named(build(BASE), "ConfigMap", "pumice-nats")["data"]["nats.conf"]
        # Ports and the directory are all that a test changes.
        text = text.replace('"/data"', f'"{directory}/data"')
        text = re.sub(r'"port": \d+', f'"listen": "127.0.0.1:{self.port}"', text)
        text = re.sub(r'"http_port": \d+', f'"http": "127.0.0.1:{free_port()}"', text)
        config = directory / "nats.conf"
        config.write_text(text)
        secrets = nats_secrets.manifests(namespace="pumice-system", cluster="main")
        self.passwords = {s["stringData"]["username"]: s["stringData"]["password"] for s in secrets}
        variables = {nats_config.password_variable(u): p for u, p in self.passwords.items()}
        self.process = Process(
            ProcessSpec(
                name="nats-server",
                argv=(str(nats_server_binary()), "-c", str(config)),
                log=directory / "nats.log",
                environ={**variables, "PUMICE_NATS_SERVER_NAME": "pumice-nats-0"},
            )
        )

    @asynccontextmanager
    async def user(self, name: str, refusals: list[str]) -> AsyncIterator[Client]:
        """Connect as a user; what the server refuses is added to `refusals`."""

        async def refused(error: Exception) -> None:
            refusals.append(str(error))

        client = await nats.connect(
            f"nats://127.0.0.1:{self.port}",
            user=name,
            password=self.passwords[name],
            error_cb=refused,
            inbox_prefix=inbox_prefix(name).encode(),
            allow_reconnect=False,
        )
        try:
            yield client
        finally:
            await client.close()


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    running = Server(tmp_path)
    running.process.start()

    async def probe() -> str:
        _, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.close()
        return ""

    await running.process.ready(probe, deadline_s=10)
    try:
        yield running
    finally:
        await running.process.stop()


@pytest.mark.parametrize(
    ("user", "subject", "allowed"),
    [
        ("cache", "pumice.main.state.pods.ns.p", True),
        ("cache", "pumice.main.command.p0", False),
        ("cache", "pumice.other.state.pods.ns.p", False),
        ("scheduler", "pumice.main.command.p0", True),
        ("scheduler", "pumice.main.state.pods.ns.p", False),
        ("scheduler", "pumice.main.outcome.p0", False),
        ("binder", "pumice.main.outcome.p0", True),
        ("binder", "pumice.main.command.p0", False),
        ("controller", "pumice.main.events.dev.ns.j", True),
        ("controller", "pumice.main.command.p0", False),
        ("events", "pumice.main.events.dev.ns.j", False),
    ],
)
async def test_a_user_may_publish_its_own_subjects_only(
    server: Server, user: str, subject: str, allowed: bool
) -> None:
    refusals: list[str] = []
    async with server.user(user, refusals) as client:
        await client.publish(subject, b"{}")
        await client.flush()
        if allowed:
            assert not refusals
        else:
            await until(lambda: refusals, describe="a refusal by the server")
            assert subject in refusals[0]


async def test_nobody_hears_anothers_replies(server: Server) -> None:
    refusals: list[str] = []
    async with server.user("events", refusals) as client:
        await client.subscribe(f"{inbox_prefix('binder')}.>")
        await client.flush()
        await until(lambda: refusals, describe="a refusal by the server")


async def test_a_stranger_is_turned_away(server: Server) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        assert (await reader.readline()).startswith(b"INFO")
        writer.write(b'CONNECT {"user":"cache","pass":"wrong"}\r\nPING\r\n')
        async with asyncio.timeout(5):
            assert b"Authorization Violation" in await reader.readline()
    finally:
        writer.close()
        await writer.wait_closed()


async def test_jetstream_is_on(server: Server) -> None:
    async with server.user("cache", []) as client:
        try:
            answer = await client.request("$JS.API.INFO", b"", timeout=5)
        except NoRespondersError:
            pytest.fail("JetStream does not answer")
        assert b'"error"' not in answer.data
