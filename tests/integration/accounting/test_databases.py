"""The same rows and sums in SQLite and in PostgreSQL."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from services.accounting.adapters.database import engine_of
from services.accounting.adapters.reports import UsageReports, UsageSum
from services.accounting.adapters.store import AccountingDatabase, Gap, StreamPosition
from services.accounting.books.ledger import RowChanges
from services.accounting.books.rows import Allocation, JobRow, usage_of
from shared.runtime.values import Secret
from tests.integration.accounting.postgres import postgres, programs
from tests.support.wait import until

DAY = 86_400.0
T = 100 * DAY
AT = StreamPosition(stream="EVENTS", created="then", sequence=7, time=T)
JOB = JobRow(uid="j", namespace="ns", name="train", kind="Job", submitted=T, waits={"quota": 2.5})


def allocation(name: str, **fields) -> Allocation:
    given = {"pod_uid": name, "pod": name, "namespace": "ns", "started": T, "cpu_milli": 2000}
    return Allocation(**{**given, "queue": "research", "user": "ann", **fields})


def changes(*rows: Allocation) -> RowChanges:
    usage: dict = {}
    for row in rows:
        for key, amount in usage_of(row):
            usage[key] = usage.get(key, 0.0) + amount
    return RowChanges(allocations=list(rows), jobs=[JOB], usage=usage)


@pytest_asyncio.fixture(params=["sqlite", "postgresql"])
async def engine(request, tmp_path) -> AsyncIterator[AsyncEngine]:
    if request.param == "sqlite":
        engine = engine_of(f"sqlite:///{tmp_path}/usage.db", Secret())
        yield engine
        await engine.dispose()
        return
    if (folder := programs()) is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    async with postgres(folder) as url:
        engine = engine_of(url, Secret())
        yield engine
        await engine.dispose()


@pytest_asyncio.fixture
async def store(engine: AsyncEngine) -> AccountingDatabase:
    store = AccountingDatabase(engine)

    async def migrated() -> bool:
        await store.migrate()
        return True

    await until(migrated, describe="the database takes connections")
    return store


async def test_rows_are_read_as_they_were_written(store):
    open_row = allocation("open", scalars={"nvidia.com/gpu": 4000})
    await store.write(changes(open_row, allocation("done", ended=T + 60)), AT)
    assert await store.open_rows() == ([open_row], [JOB])
    assert await store.position("EVENTS") == AT
    assert await store.rows(["open", "none"], ["j"]) == ([open_row], [JOB])


async def test_a_row_that_is_written_again_is_replaced(store):
    await store.write(changes(allocation("a")), AT)
    done = allocation("a", ended=T + 5, reason="Completed")
    await store.write(changes(done), AT)
    assert (await store.rows(["a"], [])) == ([done], [])


async def test_nothing_is_written_of_a_transaction_that_fails(store):
    broken = Gap(stream="EVENTS", begin=T, end=None, reason="")  # type: ignore[arg-type]
    with pytest.raises(DBAPIError):
        await store.write(changes(allocation("a", ended=T + 60)), AT, [broken])
    assert await store.rows(["a"], ["j"]) == ([], [])
    assert (await store.position("EVENTS")).sequence == 0


async def test_usage_is_summed_by_group_and_contains_what_still_runs(store, engine):
    ended = allocation("a", ended=T + DAY + 3600)
    other = allocation("b", user="bob", ended=T + 3600)
    running = [
        allocation("c", started=T + DAY),
        allocation("d", user="cy", started=T - DAY, cpu_milli=0, scalars={"nvidia.com/gpu": 4000}),
    ]
    await store.write(changes(ended, other, *running), AT)
    found = await UsageReports(engine).usage(["user"], since_s=T, until_s=T + DAY + 7200)
    assert found == [
        UsageSum(group=("ann",), resource="cpu", amount_hours=54.0),
        UsageSum(group=("ann",), resource="pods", amount_hours=27.0),
        UsageSum(group=("bob",), resource="cpu", amount_hours=2.0),
        UsageSum(group=("bob",), resource="pods", amount_hours=1.0),
        UsageSum(group=("cy",), resource="nvidia.com/gpu", amount_hours=4 * 26.0),
        UsageSum(group=("cy",), resource="pods", amount_hours=26.0),
    ]
    with pytest.raises(ValueError, match="summed by queue"):
        await UsageReports(engine).usage(["node"], since_s=T, until_s=T)
