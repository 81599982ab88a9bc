"""pdb (PL14): evicts no more pods than PodDisruptionBudgets allow.

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
    """Return the tasks that may go, one after another in the order given.

    ⚠ A pod without labels matches no budget, and yet is dropped. A task that is refused has used
    up the budgets that it nevertheless matches.
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
