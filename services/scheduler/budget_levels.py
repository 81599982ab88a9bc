"""Finds the budgets that warn or are used up, when sums or the configuration change. Pure."""

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from services.scheduler.config import SchedulerConfig
from services.scheduler.engine.state.cluster_state import ClusterState
from services.scheduler.policy.budgets import BudgetAccounts, BudgetLine
from services.scheduler.policy.states.past_usage import PastUsage
from shared.contracts.usage import QueueUsage
from shared.jobs.budgets import PLUGIN, UsageBudget, read_budgets
from shared.jobs.limits import LimitHolder

_DAY_S: Final = 86_400.0


class BudgetFigures(NamedTuple):
    """The metrics of one budget, over those that it holds for."""

    ratio: float
    """Largest used part; NaN while accounting publishes no sums for budgets."""
    used_up: int
    """How many have used up theirs."""
    used_up_at: float
    """When the first one will have, in Unix seconds; infinity: not in this period."""


class BudgetReview(NamedTuple):
    """All budgets at one time."""

    figures: Mapping[str, BudgetFigures]
    """Name of a budget → its metrics."""
    reached: Sequence[BudgetLine]
    """Lines that have reached a level which was not reported yet."""


class BudgetLevels:
    """Remembers which levels of budgets were reported."""

    def __init__(self) -> None:
        self._seen: tuple[SchedulerConfig, Mapping[str, QueueUsage], float] | None = None
        self._budgets: tuple[UsageBudget, ...] = ()
        self._reported: dict[tuple[str, LimitHolder, str, float], float] = {}

    def review(
        self, config: SchedulerConfig, cluster_state: ClusterState, *, now: float
    ) -> BudgetReview | None:
        """Return the budgets at a time (Unix seconds); None if they are as in the last review."""
        messages = cluster_state.store(PastUsage).by_queue
        seen = (config, messages, now // _DAY_S)
        last, self._seen = self._seen, seen
        if last is None or last[0] is not config:
            self._budgets = budgets_of(config)
        elif last[1] is messages and last[2] == seen[2]:
            return None
        if not self._budgets and not self._reported:
            return None
        parents = {name: queue.parent for name, queue in cluster_state.jobs.queues.items()}
        accounts = BudgetAccounts(self._budgets, messages, lambda name: parents.get(name, ""), now)
        lines = list(accounts.lines())
        figures = {
            budget.name: _figures([line for line in lines if line.budget == budget.name])
            if accounts.is_known
            else BudgetFigures(math.nan, 0, math.inf)
            for budget in self._budgets
        }
        return BudgetReview(figures, self._newly_reached(lines))

    def _newly_reached(self, lines: Sequence[BudgetLine]) -> list[BudgetLine]:
        before, self._reported = self._reported, {}
        found = []
        for line in lines:
            key = (line.budget, line.holder, line.resource, line.span.begin)
            self._reported[key] = level = line.level
            if level > before.get(key, 0.0):
                found.append(line)
        return found


def _figures(lines: Sequence[BudgetLine]) -> BudgetFigures:
    return BudgetFigures(
        max((line.ratio for line in lines), default=0.0),
        len({line.holder for line in lines if line.ratio >= 1.0}),
        min((line.used_up_at for line in lines), default=math.inf),
    )


def budgets_of(config: SchedulerConfig) -> tuple[UsageBudget, ...]:
    """Return the budgets of all options of the plugin."""
    options = (option for tier in config.tiers for option in tier.plugins)
    stated = [option.arguments.get(PLUGIN) for option in options if option.name == PLUGIN]
    return tuple(budget for each in stated for budget in read_budgets(each))
