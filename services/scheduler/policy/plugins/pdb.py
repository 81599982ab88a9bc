"""pdb (PL14): limits evictions to what PodDisruptionBudgets allow.

What a budget allows is recounted in every question; evictions of the same session are not
deducted before the disruption controller has seen them, as in Volcano.
"""

from collections import Counter
from collections.abc import Sequence

from pumice.plugins import Arguments, Cluster, Hooks, Task
from services.scheduler.policy.states.namespace_limits import Budgets


class Pdb:
    """Drops victims that a budget protects."""

    name = "pdb"

    def __init__(self, arguments: Arguments) -> None:
        """Take no arguments."""

    def contribute(self, hooks: Hooks, cluster: Cluster) -> None:
        """Add the protection."""
        budgets = cluster.store(Budgets)

        def unprotected(_: Task, candidates: Sequence[Task]) -> list[Task]:
            return within_budgets(budgets, candidates)

        hooks.victim_tasks(lambda running: within_budgets(budgets, running))
        hooks.preemptable(unprotected)
        hooks.reclaimable(unprotected)


def within_budgets(budgets: Budgets, tasks: Sequence[Task]) -> list[Task]:
    """Return the tasks that may be evicted, one after another in the given order.

    ⚠ A pod without labels matches no budget, but is dropped too. A refused task still consumes the
    other budgets that it matches.
    """
    spent: Counter[str] = Counter()
    allowed = []
    for task in tasks:
        if not task.labels:
            continue
        refused = False
        for key, budget in budgets.of(task.namespace).items():
            if task.name not in budget.counted and budget.protects(task.labels):
                spent[key] += 1
                refused = refused or spent[key] > budget.allowed
        if not refused:
            allowed.append(task)
    return allowed
