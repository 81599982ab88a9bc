"""What a watcher makes of each thing that list/watch tells, with a scripted server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from services.cache.adapters import watcher
from services.cache.adapters.watcher import Watcher
from services.cache.fold.objects import Published, digest
from services.cache.fold.publish_queue import PublishQueue
from services.cache.kinds import rows
from services.cache.metrics import CacheMetrics
from shared.contracts.messages import Op
from shared.kube.config import connect
from shared.runtime.health import ReadinessGate
from shared.runtime.metrics import Metrics
from tests.support.env import context_of_a_test
from tests.support.scripted_api import (
    Answer,
    ScriptedApi,
    bookmark,
    chunks,
    line,
    obj,
    page,
    status,
)
from tests.support.wait import until


class Watched:
    """A watcher of pods and what it filled."""

    def __init__(self, queue: PublishQueue, gate: ReadinessGate, metrics: Metrics) -> None:
        self.queue = queue
        self.gate = gate
        self.metrics = metrics
        self.said: list[str] = []
        self.stream: dict[str, Published] = {}
        self.watcher: Watcher

    def lead(self) -> None:
        """Begin another term, in which the stream says what was published."""
        self.queue.end()
        self.watcher.revalidate()
        self.queue.begin((("pods", key), what) for key, what in self.stream.items())

    def publish(self) -> None:
        """Say at once what is in line."""
        while (fact := self.queue.next()) is not None:
            self.said.append(f"{fact.op.value} {fact.key}")
            if fact.op is Op.DELETE:
                self.stream.pop(fact.key)
            else:
                self.stream[fact.key] = Published(
                    uid=fact.uid, rv=fact.rv, digest=digest(bytes(fact.body), fact.rv)
                )
            self.queue.confirmed(fact)


@pytest.fixture
async def api() -> AsyncIterator[ScriptedApi]:
    async with ScriptedApi().serving() as server:
        yield server


@asynccontextmanager
async def watching(api: ScriptedApi, directory: Path) -> AsyncIterator[Watched]:
    file = directory / "kubeconfig"
    file.write_text(api.kubeconfig(token="t"))
    queue, metrics = PublishQueue(["pods"]), Metrics()
    queue.begin([])
    context = context_of_a_test(metrics=metrics)
    gate = context.readiness.gate("watch-pods")
    async with await connect(str(file), user_agent="t") as kube, asyncio.TaskGroup() as group:
        watched = Watched(queue, gate, metrics)
        watched.watcher = Watcher(
            rows(["volcano"])[0],
            context,
            kube=kube,
            queue=queue,
            changed=watched.publish,
            metrics=CacheMetrics(metrics),
        )
        running = group.create_task(watched.watcher.run())
        yield watched
        running.cancel()


def our_pod(name: str, version: int, **spec: object) -> dict[str, object]:
    return obj(name, version, spec={"schedulerName": "volcano", "containers": [], **spec})


def listed(*pods: dict[str, object], version: int = 9) -> tuple[bytes, ...]:
    return (*(line("ADDED", p) for p in pods), bookmark(version, initial_end=True))


async def test_the_gate_opens_with_the_list(api: ScriptedApi, tmp_path: Path) -> None:
    api.then(status(503, "starting"), chunks(*listed(our_pod("a", 1)), ending="hang"))
    async with watching(api, tmp_path) as watched:
        assert not watched.gate.ok
        await until(lambda: watched.gate.ok, describe="the gate")
        await until(lambda: watched.said == ["put ns/a"], describe="the fact")
        assert watched.queue.complete() == ("pods",)


async def test_a_pod_that_is_ours_no_more_becomes_a_tombstone(
    api: ScriptedApi, tmp_path: Path
) -> None:
    other = our_pod("a", 10, schedulerName="other")
    api.then(chunks(*listed(our_pod("a", 1)), line("MODIFIED", other), ending="hang"))
    async with watching(api, tmp_path) as watched:
        await until(lambda: len(watched.said) == 2, describe="both facts")
        assert watched.said == ["put ns/a", "delete ns/a"]


async def test_one_answer_that_the_kind_is_unknown_takes_nothing_away(
    api: ScriptedApi, tmp_path: Path
) -> None:
    api.then(
        chunks(*listed(our_pod("a", 1))),
        status(404),
        chunks(*listed(our_pod("a", 1), our_pod("b", 2)), ending="hang"),
    )
    async with watching(api, tmp_path) as watched:
        await until(lambda: len(api.seen) == 3, describe="the next attempt")
        await until(lambda: len(watched.said) == 2, describe="the second list")
        assert watched.said == ["put ns/a", "put ns/b"]


async def test_a_kind_that_stays_unknown_is_empty(api: ScriptedApi, tmp_path: Path) -> None:
    api.then(chunks(*listed(our_pod("a", 1))), *[status(404)] * 5)
    async with watching(api, tmp_path) as watched:
        await until(lambda: len(watched.said) == 2, describe="the end of the kind")
        assert watched.said == ["put ns/a", "delete ns/a"]
        assert watched.gate.ok


async def test_an_unreadable_object_is_counted_and_keeps_its_last_form(
    api: ScriptedApi, tmp_path: Path
) -> None:
    odd = obj("a", 10, spec={"containers": 7})
    more = our_pod("b", 11)
    api.then(
        chunks(*listed(our_pod("a", 1)), line("MODIFIED", odd), line("ADDED", more), ending="hang")
    )
    async with watching(api, tmp_path) as watched:
        await until(lambda: len(watched.said) == 2, describe="the pod behind it")
        assert watched.said == ["put ns/a", "put ns/b"]
        assert b'pumice_cache_unreadable_total{kind="pods"} 1.0' in watched.metrics.render()


async def test_a_new_leader_lists_little_anew(api: ScriptedApi, tmp_path: Path) -> None:
    api.then(
        chunks(*listed(our_pod("a", 1), our_pod("gone", 2)), ending="hang"),
        chunks(*listed(our_pod("a", 1), version=20), ending="hang"),
    )
    async with watching(api, tmp_path) as watched:
        await until(lambda: len(watched.said) == 2, describe="the first list")
        watched.lead()
        await until(lambda: len(watched.said) == 3, describe="the second list")
        assert watched.said == ["put ns/a", "put ns/gone", "delete ns/gone"]


@pytest.fixture
def much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any number of objects is too many for a list."""
    monkeypatch.setattr(watcher, "RELIST_MAX", 0)


@pytest.mark.usefixtures("much")
async def test_of_much_a_new_leader_asks_the_version_and_goes_on_until_its_watch_has_come_there(
    api: ScriptedApi, tmp_path: Path
) -> None:
    goes_on = asyncio.Event()
    api.then(
        chunks(*listed(our_pod("a", 1), our_pod("gone", 2)), ending="hang"),
        page([our_pod("a", 1)], 20),
        after(goes_on, chunks(line("DELETED", our_pod("gone", 15)), bookmark(20), ending="hang")),
    )
    async with watching(api, tmp_path) as watched:
        await until(lambda: len(watched.said) == 2, describe="the list")
        watched.lead()
        await until(lambda: len(api.seen) == 3, describe="the watch that goes on")
        assert watched.queue.complete() == ()
        goes_on.set()
        await until(lambda: watched.queue.complete() == ("pods",), describe="the proof")
        assert watched.said == ["put ns/a", "put ns/gone", "delete ns/gone"]
    _, asked, watch = api.seen
    assert asked.query == {"limit": "1"}
    assert watch.query["resourceVersion"] == "9"
    assert watch.query["timeoutSeconds"] == "3", "two seconds before its end comes a bookmark"
    assert "sendInitialEvents" not in watch.query


@pytest.mark.usefixtures("much")
@pytest.mark.parametrize(
    "answers",
    [(status(403),), (page([], 20), chunks(ending="hang"))],
    ids=["the version is not told", "no bookmark comes"],
)
async def test_what_cannot_be_shown_to_be_new_is_listed_anew(
    api: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: tuple[Answer, ...]
) -> None:
    monkeypatch.setattr(watcher, "_BOOKMARK_WAIT_S", 0.3)
    api.then(
        chunks(*listed(our_pod("a", 1)), ending="hang"),
        *answers,
        chunks(*listed(our_pod("b", 15), version=20), ending="hang"),
    )
    async with watching(api, tmp_path) as watched:
        await until(lambda: len(watched.said) == 1, describe="the first list")
        watched.lead()
        await until(lambda: watched.queue.complete() == ("pods",), describe="the second list")
        assert watched.said == ["put ns/a", "put ns/b", "delete ns/a"]


@pytest.mark.usefixtures("much")
async def test_a_list_under_way_at_the_beginning_of_a_term_is_used(
    api: ScriptedApi, tmp_path: Path
) -> None:
    ends = asyncio.Event()
    api.then(
        after(ends, chunks(*listed(our_pod("a", 1)), ending="hang")),
        page([], 20),
        chunks(bookmark(21), ending="hang"),
    )
    async with watching(api, tmp_path) as watched:
        await until(lambda: len(api.seen) == 1, describe="the first list")
        watched.lead()
        ends.set()
        await until(lambda: watched.queue.complete() == ("pods",), describe="the proof")
        assert watched.said == ["put ns/a"]
        assert [seen.query.get("sendInitialEvents", "") for seen in api.seen] == ["true", "", ""]


async def test_a_kind_that_is_unknown_is_asked_for_at_once_by_a_new_leader(
    api: ScriptedApi, tmp_path: Path
) -> None:
    api.then(status(404), status(404))
    async with watching(api, tmp_path) as watched:
        await until(lambda: watched.gate.ok, describe="the first answer")
        watched.lead()
        await until(lambda: watched.queue.complete() == ("pods",), deadline_s=2)


def after(event: asyncio.Event, answer: Answer) -> Answer:
    """Give an answer once the event is set."""

    async def wait(request: web.Request) -> web.StreamResponse:
        await event.wait()
        return await answer(request)

    return wait
