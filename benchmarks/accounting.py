"""Accounting's database: rows per second, and the time of a report of a month.

`python -m benchmarks.accounting [--rows N] [--copies N] [--database URL]`. The rows are written as
the service writes them, in transactions of 500; SQLite makes each durable before the next. With
copies, the database fills them by itself, and the rate is measured again with what it holds then.
"""

import argparse
import asyncio
import random
import tempfile
import time
import uuid
from pathlib import Path

from sqlalchemy import text, update
from sqlalchemy.ext.asyncio import AsyncEngine

from services.accounting.adapters.database import engine_of
from services.accounting.adapters.past_usage import SETTLED_S, UsageSums
from services.accounting.adapters.reports import UsageReports
from services.accounting.adapters.store import AccountingDatabase, StreamPosition
from services.accounting.books.ledger import RowChanges
from services.accounting.books.rows import DAY_S, Allocation, JobRow, usage_of
from services.accounting.schema import ALLOCATIONS, JOBS, USAGE_DAYS
from shared.api.time import format_seconds
from shared.api.usage_reports import UsageReportSpec
from shared.runtime.clock import SystemClock
from shared.runtime.errors import Rejected
from shared.runtime.values import Secret

BATCH = 500
MONTH_DAYS = 31
QUEUES, NAMESPACES, USERS = 20, 50, 200
RUNNING = 20_000
"""Allocations that did not end, which a report adds one by one."""


REPORTS = (
    ("usage", ("queue",)),
    ("usage", ("user",)),
    ("usage", ("queue", "user", "namespace")),
    ("usage", ("day", "queue")),
    ("jobs", ("queue",)),
    ("waits", ("queue",)),
    ("efficiency", ("queue",)),
)
AGAIN = 100_000
"""Rows that are written to the filled database."""


def allocation(number: int, drawn: random.Random, *, ends: bool) -> Allocation:
    started = drawn.random() * (MONTH_DAYS - 1) * DAY_S
    user = drawn.randrange(USERS)
    return Allocation(
        pod_uid=_uid(drawn),
        pod=f"train-worker-{number}",
        namespace=f"team-{user % NAMESPACES}",
        job=f"train-{number // 8}",
        job_uid=f"job-{number // 8:012d}",
        queue=f"queue-{user % QUEUES}",
        user=f"user-{user}",
        node=f"node-{number % 5000}",
        cpu_milli=4000,
        memory_bytes=16 << 30,
        scalars={"nvidia.com/gpu": 1000},
        started=started,
        ended=started + drawn.random() * 8 * 3600 if ends else None,
    )


def _uid(drawn: random.Random) -> str:
    return str(uuid.UUID(int=drawn.getrandbits(128)))


def job_of(first: Allocation, drawn: random.Random) -> JobRow:
    """Return the job of an allocation, which waited for up to an hour."""
    waited = drawn.random() * 3600
    return JobRow(
        uid=_uid(drawn),
        namespace=first.namespace,
        name=first.job,
        kind="Job",
        queue=first.queue,
        user=first.user,
        submitted=first.started - waited,
        admitted=first.started - waited / 2,
        started=first.started,
        ended=first.ended,
        phase="Running" if first.ended is None else "Completed",
        min_member=8,
        requested={"cpu": 32_000, "nvidia.com/gpu": 8_000},
        waits={"admission": waited / 2, "placement": waited / 2},
    )


def changes(rows: list[Allocation], drawn: random.Random) -> RowChanges:
    usage: dict = {}
    for row in rows:
        for key, amount in usage_of(row):
            usage[key] = usage.get(key, 0.0) + amount
    jobs = [job_of(row, drawn) for row in rows[::8]]
    return RowChanges(allocations=rows, jobs=jobs, usage=usage)


async def write(store: AccountingDatabase, numbers: range, drawn: random.Random) -> None:
    begun = time.perf_counter()
    for first in range(numbers.start, numbers.stop, BATCH):
        batch = [
            allocation(number, drawn, ends=number >= RUNNING)
            for number in range(first, min(first + BATCH, numbers.stop))
        ]
        position = StreamPosition(stream="EVENTS", sequence=first)
        await store.write(changes(batch, drawn), position)
    took_s = time.perf_counter() - begun
    print(f"{len(numbers):,} rows in {took_s:.1f} s: {len(numbers) / took_s:,.0f} rows/s")


async def copy(engine: AsyncEngine, copies: int) -> None:
    """Add copies of all rows that ended, and their part of the daily sums; of SQLite only.

    Uids of copies ascend, so that they are added quickly, and are spread over all uids, so that a
    random one belongs anywhere between them.
    """
    begun = time.perf_counter()
    for table, key in ((ALLOCATIONS, "pod_uid"), (JOBS, "uid")):
        columns = [f'"{each.name}"' for each in table.c if each.name != key]
        place = f"{2**32 - 1}.0 * (:number * :rows + place) / (:copies * :rows)"
        add = (
            f"insert into {table} ({key}, {', '.join(columns)}) select "
            f"printf('%08x-copy', cast({place} as integer)), {', '.join(columns)} from base"
        )
        async with engine.begin() as connection:
            for index in table.indexes:
                await connection.run_sync(index.drop)
            await connection.execute(
                text(
                    "create temporary table base as select *, row_number() over () - 1 as place "
                    f"from {table} where ended is not null"
                )
            )
            rows = (await connection.execute(text("select count(*) from base"))).scalar_one()
        for number in range(copies):
            async with engine.begin() as connection:
                given = {"number": number, "copies": copies, "rows": rows}
                await connection.execute(text(add), given)
        async with engine.begin() as connection:
            await connection.execute(text("drop table base"))
            for index in table.indexes:
                await connection.run_sync(index.create)
    async with engine.begin() as connection:
        amount = USAGE_DAYS.c.amount_seconds
        await connection.execute(update(USAGE_DAYS).values(amount_seconds=amount * (copies + 1)))
        held = (await connection.execute(text("select count(*) from allocations"))).scalar_one()
    print(f"filled to {held:,} allocations in {time.perf_counter() - begun:.0f} s")


async def read(engine: AsyncEngine) -> None:
    """Time the reports of a month, and what is published each minute."""
    reports, month_s = UsageReports(engine, clock=SystemClock()), MONTH_DAYS * DAY_S
    since, until = format_seconds(0.0), format_seconds(month_s)
    for report, by in REPORTS:
        spec = UsageReportSpec(report=report, by=by, since=since, until=until)
        begun = time.perf_counter()
        try:
            result = f"{len((await reports.report(spec)).rows):,} rows"
        except Rejected as error:
            result = str(error)
        took_s = time.perf_counter() - begun
        print(f"{report} of a month by {', '.join(by)}: {result} in {took_s:.2f} s")
    sums = UsageSums(engine, 7 * DAY_S)
    for name, at in (("after a start", month_s + SETTLED_S), ("then", month_s + SETTLED_S + 60)):
        begun = time.perf_counter()
        await sums.at(at)
        print(f"decayed usage {name}: {time.perf_counter() - begun:.2f} s")


async def measure(url: str, rows: int, copies: int) -> None:
    engine, drawn = engine_of(url, Secret()), random.Random(1)
    store = AccountingDatabase(engine)
    await store.migrate()
    await write(store, range(rows), drawn)
    if copies:
        await copy(engine, copies)
        await write(store, range(rows, rows + AGAIN), drawn)
    await read(engine)
    await engine.dispose()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--copies", type=int, default=0, help="of these rows, before the reports")
    parser.add_argument("--database", default="", help="URL; without it SQLite in a new folder")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = args.database or f"sqlite:///{Path(folder) / 'usage.db'}"
        asyncio.run(measure(url, args.rows, args.copies))


if __name__ == "__main__":
    main()
