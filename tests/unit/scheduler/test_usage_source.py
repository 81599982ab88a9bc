"""The source of node usage, against a real HTTP server that speaks each API (K03)."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import structlog
from aiohttp import encode_basic_auth, web

from services.scheduler.adapters.usage_source import UsageSource, UsageStore
from services.scheduler.config import MetricsOption
from services.scheduler.decision_settings import DecisionSettings
from services.scheduler.policy.states.usage import NodeUsage, UsageTable
from services.scheduler.scheduler_state import Measurements, SchedulerState
from shared.runtime.metrics import Metrics
from tests.support.env import env_of_a_test
from tests.support.wait import until

CPU = {"a": "12.5", "b": "80", "c": "NaN"}
MEMORY = {"a": "50", "b": "70", "c": "1", "d": "3"}


class Server:
    """Answers as `reply` says; remembers what it was asked."""

    def __init__(self, reply: Callable[[web.Request, dict | None], web.StreamResponse]) -> None:
        self.reply = reply
        self.asked: list[web.Request] = []
        self.address = ""

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        body = await request.json() if request.can_read_body else None
        return self.reply(request, body)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Server"]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield self
        finally:
            await runner.cleanup()


class Polled:
    """A source that polls a server."""

    def __init__(self, **option) -> None:
        self.option = MetricsOption(**option)
        self.store = UsageStore()
        self.metrics = Metrics()
        self.source = UsageSource(
            lambda: self.option, self.store, env_of_a_test(metrics=self.metrics)
        )

    def shown(self, name: str) -> float:
        return self.metrics.registry.get_sample_value(name) or 0.0


@asynccontextmanager
async def polling(polled: Polled) -> AsyncIterator[Polled]:
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(polled.source.run())
        try:
            yield polled
        finally:
            task.cancel()


def vector(values: dict[str, str]) -> web.Response:
    result = [{"metric": {"instance": node}, "value": [1.0, v]} for node, v in values.items()]
    data = {"resultType": "vector", "result": result}
    return web.json_response({"status": "success", "data": data})


def prometheus(request: web.Request, _: object) -> web.Response:
    assert request.path == "/api/v1/query"
    query = request.query["query"]
    assert "[10m:30s]" in query
    return vector(CPU if "node_cpu_seconds_total" in query else MEMORY)


def adapter(request: web.Request, _: object) -> web.Response:
    prefix, _, metric = request.path.rpartition("/")
    assert prefix == "/apis/custom.metrics.k8s.io/v1beta2/nodes/*"
    value = {"node_cpu_usage_avg": "125m", "node_memory_usage_avg": "0.5"}[metric]
    item = {"describedObject": {"kind": "Node", "name": "a"}, "value": value}
    return web.json_response({"items": [item | {"timestamp": "2026-01-01T00:00:00Z"}]})


def elasticsearch(request: web.Request, body: dict | None) -> web.Response:
    assert (request.method, request.path) == ("POST", "/hosts-*/_search")
    assert request.headers["Authorization"] == encode_basic_auth("me", "secret")
    assert body["query"]["range"]["@timestamp"]["gte"] == "now-10m"
    terms = body["aggs"]["nodes"]
    assert terms["terms"]["field"] == "host.hostname"
    assert terms["aggs"]["mem"]["avg"]["field"] == "system.memory.actual.used.pct"
    buckets = [
        {"key": "a", "cpu": {"value": 0.125}, "mem": {"value": 0.5}},
        {"key": "b", "cpu": {"value": None}, "mem": {"value": 0.5}},
    ]
    return web.json_response({"aggregations": {"nodes": {"buckets": buckets}}})


@pytest.mark.parametrize(
    ("reply", "option", "expected"),
    [
        (prometheus, {"type": "prometheus"}, {"a": (12.5, 50.0), "b": (80.0, 70.0)}),
        (adapter, {"type": "prometheus_adaptor"}, {"a": (12.5, 50.0)}),
        (
            elasticsearch,
            {
                "type": "elasticsearch",
                "index": "hosts-*",
                "username": "me",
                "password": "secret",
            },
            {"a": (12.5, 50.0)},
        ),
    ],
    ids=["prometheus", "adaptor", "elasticsearch"],
)
async def test_a_source_tells_the_load_of_nodes(reply, option, expected):
    """K03, CA13."""
    async with (
        Server(reply).serving() as server,
        polling(Polled(address=server.address, **option)) as polled,
    ):
        samples = await until(polled.store.latest, describe=lambda: f"{server.asked}")
    assert {node: (s.cpu_percent, s.memory_percent) for node, s in samples.items()} == expected
    assert polled.shown("pumice_scheduler_usage_nodes") == len(expected)


def scripted(request: web.Request, _: object) -> web.Response:
    return web.Response(status=503, text="overloaded")


BAD = {
    "refused": (scripted, "HTTP 503: overloaded"),
    "no json": (lambda *_: web.Response(text="<html>"), "the reply cannot be read"),
    "query error": (
        lambda *_: web.json_response({"status": "error", "error": "bad query"}),
        "the query failed: bad query",
    ),
    "no vector": (
        lambda *_: web.json_response(
            {"status": "success", "data": {"resultType": "scalar", "result": [1, "2"]}}
        ),
        "a vector was expected, got a scalar",
    ),
    "no number": (lambda *_: vector({"a": "many"}), "'many' is no number"),
}


@pytest.mark.parametrize("fault", BAD)
async def test_a_source_that_fails_is_told_once_counted_and_its_last_word_stays(fault):
    reply, reason = BAD[fault]
    with structlog.testing.capture_logs() as said:
        async with Server(prometheus).serving() as server:
            option = {"type": "prometheus", "address": server.address, "interval_s": 0.05}
            async with polling(Polled(**option)) as polled:
                before = await until(polled.store.latest)
                server.reply = reply
                failures = "pumice_scheduler_usage_failures_total"
                await until(lambda: polled.shown(failures) >= 2)
                assert (polled.store.latest() or {}).keys() == before.keys()
                server.reply = prometheus
                await until(lambda: [e for e in said if e["event"] == "usage_source_recovered"])
    (failed,) = [entry for entry in said if entry["event"] == "usage_source_failed"]
    assert reason in failed["reason"]
    assert failed["address"] == server.address


async def test_nobody_listening_is_a_failure_like_any_other():
    with structlog.testing.capture_logs() as said:
        option = {"type": "prometheus", "address": "http://127.0.0.1:1", "interval_s": 60}
        async with polling(Polled(**option)):
            (failed,) = await until(lambda: list(said))
    assert failed["event"] == "usage_source_failed"


async def test_the_configuration_may_name_another_source_or_none_at_any_time():
    async with Server(prometheus).serving() as server, polling(Polled()) as polled:
        polled.option = MetricsOption(type="prometheus", address=server.address, interval_s=600)
        assert await until(polled.store.latest)
        polled.option = MetricsOption()
        assert await until(lambda: polled.store.latest() == {})


async def test_what_a_source_says_reaches_the_replica_with_the_next_fold():
    samples = {"n1": NodeUsage(90.0, 10.0, 5.0)}
    scheduler = SchedulerState(
        DecisionSettings(), gang_message=1, settle_s=0.0, measured=Measurements(lambda: samples)
    )
    scheduler.fold([])
    scheduler.forget()
    scheduler.fold([])
    assert scheduler.audit() == []
    assert scheduler._cluster_state.store(UsageTable).dump() == samples
