"""Usage reports of a drawn cluster: a month of six queues, waits, shares, and two budgets."""

import random
from datetime import UTC, datetime, timedelta
from typing import Final

from shared.api.time import format_seconds, parse
from shared.api.usage_reports import (
    BUDGETS,
    SHARES,
    USAGE,
    WAITS,
    BudgetRow,
    ReportRow,
    ShareRow,
    UsageReportSpec,
    UsageReportStatus,
)

GPU: Final = "nvidia.com/gpu"
QUEUES: Final = ("team-00", "team-01", "team-02", "team-03", "team-04", "team-05")
USED_A_DAY: Final = 500.0
"""Mean GPU-hours of a queue."""


def report(spec: UsageReportSpec, *, now_s: float) -> UsageReportStatus:
    """Return the result of a query."""
    if spec.report == SHARES:
        return UsageReportStatus(shares=tuple(_shares()))
    if spec.report == BUDGETS:
        return UsageReportStatus(budgets=_budgets(now_s))
    drawn = random.Random(spec.report)
    begin = datetime.fromtimestamp(parse(spec.since or format_seconds(now_s)), UTC).date()
    days = [begin + timedelta(days=at) for at in range(100)]
    shown = [day.isoformat() for day in days if day <= datetime.fromtimestamp(now_s, UTC).date()]
    if spec.report == WAITS:
        return UsageReportStatus(
            rows=tuple(
                ReportRow(
                    group={"day": day},
                    values={"p50Seconds": 60.0 * at, "p90Seconds": 300.0 * at + 1},
                )
                for at, day in enumerate(shown)
            )
        )
    assert spec.report == USAGE
    return UsageReportStatus(
        rows=tuple(
            ReportRow(
                group={"queue": queue, "day": day, "resource": resource},
                values={"amountHours": USED_A_DAY * drawn.uniform(0.5, 1.5) * times},
            )
            for queue in QUEUES
            for day in shown
            for resource, times in ((GPU, 1), ("cpu", 16), ("pods", 1))
        )
    )


def _shares() -> list[ShareRow]:
    rows = []
    for at, queue in enumerate(QUEUES[:3]):
        used = (0.6, 0.3, 0.1)[at]
        rows.append(ShareRow(queue=queue, norm_shares=1 / 3, effective_usage=used))
        for user, part in (("ann", 0.75), ("bob", 0.25)):
            row = ShareRow(queue=queue, user=user, depth=1, norm_shares=0.5, effective_usage=part)
            rows.append(row)
    return rows


def _budgets(now_s: float) -> tuple[BudgetRow, ...]:
    first = datetime.fromtimestamp(now_s, UTC).replace(day=1, hour=0, minute=0, second=0)
    begin = first.timestamp()
    end = (first + timedelta(days=32)).replace(day=1).timestamp()
    days = (now_s - begin) / 86_400
    month = {"begin": format_seconds(begin), "end": format_seconds(end), "resource": GPU}
    return (
        BudgetRow(
            budget="research", queue="root", amount_hours=120_000.0,
            used_hours=6 * USED_A_DAY * days, used_up=format_seconds(now_s + 86_400), **month,
        ),
        BudgetRow(
            budget="each", queue="team-00", user="ann", amount_hours=1_000.0,
            used_hours=1_000.0, **month,
        ),
    )  # fmt: skip
