"""What is used of each budget, as the plugin `budgets` of the scheduler counts it."""

import math
from collections.abc import Mapping

from services.scheduler.budget_levels import budgets_of
from services.scheduler.config import SchedulerConfig
from services.scheduler.engine.jobs.records import Queue
from services.scheduler.policy.budgets import BudgetAccounts, BudgetLine
from shared.api.time import format_seconds
from shared.api.usage_reports import BudgetRow, UsageReportSpec, UsageReportStatus
from shared.contracts.usage import QueueUsage


def budgets_report(
    spec: UsageReportSpec,
    queues: Mapping[str, Queue],
    published: Mapping[str, QueueUsage],
    config: SchedulerConfig,
    *,
    now: float,
) -> UsageReportStatus:
    """Return the lines of a query: those of its queue, user and namespace. Times are Unix seconds.

    A query for one user has the lines that hold for this user by itself alone.
    """
    parents = {name: queue.parent for name, queue in queues.items()}
    accounts = BudgetAccounts(
        budgets_of(config), published, lambda name: parents.get(name, ""), now
    )
    rows = tuple(
        _row(line)
        for line in accounts.lines()
        if spec.queue in ("", line.queue)
        and spec.user in ("", line.holder.user)
        and spec.namespace in ("", line.holder.namespace)
    )
    return UsageReportStatus(until=format_seconds(now), user=spec.user, budgets=rows)


def _row(line: BudgetLine) -> BudgetRow:
    return BudgetRow(
        budget=line.budget,
        queue=line.queue,
        user=line.holder.user,
        namespace=line.holder.namespace,
        resource=line.resource,
        amount_hours=line.amount_hours,
        used_hours=round(line.used_hours, 6),
        begin=format_seconds(line.span.begin),
        end=format_seconds(line.span.end),
        used_up=None if math.isinf(line.used_up_at) else format_seconds(line.used_up_at),
    )
