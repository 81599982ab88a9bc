"""A budget from the first job to the Event on its queue, on a real API server with accounting."""

from pathlib import Path

import pytest

from services.scheduler.config import DEFAULT_TEXT
from tests.integration.scenarios.playing import whole_system
from tests.integration.scenarios.scene import Scene, task
from tests.support.wait import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]

BUDGET = "[{name: tiny, queue: default, period: quarter, hours: {cpu: 0.000001}}]"
BUDGETED = DEFAULT_TEXT.replace(
    "  - name: gang\n",
    f"  - name: gang\n  - {{name: budgets, arguments: {{budgets: {BUDGET}}}}}\n",
)
PUBLISHED_S = 120.0
"""Accounting publishes once a minute."""


async def a_used_up_budget_stops_what_starts_and_nothing_that_runs(scene: Scene) -> None:
    await scene.submit("first", task("a", 1))
    await scene.phase("first", "Running")

    async def reasons() -> set[str]:
        events = await scene.api.items("events", "default")
        about = [e for e in events if e["involvedObject"]["kind"] == "Queue"]
        return {e["reason"] for e in about if "budget tiny" in e["message"]}

    async def is_used_up() -> bool:
        return "BudgetUsedUp" in await reasons()

    await until(is_used_up, deadline_s=PUBLISHED_S, every_s=1.0, describe="BudgetUsedUp")
    await scene.submit("second", task("a", 1))
    await scene.condition("second", "Unschedulable", text="budget tiny: all users together used")
    await scene.phase("first", "Running")


async def test_a_used_up_budget_stops_what_starts_and_nothing_that_runs(tmp_path: Path) -> None:
    async with whole_system(tmp_path, BUDGETED, "--with", "accounting") as stage:
        await stage.play(a_used_up_budget_stops_what_starts_and_nothing_that_runs)
