"""Accounting sums what the budgets of the scheduler's configuration need, and nothing without."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy.ext.asyncio import AsyncEngine

from services.accounting.adapters.budget_periods import BudgetPeriods
from services.accounting.adapters.database import engine_of
from services.accounting.adapters.store import AccountingDatabase, StreamPosition
from services.accounting.books.ledger import RowChanges
from services.accounting.books.rows import Allocation, usage_of
from shared.runtime.values import Secret

NOW = datetime(2026, 11, 10, 12, tzinfo=UTC).timestamp()
MONTH = datetime(2026, 11, 1, tzinfo=UTC).timestamp()
YESTERDAY = datetime(2026, 11, 9, tzinfo=UTC).timestamp()
HOUR = 3600.0
CONF = """
actions: allocate
tiers:
- plugins: [{name: gang}]
- plugins:
  - name: budgets
    arguments:
      budgets: [{name: b, period: month, hours: {cpu: 10}}]
"""


class Log:
    """Keeps warnings."""

    def __init__(self) -> None:
        self.warnings: list[tuple[str, str]] = []

    def warning(self, event: str, *, reason: str, file: str) -> None:
        del file
        self.warnings.append((event, reason))


def summing(engine: AsyncEngine, conf: Path | None, log: Any = None) -> BudgetPeriods:
    return BudgetPeriods(engine, "" if conf is None else str(conf), log or Log())


def allocation(
    number: int, user: str, begin: float, end: float | None, **more: object
) -> Allocation:
    return Allocation(
        pod_uid=f"u{number}", pod="p", namespace="ns", queue="research", user=user,
        cpu_milli=2000, memory_bytes=1, started=begin, ended=end, **more,
    )  # fmt: skip


@pytest_asyncio.fixture
async def engine(tmp_path: Path) -> AsyncIterator[AsyncEngine]:
    engine = engine_of(f"sqlite:///{tmp_path}/usage.db", Secret())
    store = AccountingDatabase(engine)
    await store.migrate()
    rows = [
        allocation(0, "ann", MONTH - 2 * HOUR, MONTH + 3 * HOUR),
        allocation(1, "ann", YESTERDAY, None),
        allocation(2, "", NOW - HOUR, None, scalars={"nvidia.com/gpu": 1000}),
    ]
    usage: dict = {}
    for row in rows:
        for key, amount in usage_of(row):
            usage[key] = usage.get(key, 0.0) + amount
    changes = RowChanges(allocations=rows, jobs=[], usage=usage)
    await store.write(changes, StreamPosition(stream="EVENTS"))
    yield engine
    await engine.dispose()


async def test_sums_are_since_the_begin_of_each_period_and_of_yesterday(
    engine: AsyncEngine, tmp_path: Path
) -> None:
    conf = tmp_path / "scheduler.conf"
    conf.write_text(CONF)
    sums = await summing(engine, conf).at(NOW)
    month, lately = sums.of("research")
    assert (month.begin, lately.begin) == (MONTH, YESTERDAY)
    assert month.users == {
        "ann": {"ns": {"cpu": pytest.approx(2 * (3 + 36))}},
        "": {"ns": {"cpu": pytest.approx(2)}},
    }
    assert lately.users["ann"]["ns"]["cpu"] == pytest.approx(2 * 36)
    assert [period.users for period in sums.of("unused")] == [{}, {}]


@pytest.mark.parametrize(
    "text", ["", "actions: allocate\n", "tiers: [{plugins: [{name: gang}]}]\n"]
)
async def test_without_budgets_nothing_is_summed(
    engine: AsyncEngine, tmp_path: Path, text: str
) -> None:
    conf = tmp_path / "scheduler.conf"
    conf.write_text(text)
    assert (await summing(engine, conf).at(NOW)).of("research") == ()
    assert (await summing(engine, None).at(NOW)).of("research") == ()


async def test_a_file_that_cannot_be_read_leaves_the_last_budgets_and_says_so_once(
    engine: AsyncEngine, tmp_path: Path
) -> None:
    conf = tmp_path / "scheduler.conf"
    conf.write_text(CONF)
    log = Log()
    periods = summing(engine, conf, log)
    await periods.at(NOW)
    conf.write_text(CONF.replace("month", "year"))
    for _ in range(2):
        assert len((await periods.at(NOW)).of("research")) == 2
    ((event, reason),) = log.warnings
    assert event == "budgets_unreadable"
    assert "period" in reason
