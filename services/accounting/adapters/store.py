"""Reads and writes the rows; one transaction holds rows, daily sums and the stream's position."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Table, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.accounting import schema
from services.accounting.adapters.database import migrate
from services.accounting.books.ledger import RowChanges
from services.accounting.books.rows import Allocation, JobRow

_UIDS: Final = 500
"""Uids in one query: SQLite takes a limited number of parameters."""


class StreamPosition(msgspec.Struct, frozen=True, kw_only=True):
    """How far a stream was read."""

    stream: str
    created: str = ""
    """Epoch of the stream."""
    sequence: int = 0
    time: float = 0.0
    """When the server stored the last message, Unix seconds."""


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """A time of which events are missing, in Unix seconds."""

    stream: str
    begin: float
    end: float
    reason: str


class AccountingDatabase:
    """The rows of one database."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._insert: Any = {"sqlite": sqlite, "postgresql": postgresql}[engine.dialect.name].insert

    async def migrate(self) -> None:
        """Bring the tables to the newest version."""
        await migrate(self._engine)

    async def position(self, stream: str) -> StreamPosition:
        """Return how far a stream was read; of one that was not, its beginning."""
        table = schema.POSITIONS
        async with self._engine.connect() as connection:
            found = await connection.execute(select(table).where(table.c.stream == stream))
            row = found.mappings().one_or_none()
        return StreamPosition(**row) if row else StreamPosition(stream=stream)

    async def open_rows(self) -> tuple[list[Allocation], list[JobRow]]:
        """Return the allocations that did not end, and the jobs that did not or have some."""
        allocations, jobs = schema.ALLOCATIONS.c, schema.JOBS.c
        is_open = allocations.ended.is_(None)
        used = select(allocations.job_uid).where(is_open)
        async with self._engine.connect() as connection:
            return (
                await _rows(connection, schema.ALLOCATIONS, Allocation, is_open),
                await _rows(
                    connection, schema.JOBS, JobRow, jobs.ended.is_(None) | jobs.uid.in_(used)
                ),
            )

    async def rows(
        self, pods: Collection[str], jobs: Collection[str]
    ) -> tuple[list[Allocation], list[JobRow]]:
        """Return the rows that exist of these uids."""
        async with self._engine.connect() as connection:
            allocations: list[Allocation] = []
            for some in _some(pods):
                is_one = schema.ALLOCATIONS.c.pod_uid.in_(some)
                allocations += await _rows(connection, schema.ALLOCATIONS, Allocation, is_one)
            found: list[JobRow] = []
            for some in _some(jobs):
                found += await _rows(connection, schema.JOBS, JobRow, schema.JOBS.c.uid.in_(some))
        return allocations, found

    async def submitted(
        self, *, since: float, until: float, most: int
    ) -> tuple[list[JobRow], list[Allocation]]:
        """Return the first jobs that were submitted in a period and started, and allocations.

        The allocations are those of all jobs that were submitted in the period.
        """
        jobs = schema.JOBS.c
        where = (jobs.submitted >= since) & (jobs.submitted < until) & jobs.started.is_not(None)
        first = select(schema.JOBS).where(where).order_by(jobs.submitted, jobs.uid).limit(most)
        own = schema.ALLOCATIONS.c.job_uid.in_(select(jobs.uid).where(where))
        async with self._engine.connect() as connection:
            rows = (await connection.execute(first)).mappings()
            return (
                [JobRow(**row) for row in rows],
                await _rows(connection, schema.ALLOCATIONS, Allocation, own),
            )

    async def write(
        self, changes: RowChanges, position: StreamPosition, gaps: Sequence[Gap] = ()
    ) -> None:
        """Write everything in one transaction, or nothing."""
        sums = [
            dict(zip(("day", "queue", "namespace", "user", "resource"), key, strict=True))
            | {"amount_seconds": amount}
            for key, amount in changes.usage.items()
        ]
        async with self._engine.begin() as connection:
            await self._upsert(connection, schema.ALLOCATIONS, _dicts(changes.allocations))
            await self._upsert(connection, schema.JOBS, _dicts(changes.jobs))
            await self._upsert(connection, schema.USAGE_DAYS, sums, adds="amount_seconds")
            await self._upsert(connection, schema.GAPS, _dicts(gaps))
            await self._upsert(connection, schema.POSITIONS, _dicts([position]))

    async def _upsert(
        self, connection: AsyncConnection, table: Table, rows: list[dict[str, Any]], adds: str = ""
    ) -> None:
        """Insert rows, or replace those of the same key; the column `adds` is added to."""
        if not rows:
            return
        insert = self._insert(table)
        taken = {
            column.name: table.c[adds] + insert.excluded[adds]
            if column.name == adds
            else insert.excluded[column.name]
            for column in table.columns
            if not column.primary_key
        }
        statement = insert.on_conflict_do_update(index_elements=table.primary_key, set_=taken)
        await connection.execute(statement, rows)


async def _rows(
    connection: AsyncConnection, table: Table, kind: type[Any], where: ColumnElement[bool]
) -> list[Any]:
    found = await connection.execute(select(table).where(where))
    return [kind(**row) for row in found.mappings()]


def _some(uids: Collection[str]) -> Iterator[Sequence[str]]:
    ordered = sorted(uid for uid in uids if uid)
    return (ordered[at : at + _UIDS] for at in range(0, len(ordered), _UIDS))


def _dicts(rows: Sequence[msgspec.Struct]) -> list[dict[str, Any]]:
    return [msgspec.structs.asdict(row) for row in rows]
