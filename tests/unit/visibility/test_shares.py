"""Shares of queues and users as a report."""

import pytest

from services.scheduler.config import PluginOption, SchedulerConfig, Tier
from services.scheduler.engine.jobs.records import Queue
from services.visibility.queries.gangs import BadQuery
from services.visibility.queries.shares import shares, shares_report
from shared.api.usage_reports import UsageReportSpec
from shared.contracts.usage import QueueUsage

WEEK = 604_800.0
FAIRSHARE = PluginOption(name="fairshare", flags={}, arguments={"fairshare.resourceKey": "cpu"})
CONF = SchedulerConfig(actions=(), tiers=(Tier(plugins=(FAIRSHARE,)),))


def queue(name: str, weight: int, parent: str = "", shares_of: str = "") -> Queue:
    made = Queue()
    made.name, made.weight, made.parent = name, weight, parent
    made.annotations = {"pumice.dev/user-shares": shares_of} if shares_of else {}
    return made


def published(queue_name: str, **cpu: float) -> QueueUsage:
    users = {user: {"cpu": amount} for user, amount in cpu.items()}
    return QueueUsage(queue=queue_name, at=0.0, half_life_s=WEEK, users=users)


QUEUES = {
    found.name: found
    for found in (queue("dev", 1), queue("research", 3, shares_of="cy=2"), queue("lab", 1, "dev"))
}
USAGE = {
    "research": published("research", ann=300.0, bob=100.0),
    "lab": published("lab", dan=600.0),
}


def rows(now: float = 0.0):
    return shares(QUEUES, USAGE, CONF, now=now)


def test_queues_stand_behind_their_parents_with_their_users():
    assert [(row.queue, row.user, row.depth) for row in rows()] == [
        ("dev", "", 0),
        ("lab", "", 1),
        ("lab", "dan", 2),
        ("research", "", 0),
        ("research", "ann", 1),
        ("research", "bob", 1),
        ("research", "cy", 1),
    ]


def test_usage_of_a_queue_contains_that_of_the_queues_below():
    found = {(row.queue, row.user): row for row in rows()}
    dev, ann, cy = found["dev", ""], found["research", "ann"], found["research", "cy"]
    assert (dev.raw_shares, dev.norm_shares, dev.raw_usage) == (1.0, 0.25, 600.0)
    assert (dev.norm_usage, dev.effective_usage) == (0.6, 0.6)
    assert (ann.norm_shares, ann.norm_usage, ann.effective_usage) == (0.25, 0.3, 0.75)
    assert (cy.raw_shares, cy.raw_usage) == (2.0, 0.0)


def test_fair_share_ranks_users_as_the_plugin_orders_them():
    found = {row.user: row.fair_share for row in rows() if row.user}
    assert found == {"cy": 1.0, "bob": 0.75, "ann": 0.5, "dan": 0.25}


def test_usage_decays_until_now():
    assert {row.user: row.raw_usage for row in rows(WEEK)}["dan"] == pytest.approx(300.0)


def test_a_report_has_the_rows_of_a_user_or_a_queue_in_pages():
    def page(**fields):
        return shares_report(UsageReportSpec(report="shares", **fields), rows(), 0.0)

    assert [row.queue for row in page(user="ann").shares] == ["research"]
    assert {row.queue for row in page(queue="lab").shares} == {"lab"}
    first = page(limit=5)
    assert [*first.shares, *page(limit=5, after=first.next).shares] == list(rows())
    assert page(limit=5, after=first.next).next == ""
    for field, wrong in (
        ("namespace", {"namespace": "ns"}), ("after", {"after": "x"}), ("limit", {"limit": 0}),
    ):  # fmt: skip
        with pytest.raises(BadQuery) as refused:
            page(**wrong)
        assert refused.value.field == f"spec.{field}"
