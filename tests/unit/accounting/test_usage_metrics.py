"""The usage of a month as metrics."""

import asyncio

import pytest

from services.accounting.adapters import usage_metrics
from services.accounting.adapters.database import engine_of
from services.accounting.adapters.reports import UsageReports
from services.accounting.adapters.store import AccountingDatabase, StreamPosition
from services.accounting.adapters.usage_metrics import OTHERS, UsageMetrics
from services.accounting.books.ledger import RowChanges
from services.accounting.books.rows import Allocation
from shared.api.time import parse
from shared.runtime.values import Secret
from tests.support.clock import VirtualClock
from tests.support.env import env_of_a_test

BEGIN = parse("2026-11-01T00:00:00Z")
NOW = BEGIN + 7200


@pytest.fixture
async def of(tmp_path):
    """Return the metrics of a database, and what they show."""
    engine = engine_of(f"sqlite:///{tmp_path}/usage.db", Secret())
    store = AccountingDatabase(engine)
    await store.migrate()
    rows = [
        Allocation(
            pod_uid=user, pod=user, namespace="ns", queue=queue, user=user, cpu_milli=cpu,
            started=BEGIN - 3600,
        )
        for user, queue, cpu in (
            ("ann", "research", 2000), ("bob", "research", 1000), ("cy", "dev", 500)
        )
    ]  # fmt: skip
    changes = RowChanges(allocations=rows, jobs=[], usage={})
    await store.write(changes, StreamPosition(stream="EVENTS"))
    clock, ready = VirtualClock(NOW), asyncio.Event()
    env = env_of_a_test(clock=clock)
    ready.set()

    def made(*by: str) -> UsageMetrics:
        reports = UsageReports(engine, clock=clock)
        return UsageMetrics(reports, by=by, is_complete=ready, env=env)

    yield made, env.metrics
    await engine.dispose()


async def test_usage_counts_from_the_begin_of_the_month_by_queue(of):
    made, metrics = of
    found = made("queue")
    sums = await found.sums()
    assert {key: hours for key, hours in sums.items() if key[2] == "cpu"} == {
        ("research", "", "cpu"): 6.0,
        ("dev", "", "cpu"): 1.0,
    }
    await found.update()
    line = 'pumice_accounting_month_usage_hours{queue="dev",resource="cpu",user=""} 1.0'
    assert line in metrics.render().decode().splitlines()


async def test_users_are_named_only_where_they_are_chosen(of):
    made, _ = of
    sums = await made("queue", "user").sums()
    assert sums["research", "ann", "cpu"] == 4.0
    assert sums["research", "bob", "cpu"] == 2.0


async def test_the_number_of_series_is_bounded(of, monkeypatch):
    made, _ = of
    monkeypatch.setattr(usage_metrics, "SERIES_MAX", 2)
    sums = await made("queue", "user").sums()
    assert sums == {
        ("research", "ann", "cpu"): 4.0,
        ("dev", "cy", "pods"): 2.0,
        (OTHERS, "", "cpu"): 3.0,
        (OTHERS, "", "pods"): 4.0,
    }
