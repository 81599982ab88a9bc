"""The stream of changes over HTTP: server-sent events, bounded in number."""

import asyncio
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from pumice.local.ports import free_port
from services.visibility.adapters import server as module
from services.visibility.adapters.server import Changes
from services.visibility.api import requests
from services.visibility.api.statuses import ApiFailure
from services.visibility.api.users import User
from shared.api.visibility import Change, ObjectRef, TimelineEntry
from tests.support.wait import until
from tests.unit.web.page_world import World

PATH = "/apis/visibility.pumice.dev/v1alpha1/namespaces/team-00/changes"
ENTRY = TimelineEntry(
    at="2026-01-01T00:00:00Z",
    what="Bound",
    about=ObjectRef(kind="Job", namespace="team-00", name="a"),
    message="one\nline",
)


@asynccontextmanager
async def streams():
    world = World(nodes=1, waiting=1, running=0, now_s=0.0, seed=1)
    answers, port = world, free_port()
    changes = Changes(answers)

    async def answer(request):
        target = requests.read(request.method, request.path, request.query)
        try:
            return await changes.stream(request, User(name="ann"), target)
        except ApiFailure as failure:
            return web.Response(status=failure.code)

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        yield answers, session
        answers.cut()
    await runner.cleanup()


async def test_each_change_is_one_event_and_nothing_new_is_a_comment():
    async with streams() as (answers, session), session.get(f"{PATH}?watch=1") as response:
        assert response.content_type == "text/event-stream"
        await until(lambda: answers.is_followed, describe="a reader")
        for change in (Change(resources=("nodeuses",)), Change(), Change(entry=ENTRY)):
            answers.tell(change)
        answers.cut()
        text = (await response.read()).decode()
    begin, first, quiet, second, end = text.split("\n\n")
    assert (begin, quiet, end) == ("retry: 2000\n: follows", ": lives", "")
    assert first == 'event: changed\ndata: {"resources":["nodeuses"]}'
    assert second.startswith('event: happened\ndata: {"entry":{')
    assert "one\\nline" in second


async def test_a_reader_that_has_gone_leaves_room_for_another(monkeypatch):
    monkeypatch.setattr(module, "_MAX", 1)
    async with streams() as (answers, session):
        async with session.get(f"{PATH}?watch=1"):
            await until(lambda: answers.is_followed, describe="a reader")
            async with session.get(f"{PATH}?watch=1") as refused:
                assert refused.status == 429
        answers.tell(Change(resources=("nodeuses",)))
        answers.cut()
        await until(lambda: not answers.is_followed, describe="no reader")
        async with asyncio.timeout(5), session.get(f"{PATH}?watch=1") as response:
            assert response.status == 200


@pytest.mark.parametrize("path", [f"{PATH}?watch=1", PATH.replace("/namespaces/team-00", "")])
def test_the_stream_is_watched_as_a_resource(path):
    place, _, query = path.partition("?")
    target = requests.read("GET", place, dict([query.split("=")] if query else []))
    assert target.resource.plural == "changes"
    assert target.verb == ("watch" if query else "list")
    assert (target.verb in target.resource.verbs) is bool(query)
