"""Shows the usage of the current month as metrics, by queue, or by queue and user; a part."""

import asyncio
import datetime as dt
from typing import Final

from msgspec.structs import replace

from services.accounting.adapters.reports import UsageReports
from shared.api.time import format_seconds
from shared.api.usage_reports import LIMIT_MAX, USAGE, UsageReportSpec
from shared.runtime.env import Env
from shared.runtime.errors import PumiceError

INTERVAL_S: Final = 60.0
SERIES_MAX: Final = 2000
"""Most series; the smallest of more are summed by resource in the series of `OTHERS`."""
OTHERS: Final = "(others)"

_Labels = tuple[str, ...]


class UsageMetrics:
    """Computes the sums once a minute."""

    name: Final = "usage-metrics"

    def __init__(
        self, reports: UsageReports, *, by: tuple[str, ...], is_complete: asyncio.Event, env: Env
    ) -> None:
        """`by` names queue, or queue and user; the database is read once `is_complete` is set."""
        self._reports = reports
        self._by = by
        self._is_complete = is_complete
        self._clock = env.clock
        self._log = env.log
        self._hours = env.metrics.gauge(
            "pumice_accounting_month_usage_hours",
            "Amount times hours since the month began (UTC)",
            ["queue", "user", "resource"],
        )

    async def run(self) -> None:
        """Update until cancelled; what fails is repeated in the next interval."""
        await self._is_complete.wait()
        while True:
            try:
                await self.update()
            except PumiceError as error:
                self._log.warning("usage_metrics_not_updated", reason=str(error))
            await self._clock.sleep(INTERVAL_S)

    async def sums(self) -> dict[_Labels, float]:
        """Return queue, user and resource → amount times hours. Raises Rejected, Retryable."""
        month = dt.datetime.fromtimestamp(self._clock.now(), dt.UTC).replace(
            day=1, hour=0, minute=0, second=0, microsecond=0
        )
        spec = UsageReportSpec(
            report=USAGE, by=self._by, since=format_seconds(month.timestamp()), limit=LIMIT_MAX
        )
        found: dict[_Labels, float] = {}
        while True:
            page = await self._reports.report(spec)
            for row in page.rows:
                labels = (row.group["queue"], row.group.get("user", ""), row.group["resource"])
                found[labels] = row.values["amountHours"]
            if not page.next:
                return _bounded(found)
            spec = replace(spec, after=page.next)

    async def update(self) -> None:
        """Show the sums of now; series of others disappear. Raises Rejected, Retryable."""
        sums = await self.sums()
        self._hours.clear()
        for labels, hours in sums.items():
            self._hours.labels(*labels).set(hours)


def _bounded(sums: dict[_Labels, float]) -> dict[_Labels, float]:
    """Return the largest sums; the others count together by resource."""
    ordered = sorted(sums.items(), key=lambda item: (-item[1], item[0]))
    kept: dict[_Labels, float] = dict(ordered[:SERIES_MAX])
    for (*_, resource), hours in ordered[SERIES_MAX:]:
        labels = (OTHERS, "", resource)
        kept[labels] = kept.get(labels, 0.0) + hours
    return kept
