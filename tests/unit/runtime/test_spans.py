"""Spans: off without a collector, and of one cause in one trace whichever service takes them."""

import asyncio
import sys

import pytest

from shared.api.scheduling import podgroup_of
from shared.runtime.clock import SystemClock
from shared.runtime.service import _spans
from shared.runtime.spans import NO_SPANS, are_enabled, root_id, trace_id
from tests.support.collector import Collector

CAUSE = "ns/train-u1"


@pytest.mark.parametrize(
    ("environ", "asked"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "true"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, False),
    ],
)
def test_spans_are_off_unless_the_environment_names_a_collector(environ, asked):
    assert are_enabled(environ) is asked


def test_a_service_without_a_collector_imports_nothing_of_opentelemetry(monkeypatch):
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    monkeypatch.delitem(sys.modules, "shared.runtime.otlp", raising=False)
    spans, parts = _spans("binder", "binder-1", "local", clock=SystemClock(), log=None)
    assert (spans, parts) == (NO_SPANS, [])
    assert "shared.runtime.otlp" not in sys.modules


def test_ids_follow_from_cluster_and_cause_alone():
    assert trace_id("local", CAUSE) == trace_id("local", CAUSE)
    assert 0 < trace_id("local", CAUSE) < 2**128
    assert 0 < root_id("local", CAUSE) < 2**64
    others = [("other", CAUSE), ("local", "ns/train-u2")]
    assert trace_id("local", CAUSE) not in {trace_id(*other) for other in others}
    assert podgroup_of("ns/train", "u1") == CAUSE


class Log:
    """Keeps the warnings of a service."""

    def __init__(self):
        self.lines = []

    def warning(self, event, **fields):
        self.lines.append((event, fields))


async def sent_by(monkeypatch, url, take):
    """Run the spans of a process, let `take` have them, and end it."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
    log = Log()
    clock = SystemClock()
    spans, (part,) = _spans("binder", "binder-1", "local", clock=clock, log=log)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(part.run())
        await asyncio.sleep(0)
        take(spans, clock.now())
        running.cancel()
    return log


async def test_spans_of_a_cause_are_below_its_root_and_sent_when_the_process_ends(monkeypatch):
    async with Collector() as collector:

        def take(spans, now):
            spans.add(CAUSE, "bind", begun=now - 1.0, bound=3)
            spans.add_root(CAUSE, "job", begun=now - 5.0)
            spans.add("ns/other-u2", "bind", begun=now)

        await sent_by(monkeypatch, collector.url, take)
        bind, job = sorted(collector.of(trace_id("local", CAUSE)), key=lambda span: span.name)
        assert (bind.name, job.name) == ("bind", "job")
        assert (bind.parent, job.id, job.parent) == (job.id, root_id("local", CAUSE), 0)
        assert bind.service == "pumice-binder"
        assert bind.facts == {"pumice.bound": 3, "pumice.cause": CAUSE}
        assert 0.9 < bind.seconds < 2.0
        assert len(collector.spans) == 3


async def test_a_collector_that_is_away_costs_a_line_in_the_log(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    log = await sent_by(
        monkeypatch, "http://127.0.0.1:1", lambda spans, now: spans.add(CAUSE, "bind", begun=now)
    )
    assert {event for event, _ in log.lines} <= {"spans_not_sent"}
