"""proportion (PL05): queues share the cluster by weight, within their requests and limits.

⚠ Only queues that own jobs take part. A queue is overused if its allocation reaches its deserved
amounts in every dimension.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from pumice.plugins import (
    PERMIT,
    Arguments,
    Cluster,
    FloatArray,
    Hooks,
    IntArray,
    Job,
    Opinion,
    Queue,
    QueueFigures,
    Task,
    TaskClass,
    Vote,
)
from services.scheduler.engine.resources.amounts import total_of
from services.scheduler.policy.arguments import boolean
from services.scheduler.policy.reservations import leaving, sharing_by_queue, without_gated
from services.scheduler.policy.shares import (
    dominant_share,
    exceeded,
    exceeding_of,
    fits,
    requested_by,
    room_for,
    shortfalls,
    water_fill,
)


class _Account:
    """Allocated and requested amounts and the limit of one queue in this session."""

    __slots__ = ("allocated", "deserved", "elastic", "inqueue", "leaving", "limit", "request")

    def __init__(self, sums: IntArray, limit: FloatArray) -> None:
        self.allocated, self.request, self.inqueue, self.elastic = sums
        self.limit = limit
        """The queue's capability and the cluster less others' guarantees, whichever is smaller."""
        self.deserved: FloatArray = np.zeros(len(limit))
        self.leaving: IntArray = np.zeros(len(limit), np.int64)
        """Amounts of terminating pods, where they count against the limit."""

    def share(self) -> float:
        """Return the largest allocated/deserved."""
        return dominant_share(self.allocated, self.deserved)


class Proportion:
    """Weighted fair sharing between queues."""

    name = "proportion"

    def __init__(self, arguments: Arguments) -> None:
        """Read our own `countReleasing`: whether terminating pods count against limits."""
        self._counts_releasing = boolean(arguments, "countReleasing", default=False)
        self._accounts: dict[str, _Account] = {}
        self._exceeding: dict[str, tuple[IntArray, bool]] = {}
        """Queue → whether it exceeds what it deserves, and for which allocated amounts."""

    def contribute(self, hooks: Hooks, cluster: Cluster) -> None:
        """Add the sharing rules."""
        self._cluster = cluster
        self._accounts = _open_accounts(cluster)
        if self._counts_releasing:
            for name, amounts in cluster.rollup(leaving).sums().items():
                self._accounts[name].leaving = amounts
        hooks.queue_order(self._place)
        hooks.overused(self._overused)
        hooks.allocatable(self._allocatable)
        hooks.preemptive(self._preemptive)
        hooks.reclaimable(self._beyond_deserved, among=self._has_too_much)
        hooks.job_enqueueable(self._enqueueable)
        hooks.job_enqueued(self._enqueued)
        hooks.changed(self._changed)
        hooks.queue_room(self._left)
        hooks.queue_figures(self._figures)

    def _left(self, queue: Queue) -> FloatArray:
        account = self._accounts[queue.name]
        left: FloatArray = account.deserved - account.allocated
        return left

    def _figures(self) -> Iterator[QueueFigures]:
        """Yield the figures of the accounts; a queue without jobs has zero amounts."""
        nothing = np.zeros_like(self._cluster.total)
        for name, queue in self._cluster.queues.items():
            account = self._accounts.get(name)
            yield QueueFigures(
                name=name,
                allocated=account.allocated if account else nothing,
                request=account.request if account else nothing,
                inqueue=account.inqueue if account else nothing,
                deserved=account.deserved if account else nothing,
                share=account.share() if account else 0.0,
                overused=self._overused(queue) if account else False,
                weight=queue.weight,
            )

    def _place(self, queue: Queue) -> tuple[int, float]:
        account = self._accounts.get(queue.name)
        return -queue.priority, account.share() if account else 0.0

    def _overused(self, queue: Queue) -> bool:
        account = self._accounts[queue.name]
        return fits(account.deserved, account.allocated)

    def _allocatable(self, queue: Queue, task_class: TaskClass, count: int) -> int:
        if not queue.is_open:
            return 0
        account = self._accounts[queue.name]
        count = room_for(account.deserved, account.allocated, task_class.request, count)
        if self._counts_releasing:
            in_use = account.allocated + account.leaving
            count = room_for(account.limit, in_use, task_class.request, count)
        return count

    def _preemptive(self, queue: Queue, tasks: Sequence[Task]) -> bool:
        account = self._accounts.get(queue.name)
        if account is None or not queue.is_open:
            return False
        request = requested_by(tasks, account.allocated)
        return not exceeding_of(account.allocated + request, account.deserved, request)

    def _has_too_much(self, job: Job) -> bool:
        account = self._accounts.get(job.queue)
        if account is None:
            return False
        allocated = account.allocated
        known = self._exceeding.get(job.queue)
        if known is None or known[0] is not allocated:
            # Accounts are given other amounts, and never have theirs changed (`_changed`).
            known = allocated, not fits(allocated, account.deserved)
            self._exceeding[job.queue] = known
        return known[1]

    def _beyond_deserved(self, _: Task, candidates: Sequence[Task]) -> list[Task]:
        left: dict[str, IntArray] = {}
        victims = []
        for task in candidates:
            job = self._cluster.job_of(task)
            account = self._accounts.get(job.queue) if job else None
            if job is None or account is None:
                continue
            allocated = left.get(job.queue, account.allocated)
            if not fits(allocated, account.deserved):
                left[job.queue] = allocated - task.task_class.request
                victims.append(task)
        return victims

    def _enqueueable(self, job: Job) -> Opinion:
        queue, account = self._cluster.queue(job.queue), self._accounts[job.queue]
        if queue is None or not queue.is_open:
            return Opinion(Vote.REJECT, f"queue {job.queue} is not open")
        if job.min_resources is None:
            return PERMIT
        then = job.min_resources + account.allocated + account.inqueue - account.elastic
        short = exceeding_of(then, account.limit, job.min_resources)
        if not short:
            return PERMIT
        names = ", ".join(f"insufficient {self._cluster.resources[dim]}" for dim in short)
        left = account.limit - (then - job.min_resources)
        return Opinion(
            Vote.REJECT,
            f"queue resource quota insufficient: {names}",
            shortfalls(self._cluster.resources, short, job.min_resources, left),
        )

    def _enqueued(self, job: Job) -> None:
        if job.min_resources is not None:
            account = self._accounts[job.queue]
            account.inqueue = account.inqueue + without_gated(job, job.min_resources)

    def _changed(self, job: Job, task_class: TaskClass, count: int) -> None:
        account = self._accounts[job.queue]
        account.allocated = account.allocated + count * task_class.request


def _open_accounts(cluster: Cluster) -> dict[str, _Account]:
    total = cluster.total
    queues = cluster.queues
    guaranteed = total_of((q.guarantee for q in queues.values()), total)
    left = exceeded(total, guaranteed)
    accounts = {}
    for name, sums in sharing_by_queue(cluster).items():
        limit = (left + queues[name].guarantee).astype(np.float64)
        for resource, amount in queues[name].capability.items():
            dim = cluster.resource(resource)
            if dim is not None:
                limit[dim] = min(limit[dim], amount)
        accounts[name] = _Account(sums, limit)
    if accounts:
        deserved = water_fill(
            total.astype(np.float64),
            np.array([queues[name].weight for name in accounts], dtype=np.float64),
            np.stack([a.request for a in accounts.values()]).astype(np.float64),
            np.stack([a.limit for a in accounts.values()]),
            np.stack([queues[name].guarantee for name in accounts]).astype(np.float64),
        )
        for account, row in zip(accounts.values(), deserved, strict=True):
            account.deserved = row
    return accounts
