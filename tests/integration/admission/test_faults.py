"""Admission that is slow or answers nonsense: whatever is written comes through (W01)."""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from tests.integration.admission.conftest import CONFIGURATIONS, Door
from tests.support import world
from tests.support.api import Api
from tests.support.certificates import Authority
from tests.support.wait import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]

Answer = Callable[[web.Request], Awaitable[web.Response]]
REVIEW_S = 5.0
"""How long the API server waits for a webhook of ours."""


async def slow(_: web.Request) -> web.Response:
    await asyncio.Event().wait()
    raise AssertionError


async def nonsense(_: web.Request) -> web.Response:
    return web.Response(text="<html>no review</html>", content_type="text/html")


@asynccontextmanager
async def in_its_place(
    door: Door, api: Api, directory: Path, answer: Answer
) -> AsyncIterator[list[str]]:
    """Serve at the port of admission, which has gone and left its registration."""
    asked: list[str] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        return await answer(request)

    authority = Authority(directory / "authority")
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.2)
    await runner.setup()
    try:
        tls = authority.server_context(ssl.CERT_NONE)
        await web.TCPSite(runner, "127.0.0.1", door.port, ssl_context=tls).start()
        bundle = base64.b64encode(authority.ca_file.read_bytes()).decode()
        for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
            path = f"{CONFIGURATIONS}/{kind}/{door.name}"
            found = await api.request("GET", path)
            for hook in found["webhooks"]:
                hook["clientConfig"]["caBundle"] = bundle
            await api.request("PUT", path, found)
        yield asked
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("answer", [slow, nonsense], ids=["slow", "wrong"])
async def test_what_is_written_comes_through_webhooks_that_are_slow_or_wrong(
    own_door: Door, api: Api, space: str, tmp_path: Path, answer: Answer
) -> None:
    replica = await own_door.start()
    job = world.job("j", world.task("w", 1, cpu="100m", memory="16Mi"))
    bad = {**job, "spec": {**job["spec"], "plugins": {"nope": []}}}
    await own_door.refuses("jobs", bad, space, words="spec.plugins.nope")
    replica.kill()
    async with in_its_place(own_door, api, tmp_path, answer) as asked:

        async def is_asked() -> bool:
            await api.create("jobs", job, space)
            await api.delete("jobs", space, "j")
            return bool(asked)

        await until(is_asked, deadline_s=60, describe="the API server asks the one in its place")
        async with asyncio.timeout(2 * REVIEW_S + 10):
            await api.create("jobs", job, space)
        asked.clear()
        container = {"name": "c", "image": "busybox"}
        async with asyncio.timeout(REVIEW_S):
            await api.create(
                "pods",
                {"metadata": {"name": "of-others"}, "spec": {"containers": [container]}},
                space,
            )
            await api.create("configmaps", {"metadata": {"name": "of-others"}}, space)
        assert asked == [], "nobody asks about what is not ours"
