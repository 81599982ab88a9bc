"""Reads sums of usage for a period: whole days from the daily sums, the rest from allocations."""

from collections.abc import Sequence
from typing import Final

import msgspec
from sqlalchemy import String, case, cast, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.sql.functions import sum as sum_of

from services.accounting.books.rows import DAY_S, amounts_of, in_units
from services.accounting.schema import ALLOCATIONS, USAGE_DAYS
from shared.model.resources import PODS

GROUPS: Final = ("queue", "user", "namespace")
"""What usage can be summed by."""


class UsageSum(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of one group in a period."""

    group: tuple[str, ...]
    """Values of the columns `by`, in their order."""
    resource: str
    amount_hours: float
    """CPU in cores, memory in bytes, others in units; each times hours."""


class UsageReports:
    """Sums of usage from one database."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def usage(self, by: Sequence[str], *, since_s: float, until_s: float) -> list[UsageSum]:
        """Return the usage between two Unix times, `since_s` rounded down to a day (UTC).

        Raises ValueError for a column that is not in `GROUPS`.
        """
        if not set(by) <= set(GROUPS):
            raise ValueError(f"usage can be summed by {', '.join(GROUPS)}")
        first_day, last_day = int(since_s // DAY_S), int(until_s // DAY_S)
        begin_s = first_day * DAY_S
        sums: dict[tuple[str, ...], float] = {}
        async with self._engine.connect() as connection:
            await _add_days(connection, sums, by, first_day, last_day)
            await _add_open(connection, sums, by, float(begin_s), until_s)
        return [
            UsageSum(
                group=key[:-1], resource=key[-1], amount_hours=in_units(key[-1], amount) / 3600
            )
            for key, amount in sorted(sums.items())
        ]


async def _add_days(
    connection: AsyncConnection,
    sums: dict[tuple[str, ...], float],
    by: Sequence[str],
    first_day: int,
    last_day: int,
) -> None:
    columns = [USAGE_DAYS.c[name] for name in (*by, "resource")]
    found = await connection.execute(
        select(*columns, sum_of(USAGE_DAYS.c.amount_seconds))
        .where(USAGE_DAYS.c.day.between(first_day, last_day))
        .group_by(*columns)
    )
    for *key, amount in found:
        sums[tuple(key)] = float(amount)


async def _add_open(
    connection: AsyncConnection,
    sums: dict[tuple[str, ...], float],
    by: Sequence[str],
    since_s: float,
    until_s: float,
) -> None:
    """Add what still uses resources, up to `until_s`; the database sums pods with equal amounts."""
    row = ALLOCATIONS.c
    begin = case((row.started > since_s, row.started), else_=since_s)
    alike = [
        *(row[name] for name in by),
        row.cpu_milli,
        row.memory_bytes,
        cast(row.scalars, String),
    ]
    found = await connection.execute(
        select(*alike, sum_of(until_s - begin))
        .where(row.ended.is_(None), row.started < until_s)
        .group_by(*alike)
    )
    for *group, cpu_milli, memory_bytes, scalars, seconds in found:
        others = msgspec.json.decode(scalars)
        for resource, amount in ((PODS, 1000), *amounts_of(cpu_milli, memory_bytes, others)):
            key = (*group, resource)
            sums[key] = sums.get(key, 0.0) + amount * seconds
