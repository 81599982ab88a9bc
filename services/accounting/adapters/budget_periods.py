"""Sums the usage in the periods of the budgets that the scheduler's configuration states."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import yaml

from services.accounting.adapters.reports import UsageReports
from shared.contracts.messages import PeriodUsage
from shared.jobs.budgets import Budget, budgets_in, sums_needed
from shared.runtime.logs import Logger

_BY: Final = ("queue", "user", "namespace")
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

    def __init__(self, reports: UsageReports, path: str, log: Logger) -> None:
        """`path` is empty where there are no budgets."""
        self._reports = reports
        self._path = Path(path) if path else None
        self._log = log
        self._budgets: tuple[Budget, ...] = ()
        self._reason = ""

    async def at(self, now: float) -> PeriodSums:
        """Return what was used until a time (Unix seconds). Raises errors of SQLAlchemy."""
        budgets = self._read()
        begins = sums_needed(budgets, now)
        resources = {name for budget in budgets for name in budget.hours}
        by_queue: dict[str, dict[float, _Users]] = {}
        for begin in begins:
            for row in await self._reports.usage(_BY, since_s=begin, until_s=now):
                queue, user, namespace = row.group
                if row.resource in resources:
                    users = by_queue.setdefault(queue, {}).setdefault(begin, {})
                    used = users.setdefault(user, {}).setdefault(namespace, {})
                    used[row.resource] = row.amount_hours
        return PeriodSums(begins, by_queue)

    def _read(self) -> tuple[Budget, ...]:
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
