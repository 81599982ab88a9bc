"""Budgets as a report: what is used of each, for whom, and when it is used up."""

from datetime import UTC, datetime

from services.scheduler.config import PluginOption, SchedulerConfig, Tier
from services.scheduler.engine.jobs.records import Queue
from services.visibility.queries.budgets import budgets_report
from shared.api.usage_reports import BUDGETS, BudgetRow, UsageReportSpec
from shared.contracts.usage import PeriodUsage, QueueUsage

NOW = datetime(2026, 11, 10, 12, tzinfo=UTC).timestamp()
MONTH = datetime(2026, 11, 1, tzinfo=UTC).timestamp()
YESTERDAY = datetime(2026, 11, 9, tzinfo=UTC).timestamp()
STATED = [
    {"name": "team", "queue": "team", "period": "month", "hours": {"cpu": 100}},
    {"name": "each", "users": ["*"], "period": "month", "hours": {"cpu": 50}},
]
OPTION = PluginOption(name="budgets", flags={}, arguments={"budgets": STATED})
CONF = SchedulerConfig(actions=(), tiers=(Tier(plugins=(OPTION,)),))


def queue(name: str, parent: str = "") -> Queue:
    made = Queue()
    made.name, made.parent = name, parent
    return made


QUEUES = {each.name: each for each in (queue("root"), queue("team", "root"), queue("a", "team"))}


def rows(**query: str) -> list[BudgetRow]:
    users = {"ann": {"ns": {"cpu": 40.0}}, "bob": {"ns": {"cpu": 30.0}}}
    lately = {"ann": {"ns": {"cpu": 15.0}}}
    periods = (PeriodUsage(begin=MONTH, users=users), PeriodUsage(begin=YESTERDAY, users=lately))
    usage = QueueUsage(queue="a", at=NOW, half_life_s=1.0, users={}, periods=periods)
    spec = UsageReportSpec(report=BUDGETS, **query)
    return list(budgets_report(spec, QUEUES, {"a": usage}, CONF, now=NOW).budgets)


def test_each_budget_has_a_row_per_holder() -> None:
    assert [(row.budget, row.user, row.used_hours, row.amount_hours) for row in rows()] == [
        ("team", "", 70.0, 100.0),
        ("each", "ann", 40.0, 50.0),
        ("each", "bob", 30.0, 50.0),
    ]
    (_, ann, bob) = rows()
    assert (ann.begin, ann.end) == ("2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z")
    assert (ann.used_up, bob.used_up) == ("2026-11-11T12:00:00Z", None)


def test_a_query_for_a_user_has_what_holds_for_this_user_alone() -> None:
    assert [row.budget for row in rows(user="ann")] == ["each"]
    assert rows(user="eve") == []


def test_a_query_for_a_queue_has_the_budgets_of_this_queue() -> None:
    assert [row.budget for row in rows(queue="team")] == ["team"]


def test_without_the_plugin_there_are_no_budgets() -> None:
    spec, empty = UsageReportSpec(report=BUDGETS), SchedulerConfig(actions=(), tiers=())
    assert budgets_report(spec, QUEUES, {}, empty, now=NOW).budgets == ()
