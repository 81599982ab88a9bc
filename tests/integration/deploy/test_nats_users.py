"""The NATS configuration in k8s/ on a real server: each user may say its own and nothing else."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from nats.errors import NoRespondersError

from pumice.events.tls import trusting
from shared.contracts.permissions import inbox_prefix
from tests.contract.deploy.nats_of_k8s import Server, running_server
from tests.support.wait import until


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with running_server(tmp_path) as running:
        yield running


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
        await writer.start_tls(trusting(str(server.ca)), server_hostname="127.0.0.1")
        writer.write(b'CONNECT {"user":"cache","pass":"wrong"}\r\nPING\r\n')
        async with asyncio.timeout(20):
            assert b"Authorization Violation" in await reader.readline()
    finally:
        writer.close()
        await writer.wait_closed()


async def test_jetstream_is_on(server: Server) -> None:
    async with server.user("cache", []) as client:
        try:
            answer = await client.request("$JS.API.INFO", b"", timeout=20)
        except NoRespondersError:
            pytest.fail("JetStream does not answer")
        assert b'"error"' not in answer.data
