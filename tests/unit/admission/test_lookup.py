"""What rules know of the cluster is asked for once by many, and so is what cannot be had (W01)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import structlog
from aiohttp import web

from services.admission.adapters.lookup import Lookup
from shared.kube.config import connect
from shared.runtime.clock import Clock, SystemClock
from shared.runtime.errors import Retryable
from tests.support.clock import VirtualClock
from tests.support.scripted_api import Answer, ScriptedApi, json, status
from tests.unit.admission.asking import queue_named

MANY = 20


@asynccontextmanager
async def looking(
    directory: Path, *answers: Answer, clock: Clock | None = None
) -> AsyncIterator[tuple[ScriptedApi, Lookup]]:
    """Return an API server that gives these answers, and who asks it."""
    file = directory / "kubeconfig"
    async with ScriptedApi().serving() as api:
        api.then(*answers)
        file.write_text(api.kubeconfig(token="t"))
        async with await connect(str(file), user_agent="test", request_timeout_s=20) as kube:
            yield api, Lookup(kube, clock=clock or SystemClock(), log=structlog.get_logger())


def after(gate: asyncio.Event, answer: Answer) -> Answer:
    """Answer only once the gate is open."""

    async def wait(request: web.Request) -> web.StreamResponse:
        await gate.wait()
        return await answer(request)

    return wait


async def ask(lookup: Lookup, gate: asyncio.Event) -> list[str]:
    """Let many ask before the first of them is answered; return what each was told."""
    told: list[str] = []

    async def one() -> None:
        try:
            told.append(",".join(await lookup.queues(fresh=True)))
        except Retryable as error:
            told.append(str(error))

    async with asyncio.TaskGroup() as tasks:
        for number in range(MANY):
            tasks.create_task(one(), name=f"asks-{number}")
        await asyncio.sleep(0)
        gate.set()
    return told


async def test_those_who_wait_for_one_list_share_it(tmp_path: Path) -> None:
    gate = asyncio.Event()
    listing = json({"metadata": {"resourceVersion": "1"}, "items": [queue_named("default")]})
    async with looking(tmp_path, after(gate, listing), listing) as (api, lookup):
        assert await ask(lookup, gate) == ["default"] * MANY
        assert len(api.seen) == 2, "the one that was on its way, and one for all who came later"


async def test_those_who_wait_for_one_list_share_its_failure(tmp_path: Path) -> None:
    """Asked by turns, the last of many would wait for as many time limits."""
    gate = asyncio.Event()
    no = status(503, "not now")
    listing = json({"metadata": {"resourceVersion": "1"}, "items": [queue_named("default")]})
    async with looking(tmp_path, after(gate, no), no, listing) as (api, lookup):
        told = await ask(lookup, gate)
        assert len(told) == MANY
        assert all("not now" in words for words in told), told
        assert len(api.seen) == 2
        assert list(await lookup.queues()) == ["default"], "who comes later asks again"


async def test_a_failure_is_that_of_its_time_only(tmp_path: Path) -> None:
    listing = json({"metadata": {"resourceVersion": "1"}, "items": [queue_named("default")]})
    async with looking(tmp_path, status(503, "not now"), listing) as (_, lookup):
        with pytest.raises(Retryable):
            await lookup.queues(fresh=True)
        assert list(await lookup.queues(fresh=True)) == ["default"]


async def test_annotations_of_a_namespace_are_asked_for_once_a_second(tmp_path: Path) -> None:
    said = {"scheduling.volcano.sh/queue-name": "gold"}
    namespace = json({"metadata": {"name": "ns", "annotations": said}})
    clock = VirtualClock()
    async with looking(tmp_path, namespace, namespace, clock=clock) as (api, lookup):
        for _ in range(MANY):
            assert await lookup.annotations("ns") == said
        assert len(api.seen) == 1
        await clock.advance(1.5)
        assert await lookup.annotations("ns") == said
        assert len(api.seen) == 2


async def test_those_who_ask_for_one_namespace_at_once_share_the_answer(tmp_path: Path) -> None:
    gate = asyncio.Event()
    namespace = json({"metadata": {"name": "ns", "annotations": {}}})
    async with looking(tmp_path, after(gate, namespace), namespace) as (api, lookup):
        async with asyncio.TaskGroup() as tasks:
            asking = [tasks.create_task(lookup.annotations("ns")) for _ in range(MANY)]
            await asyncio.sleep(0)
            gate.set()
        assert [task.result() for task in asking] == [{}] * MANY
        assert len(api.seen) == 1
