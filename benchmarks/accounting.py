"""Accounting's database: rows per second, and the time of a report of a month.

`python -m benchmarks.accounting [--rows N] [--database URL]`. The rows are written as the service
writes them, in transactions of 500; SQLite makes each durable before the next.
"""

import argparse
import asyncio
import random
import tempfile
import time
from pathlib import Path

from services.accounting.adapters.database import engine_of
from services.accounting.adapters.reports import UsageReports
from services.accounting.adapters.store import AccountingDatabase, StreamPosition
from services.accounting.books.ledger import RowChanges
from services.accounting.books.rows import DAY_S, Allocation, usage_of
from shared.api.time import format_seconds
from shared.api.usage_reports import UsageReportSpec
from shared.runtime.clock import SystemClock
from shared.runtime.values import Secret

BATCH = 500
MONTH_DAYS = 31
QUEUES, NAMESPACES, USERS = 20, 50, 200
RUNNING = 20_000
"""Allocations that did not end, which a report adds one by one."""


def allocation(number: int, drawn: random.Random, *, ends: bool) -> Allocation:
    started = drawn.random() * (MONTH_DAYS - 1) * DAY_S
    user = drawn.randrange(USERS)
    return Allocation(
        pod_uid=f"00000000-0000-0000-0000-{number:012d}",
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


def changes(rows: list[Allocation]) -> RowChanges:
    usage: dict = {}
    for row in rows:
        for key, amount in usage_of(row):
            usage[key] = usage.get(key, 0.0) + amount
    return RowChanges(allocations=rows, jobs=[], usage=usage)


async def measure(url: str, rows: int) -> None:
    engine, drawn = engine_of(url, Secret()), random.Random(1)
    store, reports = AccountingDatabase(engine), UsageReports(engine, clock=SystemClock())
    await store.migrate()
    begun = time.perf_counter()
    for first in range(0, rows, BATCH):
        batch = [
            allocation(number, drawn, ends=number >= RUNNING)
            for number in range(first, min(first + BATCH, rows))
        ]
        await store.write(changes(batch), StreamPosition(stream="EVENTS", sequence=first))
    took_s = time.perf_counter() - begun
    print(f"{rows:,} rows in {took_s:.1f} s: {rows / took_s:,.0f} rows/s")
    for by in (("queue",), ("user",), ("queue", "user", "namespace"), ("day", "queue")):
        begun = time.perf_counter()
        spec = UsageReportSpec(
            report="usage",
            by=by,
            since=format_seconds(0.0),
            until=format_seconds(MONTH_DAYS * DAY_S),
        )
        found = (await reports.report(spec)).rows
        took_s = time.perf_counter() - begun
        print(f"usage of a month by {', '.join(by)}: {len(found):,} lines in {took_s:.2f} s")
    await engine.dispose()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--database", default="", help="URL; without it SQLite in a new folder")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = args.database or f"sqlite:///{Path(folder) / 'usage.db'}"
        asyncio.run(measure(url, args.rows))


if __name__ == "__main__":
    main()
