"""What counts against each budget, and what a used-up one says: the arithmetic of `budgets`.

Sums come from accounting's last messages. While none come, the last ones stay; a sum of an earlier
period counts nothing in a later one.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec import Struct

from pumice.plugins import Cluster
from services.scheduler.policy.limits import parent_of
from services.scheduler.policy.states.past_usage import PastUsage
from shared.api import time as times
from shared.contracts.usage import QueueUsage
from shared.jobs.budgets import PeriodSpan, UsageBudget, by_period, rate_begin
from shared.jobs.limits import LimitHolder, scopes_of
from shared.model.resources import MEMORY

WARNING: Final = 0.8
"""Part of a budget that is used when it warns."""
_GIB: Final = float(1 << 30)


class BudgetLine(Struct, frozen=True, kw_only=True):
    """One resource of a budget, for one holder, in the present period."""

    budget: str
    queue: str
    subject: str
    """Who uses it, as a subject of a sentence."""
    holder: LimitHolder
    resource: str
    span: PeriodSpan
    amount_hours: float
    used_hours: float
    at: float
    """Unix seconds up to which usage is known."""
    rate: float
    """Present usage in amount·hours per second: the mean since the begin of yesterday."""

    @property
    def ratio(self) -> float:
        """Return which part of the budget is used; 1.0 and more: it is used up."""
        return self.used_hours / self.amount_hours

    @property
    def level(self) -> float:
        """Return which level it has reached: 1.0, `WARNING` or 0.0."""
        return next((level for level in (1.0, WARNING) if self.ratio >= level), 0.0)

    @property
    def used_up_at(self) -> float:
        """Return when it is used up at the present rate (Unix seconds).

        Infinity if that is not in this period.
        """
        left = self.amount_hours - self.used_hours
        if left <= 0.0:
            return self.at
        found = self.at + left / self.rate if self.rate > 0.0 else math.inf
        return found if found < self.span.end else math.inf

    def text(self) -> str:
        """Return the state of the budget in words."""
        used, amount = (_shown(self.resource, x) for x in (self.used_hours, self.amount_hours))
        who = f"{self.subject} used {used} of {amount} {self.resource}-hours in queue {self.queue}"
        head = f"budget {self.budget}: {who} since {_day(self.span.begin)}"
        if self.ratio >= 1.0:
            return f"{head}; the next period begins on {_day(self.span.end)}"
        if math.isinf(self.used_up_at):
            return head
        return f"{head}; at the present rate it is used up on {_day(self.used_up_at)}"


class BudgetAccounts:
    """The lines of all budgets at one time."""

    def __init__(
        self,
        budgets: Sequence[UsageBudget],
        messages: Mapping[str, QueueUsage],
        queue_parent: Callable[[str], str],
        now: float,
    ) -> None:
        """`messages` has the last one of each queue; `now` is Unix seconds."""
        self._budgets = budgets
        self._parent_of = queue_parent
        self._groups = by_period(budgets)
        self._spans = [budget.span(now) for budget in budgets]
        self._at = max((message.at for message in messages.values()), default=0.0)
        self._used: dict[tuple[int, LimitHolder], dict[str, float]] = {}
        self._lately: dict[tuple[int, LimitHolder], dict[str, float]] = {}
        self._rate_begin = rate_begin(self._at)
        self._keys: dict[tuple[str, LimitHolder], tuple[tuple[int, LimitHolder], ...]] = {}
        self._lines: dict[tuple[int, LimitHolder], tuple[BudgetLine, ...]] = {}
        self.is_known = any(message.periods for message in messages.values())
        """Whether accounting publishes sums for budgets."""
        for queue in sorted(messages):
            self._add(queue, messages[queue])

    @classmethod
    def of_cluster(cls, budgets: Sequence[UsageBudget], cluster: Cluster) -> "BudgetAccounts":
        """Return the accounts at the time of a cycle."""
        messages = cluster.store(PastUsage).by_queue
        return cls(budgets, messages, partial(parent_of, cluster), cluster.now)

    def lines(self) -> Iterator[BudgetLine]:
        """Yield a line for each budget, holder with usage, and resource."""
        for number, holder in sorted(self._used):
            yield from self._lines_of(number, holder)

    def used_up(
        self, queue: str, holder: LimitHolder, *, preemptable: bool
    ) -> Iterator[BudgetLine]:
        """Yield the used-up lines that keep jobs of a user and namespace in a queue from starting.

        `preemptable`: of PodGroups that agree to be evicted.
        """
        for number, who in self._counting(queue, holder):
            if preemptable and self._budgets[number].mode == "preemptable-only":
                continue
            yield from (line for line in self._lines_of(number, who) if line.ratio >= 1.0)

    def _counting(self, queue: str, holder: LimitHolder) -> tuple[tuple[int, LimitHolder], ...]:
        """Return budget and holder of what a job counts against."""
        found = self._keys.get((queue, holder))
        if found is None:
            found = self._keys[queue, holder] = tuple(
                (group[at][0], who)
                for group in self._groups
                for at, who in scopes_of(
                    [budget for _, budget in group], queue, holder, self._parent_of
                )
            )
        return found

    def _add(self, queue: str, message: QueueUsage) -> None:
        for period in message.periods:
            for user, of_user in period.users.items():
                for namespace, used in of_user.items():
                    for key in self._counting(queue, LimitHolder(user, namespace)):
                        span = self._spans[key[0]]
                        if span is not None and period.begin == span.begin:
                            _add_to(self._used.setdefault(key, {}), used)
                        if period.begin == self._rate_begin:
                            _add_to(self._lately.setdefault(key, {}), used)

    def _lines_of(self, number: int, holder: LimitHolder) -> tuple[BudgetLine, ...]:
        found = self._lines.get((number, holder))
        if found is None:
            found = tuple(self._make_lines(number, holder))
            self._lines[number, holder] = found
        return found

    def _make_lines(self, number: int, holder: LimitHolder) -> Iterator[BudgetLine]:
        budget, span = self._budgets[number], self._spans[number]
        if span is None:
            return
        used = self._used.get((number, holder), {})
        lately = self._lately.get((number, holder), {})
        seconds = self._at - self._rate_begin
        for resource, amount in sorted(budget.amounts.items()):
            yield BudgetLine(
                budget=budget.name,
                queue=budget.queue,
                subject=budget.subject(holder),
                holder=holder,
                resource=resource,
                span=span,
                amount_hours=amount,
                used_hours=used.get(resource, 0.0),
                at=self._at,
                rate=lately.get(resource, 0.0) / seconds if seconds > 0.0 else 0.0,
            )


def _add_to(sums: dict[str, float], used: Mapping[str, float]) -> None:
    for name, amount in used.items():
        sums[name] = sums.get(name, 0.0) + amount


def _day(unix_s: float) -> str:
    return times.format_seconds(unix_s).partition("T")[0]


def _shown(resource: str, amount: float) -> str:
    """Return an amount as a person reads it: bytes in Gi, all else with one decimal."""
    if resource == MEMORY:
        return f"{round(amount / _GIB, 1):.12g}Gi"
    return f"{round(amount, 1):.12g}"
