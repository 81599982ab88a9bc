"""Computes usage reports from the database.

Usage of whole days comes from the daily sums and from the allocations that did not end, so that
its time depends on groups and running pods. The other reports read the rows of their period.
"""

import datetime as dt
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Select, String, Table, case, cast, func, literal, select, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.accounting.adapters import report_query
from services.accounting.adapters.recorded_jobs import recorded_jobs
from services.accounting.adapters.report_query import ReportQuery
from services.accounting.books.rows import DAY_S, EndReason, amounts_of, in_units
from services.accounting.schema import ALLOCATIONS, GAPS, JOBS, USAGE_DAYS
from shared.api import usage_reports as reports
from shared.api.time import format_seconds
from shared.api.usage_reports import RecordGap, ReportRow, UsageReportSpec, UsageReportStatus
from shared.model.resources import PODS
from shared.runtime.clock import Clock
from shared.runtime.errors import Rejected, Retryable

GROUPS_MAX: Final = 100_000
"""Most sums of one report."""
JOBS_MAX: Final = 500_000
"""Most jobs of one report on waits."""
QUERY_S: Final = 30.0
"""Longest time in the database."""
_GAPS_MAX: Final = 20
_STEPS: Final = 100_000
"""Instructions of SQLite's virtual machine between two looks at the clock."""

_Group = tuple[str, ...]
_Sums = Mapping[_Group, Mapping[str, float]]
"""Values of `by`, and of `resource` where the report has it → column → number."""


class UsageReports:
    """Reports from one database."""

    def __init__(self, engine: AsyncEngine, *, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    async def report(self, spec: UsageReportSpec) -> UsageReportStatus:
        """Return the result of a query.

        Raises Rejected, with the field, for an invalid query or one that takes too long; Retryable
        if the database cannot be used.
        """
        query = report_query.read(spec, self._clock.now())
        deadline = self._clock.monotonic() + QUERY_S
        try:
            async with self._connection(deadline) as connection:
                return await _status(connection, query)
        except SQLAlchemyError as error:
            if self._clock.monotonic() >= deadline:
                why = f"the report takes longer than {QUERY_S:.0f} s; choose a shorter time"
                raise Rejected(why, field="spec.since") from error
            reason = str(error).partition("\n")[0]
            raise Retryable(f"the database cannot be used: {reason}") from error

    @asynccontextmanager
    async def _connection(self, deadline: float) -> AsyncIterator[AsyncConnection]:
        """Open a connection whose statements end at a monotonic time."""
        async with self._engine.connect() as connection:
            if connection.dialect.name == "postgresql":
                limit = f"set local statement_timeout = {int(QUERY_S * 1000)}"
                await connection.execute(text(limit))
                yield connection
                return
            pooled = await connection.get_raw_connection()
            driver: Any = pooled.driver_connection
            await driver.set_progress_handler(lambda: self._clock.monotonic() >= deadline, _STEPS)
            try:
                yield connection
            finally:
                await driver.set_progress_handler(None, 0)


async def _status(connection: AsyncConnection, query: ReportQuery) -> UsageReportStatus:
    spec = query.spec
    status = UsageReportStatus(
        since=format_seconds(query.since_s),
        until=format_seconds(query.until_s),
        user=spec.user,
        gaps=await _gaps(connection, query),
    )
    if spec.report == reports.HISTORY:
        jobs, following = await recorded_jobs(connection, query)
        return msgspec.structs.replace(status, jobs=tuple(jobs), next=following)
    sums = await _REPORTS[spec.report](connection, query)
    has_resource = spec.report in (reports.USAGE, reports.EFFICIENCY)
    names = (*spec.by, "resource") if has_resource else spec.by
    keys = [key for key in sorted(sums) if not query.after or key > query.after]
    rows = tuple(
        ReportRow(group=dict(zip(names, key, strict=True)), values=dict(sums[key]))
        for key in keys[: spec.limit]
    )
    following = report_query.mark(keys[spec.limit - 1]) if len(keys) > spec.limit else ""
    return msgspec.structs.replace(status, rows=rows, next=following)


async def _gaps(connection: AsyncConnection, query: ReportQuery) -> tuple[RecordGap, ...]:
    gaps = GAPS.c
    is_within = (gaps.begin < query.until_s) & (gaps.end > query.since_s)
    found = select(gaps.begin, gaps.end, gaps.reason).where(is_within).order_by(gaps.begin)
    return tuple(
        RecordGap(begin=format_seconds(begin), end=format_seconds(end), reason=reason)
        for begin, end, reason in await connection.execute(found.limit(_GAPS_MAX))
    )


async def _usage(connection: AsyncConnection, query: ReportQuery) -> _Sums:
    days = USAGE_DAYS.c
    columns = [days[name] for name in (*query.spec.by, "resource")]
    is_within = days.day.between(query.first_day, query.last_day)
    found = await _read(
        connection,
        select(*columns, func.sum(days.amount_seconds))
        .where(is_within, *query.only(USAGE_DAYS))
        .group_by(*columns),
    )
    sums: dict[_Group, float] = {}
    for *key, amount in found:
        sums[_group(query, key)] = float(amount)
    await _add_open(connection, query, sums)
    return {
        key: {"amountHours": round(in_units(key[-1], amount) / 3600, 6)}
        for key, amount in sums.items()
    }


async def _add_open(
    connection: AsyncConnection, query: ReportQuery, sums: dict[_Group, float]
) -> None:
    """Add what still uses resources; the database sums pods with equal amounts and first days."""
    row, by = ALLOCATIONS.c, query.spec.by
    begin_s = float(query.first_day * DAY_S)
    end_s = min(query.now, float((query.last_day + 1) * DAY_S))
    begin = case((row.started > begin_s, row.started), else_=begin_s)
    day = func.floor(begin / DAY_S)
    alike = [*(day if name == "day" else row[name] for name in by), *_shape()]
    found = await _read(
        connection,
        select(*alike, func.count(), func.sum(begin))
        .where(row.ended.is_(None), row.started < end_s, *query.only(ALLOCATIONS))
        .group_by(*alike),
    )
    at = by.index("day") if "day" in by else None
    for *key, cpu_milli, memory_bytes, scalars, count, begins in found:
        spans: Iterable[tuple[int, float]] = [(0, count * end_s - begins)]
        if at is not None:
            spans = _by_day(int(key[at]), count, begins, end_s)
        for of_day, seconds in spans:
            own = [of_day if place == at else value for place, value in enumerate(key)]
            for resource, amount in _amounts(cpu_milli, memory_bytes, scalars):
                group = _group(query, [*own, resource])
                sums[group] = sums.get(group, 0.0) + amount * seconds


def _by_day(first: int, count: int, begins: float, end_s: float) -> Iterable[tuple[int, float]]:
    """Yield each day with the seconds of pods that started in the first and run until `end_s`."""
    yield first, count * min(end_s, (first + 1.0) * DAY_S) - begins
    for day in range(first + 1, math.ceil(end_s / DAY_S)):
        yield day, count * (min(end_s, (day + 1.0) * DAY_S) - day * DAY_S)


async def _jobs(connection: AsyncConnection, query: ReportQuery) -> _Sums:
    jobs = JOBS.c
    columns = _columns(JOBS, query, jobs.submitted)
    found = await _read(
        connection,
        select(
            *columns,
            func.count(),
            func.count(jobs.started),
            func.count(jobs.ended),
            func.sum(jobs.restarts),
        )
        .where(_within(jobs.submitted, query), *query.only(JOBS))
        .group_by(*columns),
    )
    names = ("submitted", "started", "ended", "restarts")
    size = len(columns)
    return {
        _group(query, row[:size]): dict(zip(names, map(int, row[size:]), strict=True))
        for row in found
    }


async def _waits(connection: AsyncConnection, query: ReportQuery) -> _Sums:
    """Return waits of the jobs that were submitted in the period and have started."""
    jobs, by = JOBS.c, query.spec.by
    of_gates = "gate" in by
    columns = _columns(JOBS, query, jobs.submitted)
    found = await _read(
        connection,
        select(*columns, jobs.waits if of_gates else jobs.started - jobs.submitted).where(
            _within(jobs.submitted, query), jobs.started.is_not(None), *query.only(JOBS)
        ),
        most=JOBS_MAX,
    )
    seconds: dict[_Group, list[float]] = {}
    for *key, waited in found:
        if not of_gates:
            seconds.setdefault(_group(query, key), []).append(waited)
            continue
        for gate, span in waited.items():
            own = [gate if name == "gate" else value for name, value in zip(by, key, strict=True)]
            seconds.setdefault(_group(query, own), []).append(span)
    return {key: _distribution(sorted(waits)) for key, waits in seconds.items()}


def _distribution(waits: Sequence[float]) -> dict[str, float]:
    """Return count, mean and percentiles (nearest rank) of sorted numbers."""
    count = len(waits)
    ranks = {"p50Seconds": 0.5, "p90Seconds": 0.9, "maxSeconds": 1.0}
    found = {name: waits[math.ceil(part * count) - 1] for name, part in ranks.items()}
    numbers = {"meanSeconds": sum(waits) / count, **found}
    return {"jobs": count, **{name: round(number, 3) for name, number in numbers.items()}}


async def _efficiency(connection: AsyncConnection, query: ReportQuery) -> _Sums:
    """Return what became of the allocations that ended in the period."""
    row = ALLOCATIONS.c
    columns = _columns(ALLOCATIONS, query, row.ended)
    alike = [*columns, row.reason, *_shape()]
    found = await _read(
        connection,
        select(*alike, func.sum(row.ended - row.started))
        .where(_within(row.ended, query), *query.only(ALLOCATIONS))
        .group_by(*alike),
    )
    sums: dict[_Group, dict[str, float]] = {}
    for *key, reason, cpu_milli, memory_bytes, scalars, seconds in found:
        for resource, amount in _amounts(cpu_milli, memory_bytes, scalars):
            values = sums.setdefault(
                _group(query, [*key, resource]),
                {"allocatedHours": 0.0, "completedHours": 0.0, "lostHours": 0.0},
            )
            hours = in_units(resource, amount) * seconds / 3600
            values["allocatedHours"] += hours
            if reason == EndReason.COMPLETED:
                values["completedHours"] += hours
            elif reason in (EndReason.FAILED, EndReason.EVICTED):
                values["lostHours"] += hours
    for values in sums.values():
        if values["allocatedHours"]:
            values["efficiency"] = round(values["completedHours"] / values["allocatedHours"], 4)
    return sums


_REPORTS: Final[Mapping[str, Callable[[AsyncConnection, ReportQuery], Awaitable[_Sums]]]] = {
    reports.USAGE: _usage,
    reports.JOBS: _jobs,
    reports.WAITS: _waits,
    reports.EFFICIENCY: _efficiency,
}


def _columns(
    table: Table, query: ReportQuery, when: ColumnElement[float]
) -> list[ColumnElement[Any]]:
    """Return the columns to group by; `day` is that of `when`, and a gate is in `waits`."""
    named: dict[str, ColumnElement[Any]] = {
        "day": func.floor(when / DAY_S),
        "gate": literal(""),
    }
    return [named[name] if name in named else table.c[name] for name in query.spec.by]


def _within(when: ColumnElement[Any], query: ReportQuery) -> ColumnElement[bool]:
    return (when >= query.since_s) & (when < query.until_s)


def _shape() -> list[ColumnElement[Any]]:
    row = ALLOCATIONS.c
    return [row.cpu_milli, row.memory_bytes, cast(row.scalars, String)]


def _amounts(cpu_milli: int, memory_bytes: int, scalars: str) -> Iterable[tuple[str, int]]:
    yield PODS, 1000
    yield from amounts_of(cpu_milli, memory_bytes, msgspec.json.decode(scalars))


def _group(query: ReportQuery, key: Sequence[Any]) -> _Group:
    """Return the values of a group as text, days as dates."""
    values = list(key)
    if "day" in query.spec.by:
        at = query.spec.by.index("day")
        values[at] = dt.date.fromordinal(_EPOCH + int(values[at])).isoformat()
    return tuple(values)


_EPOCH: Final = dt.date(1970, 1, 1).toordinal()


async def _read(
    connection: AsyncConnection, statement: Select[Any], *, most: int | None = None
) -> Sequence[Any]:
    """Return the rows of a statement. Raises Rejected if there are too many."""
    most = most or GROUPS_MAX
    found: Sequence[Any] = (await connection.execute(statement.limit(most + 1))).all()
    if len(found) > most:
        why = f"the report reads more than {most} rows; choose a shorter time or fewer groups"
        raise Rejected(why, field="spec.since")
    return found
