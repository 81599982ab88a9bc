"""Levels of budgets are reported once per period, and their metrics follow the sums."""

import math
from datetime import UTC, datetime

import pytest
import structlog

from pumice.events import BudgetReached, Event
from pumice.testing import Cluster
from services.scheduler.adapters.report import GangEvents, Report
from services.scheduler.budget_levels import BudgetLevels, BudgetReview
from services.scheduler.config import SchedulerConfig
from services.scheduler.decide import configure
from services.scheduler.decision import Decision
from services.scheduler.engine.plan import Plan
from services.scheduler.policy.states.past_usage import PastUsage
from shared.contracts.usage import PeriodUsage, QueueUsage
from shared.runtime.health import Readiness
from shared.runtime.metrics import Metrics
from shared.runtime.spans import NO_SPANS

NOW = datetime(2026, 11, 10, 12, tzinfo=UTC).timestamp()
MONTH = datetime(2026, 11, 1, tzinfo=UTC).timestamp()
YESTERDAY = datetime(2026, 11, 9, tzinfo=UTC).timestamp()
DAY = 86_400.0


def conf(hours: int = 100) -> SchedulerConfig:
    budget = f"{{name: each, users: ['*'], period: month, hours: {{cpu: {hours}}}}}"
    return configure(
        "actions: allocate\ntiers:\n- plugins:\n"
        f"  - {{name: budgets, arguments: {{budgets: [{budget}]}}}}\n"
    )


class Stage:
    """Levels over what was used so far; the rate is a twentieth of it per day."""

    def __init__(self) -> None:
        self.world = Cluster(queue=False).queue("root").queue("research", parent="root")
        self.levels = BudgetLevels()
        self.config = conf()

    def used(self, **hours: float) -> None:
        users = {user: {"ns": {"cpu": each}} for user, each in hours.items()}
        lately = {user: {"ns": {"cpu": each * 1.5 / 20}} for user, each in hours.items()}
        periods = (
            PeriodUsage(begin=MONTH, users=users),
            PeriodUsage(begin=YESTERDAY, users=lately),
        )
        message = QueueUsage(queue="research", at=NOW, half_life_s=DAY, users={}, periods=periods)
        self.world.cluster_state.store(PastUsage).replace({"research": message})

    def review(self, now: float = NOW) -> BudgetReview | None:
        return self.levels.review(self.config, self.world.cluster_state, now=now)

    def reached(self, now: float = NOW) -> list[tuple[str, float]]:
        review = self.review(now)
        return [(x.holder.user, x.level) for x in review.reached] if review else []


def test_each_level_is_reported_once_per_holder_and_period() -> None:
    stage = Stage()
    stage.used(ann=79.9, bob=10.0)
    assert stage.reached() == []
    stage.used(ann=85.0, bob=80.0)
    assert stage.reached() == [("ann", 0.8), ("bob", 0.8)]
    stage.used(ann=100.0, bob=81.0)
    assert stage.reached() == [("ann", 1.0)]
    stage.used(ann=120.0, bob=82.0)
    assert stage.reached() == []


def test_nothing_is_reviewed_while_sums_day_and_configuration_are_the_same() -> None:
    stage = Stage()
    stage.used(ann=85.0)
    assert stage.review() is not None
    assert stage.review(NOW + 3600) is None
    assert stage.review(NOW + DAY) is not None


def test_a_budget_that_is_raised_warns_again() -> None:
    stage = Stage()
    stage.used(ann=100.0)
    assert stage.reached() == [("ann", 1.0)]
    stage.config = conf(110)
    assert stage.reached() == []
    stage.config = conf(100)
    assert stage.reached() == [("ann", 1.0)]


def test_without_the_plugin_nothing_is_reviewed() -> None:
    stage = Stage()
    stage.config = configure("actions: allocate\ntiers: []\n")
    stage.used(ann=100.0)
    assert stage.review() is None


def test_the_figures_are_of_who_used_most() -> None:
    stage = Stage()
    assert math.isnan(stage.review().figures["each"].ratio)  # type: ignore[union-attr]
    stage.used(ann=80.0, bob=10.0)
    review = stage.review()
    assert review is not None
    ratio, used_up, at = review.figures["each"]
    assert (ratio, used_up) == (0.8, 0)
    assert at == pytest.approx(NOW + 5 * DAY)


class Announced:
    """Keeps events in place of their stream."""

    def __init__(self) -> None:
        self.events: list[tuple[Event, str]] = []

    def publish(self, event: Event, identity: str) -> None:
        self.events.append((event, identity))


def test_a_level_is_announced_and_measured() -> None:
    stage, announced, metrics = Stage(), Announced(), Metrics()
    report = Report(
        metrics=metrics,
        events=GangEvents(announced, NO_SPANS),  # type: ignore[arg-type]
        gate=Readiness().gate("cycles"),
        log=structlog.get_logger(),
    )
    stage.used(ann=80.0)
    plan = Plan(cycle=1)
    review = stage.review()
    decision = Decision(plan=plan, full_plan=plan, commands=[], statuses=[], budgets=review)
    report.sample(decision, now=NOW)
    report.events(decision, term=1, begun=NOW)
    ((event, identity),) = announced.events
    assert isinstance(event, BudgetReached)
    assert identity == "budget/each/ann//cpu/2026-11-01T00:00:00Z/80"
    assert (event.user, event.percent, event.used_hours, event.amount_hours) == ("ann", 80, 80, 100)
    assert (event.begin, event.end) == ("2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z")
    assert event.used_up == "2026-11-15T12:00:00Z"
    lines = metrics.render().decode().splitlines()
    assert 'pumice_budget_used_ratio{budget="each"} 0.8' in lines
    assert 'pumice_budget_used_up{budget="each"} 0.0' in lines
    report.leading(leads=False)
    assert not any(
        line.startswith("pumice_budget") for line in metrics.render().decode().splitlines()
    )
