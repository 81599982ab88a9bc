"""Sums the usage in the periods of the budgets that the scheduler's configuration states."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import yaml
from sqlalchemy import String, case, cast, func, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.accounting.books.rows import DAY_S, amounts_of, in_units
from services.accounting.schema import ALLOCATIONS, USAGE_DAYS
from shared.contracts.usage import PeriodUsage
from shared.jobs.budgets import UsageBudget, budgets_in, sums_needed
from shared.model.resources import PODS
from shared.runtime.logs import Logger

_BY: Final = ("queue", "user", "namespace")
_Sums = dict[tuple[str, ...], float]
"""Queue, user, namespace, resource → amount·seconds."""
_Users = dict[str, dict[str, dict[str, float]]]


class PeriodSums(NamedTuple):
    """Usage since the begins of some periods."""

    begins: Sequence[float]
    """Unix seconds."""
    by_queue: Mapping[str, Mapping[float, _Users]]
    """Queue → begin → users, as in `PeriodUsage`."""

    def of(self, queue: str) -> tuple[PeriodUsage, ...]:
        """Return the sums of a queue, empty ones of periods in which it was not used."""
        found = self.by_queue.get(queue, {})
        return tuple(PeriodUsage(begin=at, users=found.get(at, {})) for at in self.begins)


class BudgetPeriods:
    """The budgets of one configuration file, which is read again for each sum."""

    def __init__(self, engine: AsyncEngine, path: str, log: Logger) -> None:
        """`path` is empty where there are no budgets."""
        self._engine = engine
        self._path = Path(path) if path else None
        self._log = log
        self._budgets: tuple[UsageBudget, ...] = ()
        self._reason = ""

    async def at(self, now: float) -> PeriodSums:
        """Return what was used until a time (Unix seconds). Raises errors of SQLAlchemy."""
        budgets = self._read()
        begins = sums_needed(budgets, now)
        resources = {name for budget in budgets for name in budget.hours}
        by_queue: dict[str, dict[float, _Users]] = {}
        if not begins:
            return PeriodSums(begins, by_queue)
        async with self._engine.connect() as connection:
            for begin in begins:
                sums = await _sums(connection, begin, now)
                for (queue, user, namespace, resource), amount_seconds in sums.items():
                    if resource in resources:
                        users = by_queue.setdefault(queue, {}).setdefault(begin, {})
                        used = users.setdefault(user, {}).setdefault(namespace, {})
                        used[resource] = in_units(resource, amount_seconds) / 3600.0
        return PeriodSums(begins, by_queue)

    def _read(self) -> tuple[UsageBudget, ...]:
        """Return the budgets of the file; the last ones while it cannot be read."""
        if self._path is None:
            return ()
        reason = ""
        try:
            self._budgets = budgets_in(yaml.safe_load(self._path.read_text(encoding="utf-8")))
        except (OSError, ValueError, yaml.YAMLError) as error:
            reason = " ".join(str(error).split())
            if reason != self._reason:
                self._log.warning("budgets_unreadable", file=str(self._path), reason=reason)
        self._reason = reason
        return self._budgets


async def _sums(connection: AsyncConnection, begin: float, now: float) -> _Sums:
    """Return what was used since the begin of a day: daily sums, and what did not end."""
    days, rows, sums = USAGE_DAYS.c, ALLOCATIONS.c, _Sums()
    columns = [days[name] for name in (*_BY, "resource")]
    found = await connection.execute(
        select(*columns, func.sum(days.amount_seconds))
        .where(days.day >= int(begin // DAY_S))
        .group_by(*columns)
    )
    for *key, amount in found:
        sums[tuple(key)] = float(amount)
    shape = [rows.cpu_milli, rows.memory_bytes, cast(rows.scalars, String)]
    since = case((rows.started > begin, rows.started), else_=begin)
    alike = [*(rows[name] for name in _BY), *shape]
    found = await connection.execute(
        select(*alike, func.sum(now - since))
        .where(rows.ended.is_(None), rows.started < now)
        .group_by(*alike)
    )
    for *names, cpu_milli, memory_bytes, scalars, seconds in found:
        others = msgspec.json.decode(scalars, type=dict[str, int])
        for resource, amount in ((PODS, 1000), *amounts_of(cpu_milli, memory_bytes, others)):
            group = (*names, resource)
            sums[group] = sums.get(group, 0.0) + amount * seconds
    return sums
