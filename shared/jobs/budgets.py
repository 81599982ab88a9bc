"""Budgets: resource-hours that a queue, users or namespaces may use in a period. Pure.

The plugin `budgets` of the scheduler has them as arguments; accounting reads the same file to know
which sums to publish. Periods are calendar periods in UTC, weeks begin on Monday.
"""

import enum
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec

from shared.api.base import describe_decode_error
from shared.jobs.limits import LimitScope
from shared.model.quantity import BadQuantity, units

PLUGIN: Final = "budgets"
"""Name of the plugin, and of its argument."""
_DAY_S: Final = 86_400.0


class Period(enum.StrEnum):
    """Calendar periods."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    QUARTER = "quarter"


class BudgetMode(enum.StrEnum):
    """What may start once a budget is used up."""

    HOLD = "hold"
    """Nothing that requests the resource."""
    PREEMPTABLE_ONLY = "preemptable-only"
    """PodGroups with the annotation `volcano.sh/preemptable: "true"`."""


class PeriodSpan(NamedTuple):
    """A span of whole days (UTC) in Unix seconds; `end` is the first second after it."""

    begin: float
    end: float


class UsageBudget(
    LimitScope, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """One budget of the configuration."""

    name: str
    hours: Mapping[str, str | float]
    """Resource → hours: CPU in cores, memory in bytes, others in units."""
    period: Period | None = None
    first_day: date | None = None
    """The dates in place of `period`, both included."""
    last_day: date | None = None
    mode: BudgetMode = BudgetMode.HOLD

    def span(self, now: float) -> PeriodSpan | None:
        """Return the period of this budget that contains a time (Unix seconds); None if none."""
        if self.period is not None:
            return _calendar_span(self.period, datetime.fromtimestamp(now, UTC).date())
        if self.first_day is None or self.last_day is None:
            return None
        span = PeriodSpan(_midnight(self.first_day), _midnight(self.last_day) + _DAY_S)
        return span if span.begin <= now < span.end else None

    @property
    def amounts(self) -> dict[str, float]:
        """Return resource → hours as numbers."""
        return {name: _hours(stated) for name, stated in self.hours.items()}


def read_budgets(stated: object) -> tuple[UsageBudget, ...]:
    """Return the budgets of an argument of the plugin. Raises ValueError, which names the field."""
    try:
        found = msgspec.convert(stated or [], tuple[UsageBudget, ...], strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(f"{PLUGIN}: {describe_decode_error(error)}") from error
    names: set[str] = set()
    for number, budget in enumerate(found):
        if problem := _problem(budget, names):
            raise ValueError(f"{PLUGIN}[{number}].{problem}")
        names.add(budget.name)
    return found


def budgets_in(configuration: object) -> tuple[UsageBudget, ...]:
    """Return the budgets of a scheduler configuration, as its YAML says. Raises ValueError."""
    tiers: Any = configuration
    try:
        options = [option for tier in tiers["tiers"] for option in tier["plugins"]]
        stated = [option["arguments"][PLUGIN] for option in options if option["name"] == PLUGIN]
    except (KeyError, TypeError):
        return ()
    return tuple(budget for each in stated for budget in read_budgets(each))


def sums_needed(budgets: Iterable[UsageBudget], now: float) -> tuple[float, ...]:
    """Return the Unix seconds since which usage has to be summed; none without budgets."""
    begins = {span.begin for budget in budgets if (span := budget.span(now)) is not None}
    return tuple(sorted(begins | {rate_begin(now)})) if begins else ()


def rate_begin(now: float) -> float:
    """Return the begin of yesterday (UTC), from which on the present rate of usage is taken."""
    return (now // _DAY_S - 1) * _DAY_S


def by_period(budgets: Sequence[UsageBudget]) -> list[list[tuple[int, UsageBudget]]]:
    """Return the budgets in groups of one period each, with their index.

    Of the budgets of one queue with the same period, the first that names a user counts, as with
    limits; a budget of another period counts beside it.
    """
    groups: dict[tuple[object, ...], list[tuple[int, UsageBudget]]] = {}
    for number, budget in enumerate(budgets):
        key = (budget.period, budget.first_day, budget.last_day)
        groups.setdefault(key, []).append((number, budget))
    return list(groups.values())


def _problem(budget: UsageBudget, names: set[str]) -> str:
    if not budget.name or budget.name in names:
        return f"name: {budget.name!r} is empty or not unique"
    dated = budget.first_day is not None, budget.last_day is not None
    if any(dated) != all(dated) or all(dated) == (budget.period is not None):
        return "period: state either `period`, or `firstDay` and `lastDay`"
    if budget.first_day and budget.last_day and budget.first_day > budget.last_day:
        return f"lastDay: {budget.last_day} is before {budget.first_day}"
    if not budget.hours:
        return "hours: no resource is named"
    for resource, stated in budget.hours.items():
        try:
            if _hours(stated) > 0.0:
                continue
        except BadQuantity:
            pass
        return f"hours.{resource}: {stated!r} is no number of hours"
    return ""


def _hours(stated: str | float) -> float:
    return float(units(stated) if isinstance(stated, str) else stated)


def _calendar_span(period: Period, day: date) -> PeriodSpan:
    match period:
        case Period.DAY:
            return _days(day, day + timedelta(days=1))
        case Period.WEEK:
            monday = day - timedelta(days=day.weekday())
            return _days(monday, monday + timedelta(days=7))
        case Period.MONTH:
            return _months(day.year, day.month, 1)
        case Period.QUARTER:
            return _months(day.year, (day.month - 1) // 3 * 3 + 1, 3)


def _months(year: int, month: int, count: int) -> PeriodSpan:
    years, last = divmod(month - 1 + count, 12)
    return _days(date(year, month, 1), date(year + years, last + 1, 1))


def _days(first: date, until: date) -> PeriodSpan:
    return PeriodSpan(_midnight(first), _midnight(until))


def _midnight(day: date) -> float:
    return datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()
