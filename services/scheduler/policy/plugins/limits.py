"""limits: how much users and queues may use at once (our own; Volcano has limits of queues only).

A job that would exceed a limit does not enter its queue, and none of its pods is placed. The
message names the limit. Pods that are being deleted do not count, as with a queue's capability. See
docs/limits.md.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from pumice.plugins import (
    ABSTAIN,
    Arguments,
    Cluster,
    CodeArray,
    CrossNodeVerdict,
    Hooks,
    Job,
    Opinion,
    Queue,
    Reason,
    StartBlock,
    Task,
    TaskClass,
    Vote,
)
from services.scheduler.engine.resources.amounts import total_of
from services.scheduler.policy.arguments import BadArgument
from services.scheduler.policy.limits import (
    Account,
    Limit,
    LimitAccounts,
    holder_of,
    least_need,
    with_pods,
)
from services.scheduler.policy.reservations import without_gated
from shared.api.base import describe_decode_error
from shared.jobs.limits import LimitHolder
from shared.model.quantity import is_quantity

_GATE: Final = "limits"
_TRAIT: Final = "limits.account"
_FULL: Final = Reason("a limit of its user or queue is reached", resolvable=False)


class LimitsPlugin:
    """Limits of users, namespaces and queues."""

    name = "limits"

    def __init__(self, arguments: Arguments) -> None:
        """Read `limits`, a list of limits. Raises BadArgument, which names the field."""
        try:
            stated = msgspec.convert(arguments.get("limits") or [], list[Limit], strict=False)
        except msgspec.ValidationError as error:
            raise BadArgument(f"limits: {describe_decode_error(error)}") from error
        for number, limit in enumerate(stated):
            for name, amount in limit.resources.items():
                if not is_quantity(amount):
                    raise BadArgument(f"limits[{number}].resources.{name}: {amount!r} is no amount")
        self._limits = stated

    def contribute(self, hooks: Hooks, cluster: Cluster) -> None:
        """Add the rules, if there is any limit."""
        if not self._limits:
            return
        self._cluster = cluster
        self._accounts = LimitAccounts(self._limits, cluster)
        self._counts_jobs = any(limit.jobs is not None for limit in self._limits)
        self._by_namespace = any(limit.namespaces for limit in self._limits)
        self._pods: dict[str, int] = {}
        """Job → its pods that count, for jobs that changed in this cycle."""
        hooks.trait(_TRAIT, self._trait)
        hooks.job_enqueueable(self._enqueueable)
        hooks.job_enqueued(self._enqueued)
        hooks.job_turn(self._turn)
        hooks.allocatable(self._allocatable)
        hooks.preemptive(self._preemptive)
        hooks.cross_node_predicate(self._best_effort, reasons=[_FULL])
        hooks.changed(self._changed)

    def _trait(self, task: Task) -> str:
        """Return queue and user of a task, and namespace and job where these are limited."""
        job = self._cluster.job_of(task)
        if job is None:
            return ""
        user, namespace = holder_of(job)
        by_namespace, by_job = self._by_namespace, self._counts_jobs
        names = (job.queue, user, namespace if by_namespace else "", job.key if by_job else "")
        return "\n".join(names)

    # --- entering the queue ------------------------------------------------------------------

    def _enqueueable(self, job: Job) -> Opinion:
        if job.min_resources is None:
            return ABSTAIN
        need = with_pods(job.min_resources, job.min_available)
        for account in self._accounts.of_job(job):
            why = account.exceeded_by(need, self._cluster.resources, reserved=True)
            if not why and account.limit.jobs is not None and account.entered >= account.limit.jobs:
                why = account.text_of_jobs(account.entered)
            if why:
                return Opinion(Vote.REJECT, why)
        return ABSTAIN

    def _enqueued(self, job: Job) -> None:
        for account in self._accounts.of_job(job):
            account.entered += 1
            if job.min_resources is not None:
                amounts = without_gated(job, job.min_resources)
                account.reserved = account.reserved + with_pods(amounts, job.min_available)

    # --- placing -----------------------------------------------------------------------------

    def _turn(self, job: Job) -> StartBlock | None:
        """Hold a job that exceeds a limit when it starts, whichever pods it takes."""
        need = least_need(job)
        for account in self._accounts.of_job(job):
            if not self._may_run(account, job):
                return StartBlock(_GATE, account.text_of_jobs(account.running))
            if need is not None and (why := account.exceeded_by(need, self._cluster.resources)):
                return StartBlock(_GATE, why)
        return None

    def _allocatable(self, queue: Queue, task_class: TaskClass, count: int) -> int:
        del queue  # the class has it
        return self._allowed(task_class, count)

    def _may_run(self, account: Account, job: Job) -> bool:
        """Return whether a job runs already, or may run beside the others."""
        if account.has_room_for_a_job:
            return True
        held = self._pods.get(job.key)
        return (job.allocated_count + job.waiting_count if held is None else held) > 0

    def _preemptive(self, queue: Queue, tasks: Sequence[Task]) -> bool:
        del queue
        job = self._cluster.job_of(tasks[0]) if tasks else None
        if job is None:
            return True
        need = total_of((task.task_class.request for task in tasks), self._cluster.total)
        return all(
            self._may_run(account, job) and not account.exceeded_by(need, self._cluster.resources)
            for account in self._accounts.of_job(job)
        )

    def _best_effort(self, task_class: TaskClass) -> CrossNodeVerdict | None:
        """Limit pods without requests, which are placed without asking for a queue's share."""
        accounts = self._of_class(task_class)
        if not task_class.best_effort or not accounts:
            return None

        def codes() -> CodeArray:
            full = self._allowed(task_class, 1) == 0
            return np.full(len(self._cluster.node_names), full, dtype=np.uint8)

        return CrossNodeVerdict(codes, one_by_one=True)

    def _of_class(self, task_class: TaskClass) -> Sequence[Account]:
        queue, user, namespace, _ = _names(task_class)
        return self._accounts.of(queue, LimitHolder(user, namespace))

    def _allowed(self, task_class: TaskClass, count: int) -> int:
        """Return how many of so many pods of a class may be placed, one after another."""
        job = self._cluster.job(_names(task_class)[3])
        for account in self._of_class(task_class):
            if job is not None and not self._may_run(account, job):
                return 0
            count = account.allowed(task_class.request, count)
        return count

    def _changed(self, job: Job, task_class: TaskClass, count: int) -> None:
        """Count pods that are placed, or not any more.

        A job's own figures contain its first change in a cycle already when this is called for it.
        """
        held = self._pods.get(job.key)
        before = job.allocated_count + job.waiting_count - count if held is None else held
        after = self._pods[job.key] = before + count
        for account in self._accounts.of_job(job):
            account.held = account.held + count * task_class.request
            account.running += int(after > 0) - int(before > 0)


def _names(task_class: TaskClass) -> tuple[str, str, str, str]:
    """Return queue, user, namespace and job of a class, "" for what is not limited."""
    queue, user, namespace, key = task_class.traits.get(_TRAIT, "\n\n\n").split("\n")
    return queue, user, namespace, key
