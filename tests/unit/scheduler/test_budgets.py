"""Plugin `budgets`: what used up its resource-hours starts nothing more, and is told so."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from pumice.testing import Cluster, binds_of, evictions_of
from services.scheduler.engine.plan import Plan
from services.scheduler.policy.arguments import BadArgument
from services.scheduler.policy.budgets import BudgetAccounts
from services.scheduler.policy.plugins.budgets import BudgetsPlugin
from services.scheduler.policy.states.past_usage import PastUsage
from shared.api import keys, kinds
from shared.contracts.usage import PeriodUsage, QueueUsage
from shared.jobs.budgets import UsageBudget, read_budgets, sums_needed

CONF = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - {name: gang}
  - {name: budgets, arguments: {budgets: %s}}
- plugins:
  - {name: predicates}
"""
GPU = "nvidia.com/gpu"
NOW = datetime(2026, 11, 10, 12, tzinfo=UTC).timestamp()
MONTH = datetime(2026, 11, 1, tzinfo=UTC).timestamp()
YESTERDAY = datetime(2026, 11, 9, tzinfo=UTC).timestamp()
DAY = 86_400.0
EACH = {"name": "each", "users": ["*"], "period": "month", "hours": {GPU: 100}}


def cluster(*budgets: dict[str, Any]) -> Cluster:
    world = Cluster(CONF % json.dumps(budgets), queue=False)
    world.node("n", cpu="32", nvidia_com__gpu="16")
    world.queue("root").queue("team", parent="root")
    return world.queue("research", parent="team").queue("other", parent="team")


def used(
    world: Cluster, *rows: tuple[str, str, float], since: float = MONTH, at: float = NOW
) -> None:
    """State the GPU-hours of (queue, user) in namespace ns, as accounting does."""
    messages = {}
    for queue in {row[0] for row in rows}:
        users = {user: {"ns": {GPU: hours}} for name, user, hours in rows if name == queue}
        sums = PeriodUsage(begin=since, users=users)
        messages[queue] = QueueUsage(queue=queue, at=at, half_life_s=DAY, users={}, periods=(sums,))
    world.cluster_state.store(PastUsage).replace(messages)


def job(
    world: Cluster,
    name: str,
    user: str = "ann",
    *,
    gpus: int = 1,
    queue: str = "research",
    phase: str = "Inqueue",
    node: str = "",
    preemptable: bool = False,
) -> None:
    notes = {keys.USER: user} | ({keys.PREEMPTABLE: "true"} if preemptable else {})
    meta = {"name": name, "namespace": "ns", "uid": f"uid-ns/{name}", "annotations": notes}
    least = {"cpu": "1"} | ({GPU: str(gpus)} if gpus else {})
    spec = {"minMember": 1, "queue": queue, "minResources": least}
    world.put(kinds.PODGROUP, {"metadata": meta, "spec": spec, "status": {"phase": phase}})
    world.pod(f"{name}-0", name, node=node, requests=least)


def started(plan: Plan) -> set[str]:
    return {pod.rpartition("-")[0] for pod in binds_of(plan)}


def why(plan: Plan, name: str) -> tuple[str, str]:
    (found,) = (e for e in plan.explanations if e.job == f"ns/{name}")
    return found.gate, found.message


def test_who_used_up_a_budget_starts_nothing_more_and_is_told_until_when() -> None:
    world = cluster(EACH)
    used(world, ("research", "ann", 60.0), ("other", "ann", 40.5), ("research", "bob", 99.9))
    job(world, "runs", "ann", node="n", phase="Running")
    job(world, "waits", "ann")
    job(world, "theirs", "bob")
    plan = world.step(now=NOW)
    assert started(plan) == {"theirs"}
    assert not evictions_of(plan)
    assert why(plan, "waits") == (
        "budgets",
        (
            "budget each: user ann used 100.5 of 100 nvidia.com/gpu-hours in queue root since "
            "2026-11-01; the next period begins on 2026-12-01"
        ),
    )


def test_a_job_does_not_enter_a_queue_whose_budget_is_used_up() -> None:
    world = cluster({**EACH, "queue": "team", "users": []})
    used(world, ("research", "ann", 50.0), ("other", "bob", 50.0))
    job(world, "waits", "eve", phase="Pending")
    gate, message = why(world.step(now=NOW), "waits")
    assert (gate, message.partition(" of ")[0]) == (
        "enqueue",
        "budget each: all users together used 100",
    )


def test_what_requests_nothing_of_the_resource_starts() -> None:
    world = cluster(EACH)
    used(world, ("research", "ann", 100.0))
    job(world, "cpus", "ann", gpus=0)
    assert started(world.step(now=NOW)) == {"cpus"}


def test_preemptable_groups_start_where_the_mode_says_so() -> None:
    world = cluster({**EACH, "mode": "preemptable-only"})
    used(world, ("research", "ann", 100.0))
    job(world, "agrees", preemptable=True)
    job(world, "refuses")
    assert started(world.step(now=NOW)) == {"agrees"}


def test_a_budget_may_hold_for_each_namespace() -> None:
    world = cluster({**EACH, "users": [], "namespaces": ["ns"]})
    used(world, ("research", "ann", 70.0), ("other", "bob", 30.0))
    job(world, "waits", "eve")
    message = why(world.step(now=NOW), "waits")[1]
    assert message.startswith("budget each: namespace ns used 100 of 100")


def test_budgets_of_two_periods_count_beside_each_other() -> None:
    week = {**EACH, "name": "week", "period": "week", "hours": {GPU: 10}}
    world = cluster(EACH, week)
    used(world, ("research", "ann", 50.0), since=YESTERDAY)  # it is a Monday
    job(world, "waits")
    assert why(world.step(now=NOW), "waits")[1].startswith("budget week: user ann used 50 of 10")


def test_the_first_budget_of_a_period_that_names_a_user_counts() -> None:
    world = cluster({**EACH, "name": "of-ann", "users": ["ann"], "hours": {GPU: 500}}, EACH)
    used(world, ("research", "ann", 200.0), ("research", "bob", 200.0))
    job(world, "more", "ann")
    job(world, "waits", "bob")
    assert started(world.step(now=NOW)) == {"more"}


def test_a_sum_of_an_earlier_period_counts_nothing_and_no_sum_stops_nobody() -> None:
    world = cluster(EACH)
    job(world, "first")
    assert started(world.step(now=NOW)) == {"first"}
    used(world, ("research", "ann", 200.0))
    job(world, "second")
    assert started(world.step(now=NOW + 30 * DAY)) == {"second"}


def test_dates_are_a_period_and_outside_of_them_nothing_counts() -> None:
    dates = {"firstDay": "2026-11-01", "lastDay": "2026-11-10"}
    world = cluster({**EACH, "period": None, **dates})
    used(world, ("research", "ann", 200.0))
    job(world, "waits")
    assert why(world.step(now=NOW), "waits")[1].endswith("the next period begins on 2026-11-11")
    assert started(world.step(now=NOW + DAY)) == {"waits"}


def accounts(*rows: tuple[float, float]) -> BudgetAccounts:
    """Return the accounts of one budget for (begin, GPU-hours) of ann."""
    periods = tuple(
        PeriodUsage(begin=begin, users={"ann": {"ns": {GPU: hours}}}) for begin, hours in rows
    )
    message = QueueUsage(queue="research", at=NOW, half_life_s=DAY, users={}, periods=periods)
    return BudgetAccounts(read_budgets([EACH]), {"research": message}, lambda _: "", NOW)


def test_a_budget_names_the_day_on_which_it_is_used_up_at_the_present_rate() -> None:
    (line,) = accounts((MONTH, 80.0), (YESTERDAY, 12.0)).lines()
    assert line.ratio == 0.8
    assert line.used_up_at == pytest.approx(NOW + 2.5 * DAY)  # 8 a day, for 20
    assert line.text().endswith("; at the present rate it is used up on 2026-11-13")


def test_a_budget_that_lasts_names_no_day() -> None:
    (line,) = accounts((MONTH, 80.0), (YESTERDAY, 0.1)).lines()
    assert line.text() == (
        "budget each: user ann used 80 of 100 nvidia.com/gpu-hours in queue root since 2026-11-01"
    )


def test_sums_are_needed_since_the_begin_of_each_period_and_of_yesterday() -> None:
    dates = {"firstDay": "2027-01-01", "lastDay": "2027-02-01", "period": None}
    budgets = read_budgets(
        [EACH, {**EACH, "name": "q", "period": "quarter"}, {**EACH, "name": "later", **dates}]
    )
    october = datetime(2026, 10, 1, tzinfo=UTC).timestamp()
    assert sums_needed(budgets, NOW) == (october, MONTH, YESTERDAY)
    assert sums_needed(budgets[2:], NOW) == ()


@pytest.mark.parametrize(
    ("period", "begin", "end"),
    [
        ("day", "2026-11-10", "2026-11-11"),
        ("week", "2026-11-09", "2026-11-16"),
        ("month", "2026-11-01", "2026-12-01"),
        ("quarter", "2026-10-01", "2027-01-01"),
    ],
)
def test_periods_are_those_of_the_calendar_in_utc(period: str, begin: str, end: str) -> None:
    (budget,) = read_budgets([{**EACH, "period": period}])
    span = budget.span(NOW)
    assert span is not None
    assert [datetime.fromtimestamp(at, UTC).date().isoformat() for at in span] == [begin, end]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"period": "year"}, r"period"),
        ({"period": None}, r"budgets\[0\].period: state either `period`, or"),
        ({"firstDay": "2026-11-01"}, r"budgets\[0\].period: state either `period`, or"),
        ({"hours": {}}, "no resource is named"),
        ({"hours": {GPU: "many"}}, r"budgets\[0\].hours.nvidia.com/gpu: 'many' is no number"),
        ({"hours": {GPU: 0}}, "is no number of hours"),
        ({"name": ""}, "is empty or not unique"),
        ({"queu": "a"}, "unknown field"),
    ],
)
def test_a_budget_that_cannot_be_read_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(BadArgument, match=said):
        BudgetsPlugin({"budgets": [{**EACH, **change}]})


def test_two_budgets_have_two_names() -> None:
    with pytest.raises(ValueError, match=r"budgets\[1\].name"):
        read_budgets([EACH, EACH])


def test_amounts_may_be_quantities() -> None:
    (budget,) = read_budgets([{**EACH, "hours": {"memory": "10Ti", GPU: 2.5}}])
    assert isinstance(budget, UsageBudget)
    assert budget.amounts == {"memory": 10 * 2.0**40, GPU: 2.5}
