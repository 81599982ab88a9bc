"""budgets: resource-hours that queues, users and namespaces may use in a period (our own).

Once a budget is used up, pods that request its resource are not placed, and PodGroups that do not
run yet stay outside of their queue; with mode `preemptable-only`, PodGroups that agree to be
evicted still start. Nothing that runs is stopped. Accounting measures what was used. See
docs/budgets.md.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from pumice.plugins import (
    ABSTAIN,
    Arguments,
    Cluster,
    Hooks,
    IntArray,
    Job,
    Opinion,
    Queue,
    StartBlock,
    Task,
    TaskClass,
    Vote,
)
from services.scheduler.engine.resources.amounts import total_of
from services.scheduler.policy.arguments import BadArgument
from services.scheduler.policy.budgets import BudgetAccounts, BudgetLine
from services.scheduler.policy.limits import holder_of, least_need, with_pods
from shared.jobs.budgets import PLUGIN, read_budgets
from shared.jobs.limits import LimitHolder

_TRAIT: Final = "budgets.holder"
_PREEMPTABLE: Final = "preemptable"


class BudgetsPlugin:
    """Budgets of resource-hours."""

    name = "budgets"

    def __init__(self, arguments: Arguments) -> None:
        """Read `budgets`, a list of budgets. Raises BadArgument, which names the field."""
        try:
            self._budgets = read_budgets(arguments.get(PLUGIN))
        except ValueError as error:
            raise BadArgument(str(error)) from error

    def contribute(self, hooks: Hooks, cluster: Cluster) -> None:
        """Add the rules, if there is any budget."""
        if not self._budgets:
            return
        self._cluster = cluster
        self._accounts = BudgetAccounts.of_cluster(self._budgets, cluster)
        hooks.trait(_TRAIT, self._trait)
        hooks.job_enqueueable(self._enqueueable)
        hooks.job_turn(self._turn)
        hooks.allocatable(self._allocatable)
        hooks.preemptive(self._preemptive)

    def _trait(self, task: Task) -> str:
        """Return queue, user, namespace and preemptability of a task's job."""
        job = self._cluster.job_of(task)
        if job is None:
            return ""
        return "\n".join((job.queue, *holder_of(job), _PREEMPTABLE if job.preemptable else ""))

    def _enqueueable(self, job: Job) -> Opinion:
        if job.min_resources is None:
            return ABSTAIN
        line = self._stopping(job, with_pods(job.min_resources, job.min_available))
        return ABSTAIN if line is None else Opinion(Vote.REJECT, line.text())

    def _turn(self, job: Job) -> StartBlock | None:
        need = least_need(job)
        line = None if need is None else self._stopping(job, need)
        return None if line is None else StartBlock(PLUGIN, line.text())

    def _allocatable(self, queue: Queue, task_class: TaskClass, count: int) -> int:
        del queue  # the class has it
        name, user, namespace, agrees = task_class.traits.get(_TRAIT, "\n\n\n").split("\n")
        lines = self._accounts.used_up(
            name, LimitHolder(user, namespace), preemptable=agrees == _PREEMPTABLE
        )
        return 0 if self._first(lines, task_class.request) else count

    def _preemptive(self, queue: Queue, tasks: Sequence[Task]) -> bool:
        del queue
        job = self._cluster.job_of(tasks[0]) if tasks else None
        if job is None:
            return True
        empty = np.zeros_like(self._cluster.total)
        need = total_of((task.task_class.request for task in tasks), empty)
        return self._stopping(job, need) is None

    def _stopping(self, job: Job, need: IntArray) -> BudgetLine | None:
        """Return the used-up budget that keeps a job from starting pods with these requests."""
        lines = self._accounts.used_up(job.queue, holder_of(job), preemptable=job.preemptable)
        return self._first(lines, need)

    def _first(self, lines: Iterator[BudgetLine], need: IntArray) -> BudgetLine | None:
        for line in lines:
            at = self._cluster.resource(line.resource)
            if at is not None and need[at] > 0:
                return line
        return None
