"""capacity (PL06): queues with deserved, guaranteed and maximum amounts.

With `enableHierarchy` queues form a tree: jobs are submitted to its leaves, limits hold on every
level, and `ancestorReclaimLevel` lets a branch take back what its parents deserve.

⚠ There is no Overused: a queue above its deserved amounts may still use idle resources. ⚠ A queue
without deserved amounts is best effort: its share is always 1.
"""

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pumice.plugins import (
    PERMIT,
    Arguments,
    Cluster,
    EvictionContext,
    EvictionKind,
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
from services.scheduler.engine.resources.dimensions import PODS_DIM
from services.scheduler.policy.arguments import boolean, integer
from services.scheduler.policy.capacity_accounts import (
    Accounts,
    QueueAccount,
    common_depth,
    compare,
    flat,
    tree,
)
from services.scheduler.policy.device_claims import DeviceQuotas
from services.scheduler.policy.reservations import leaving, sharing_by_queue, without_gated
from services.scheduler.policy.shares import exceeding_of, requested_by, room_for, shortfalls
from services.scheduler.policy.states.queue_gates import QueueGates
from shared.model.resources import EPSILON
from shared.model.status import TaskStatus

_NOT_READY = Opinion(Vote.REJECT, "the hierarchy of queues is not sound")
_RELEASING = "countReleasing"
_DEVICES = "capacity.DynamicResourceAllocationEnable"
_CAPACITIES = "capacity.DRAConsumableCapacityEnable"
_NOT_A_LEAF = Opinion(Vote.REJECT, "jobs can enter queues without children only")


class Capacity:
    """Sharing between queues by stated amounts."""

    name = "capacity"

    def __init__(self, arguments: Arguments) -> None:
        """Read `ancestorReclaimLevel` (at least 0), and what else counts against limits.

        These are quotas of devices and of their shared capacities, and (our own `countReleasing`)
        terminating pods.
        """
        self._counts_releasing = boolean(arguments, _RELEASING, default=False)
        self._counts_devices = boolean(arguments, _DEVICES, default=False)
        self._counts_capacities = boolean(arguments, _CAPACITIES, default=False)
        self._devices: DeviceQuotas | None = None
        self._levels = max(0, integer(arguments, "ancestorReclaimLevel", 0))
        self._accounts: Accounts = {}
        self._deserving: dict[str, dict[int, bool]] = {}
        """Queue → class of task → whether the queue deserves any of what the task holds."""
        self._exceeding: dict[str, tuple[IntArray, bool]] = {}
        """Queue → whether it exceeds what it deserves, and for which allocated amounts."""
        self._ready = True
        self._hierarchy = False

    def contribute(self, hooks: Hooks, cluster: Cluster) -> None:
        """Add the sharing rules."""
        self._cluster = cluster
        self._gates = cluster.store(QueueGates)
        for task in self._gates.reserving():
            if (job := cluster.job_of(task)) is not None:
                self._gates.reserve(job.queue, task.task_class.request)
        self._hierarchy = hooks.enabled("enableHierarchy")
        self._open()
        if self._counts_devices:
            self._devices = DeviceQuotas(
                cluster, self._accounts, capacities=self._counts_capacities
            )
        if self._ready:
            hooks.queue_order(self._place)
            if self._hierarchy:
                hooks.victim_queue_order(self._near_first)
        hooks.allocatable(self._allocatable)
        hooks.preemptive(self._preemptive)
        hooks.reclaimable(self._reclaimable, among=self._has_too_much)
        hooks.evictable(self._evictable)
        hooks.job_enqueueable(self._enqueueable)
        hooks.job_enqueued(self._enqueued)
        hooks.changed(self._changed)
        hooks.queue_room(self._left)
        hooks.queue_figures(self._figures)

    def _left(self, queue: Queue) -> FloatArray:
        levels = self._accounts[queue.name].lineage() if self._ready else ()
        room = [level.limit - level.allocated for level in levels]
        if room:
            room[0] = room[0] - self._gates.total(queue.name)
        return np.minimum.reduce(room) if room else np.zeros(len(self._cluster.total))

    def _open(self) -> None:
        cluster = self._cluster
        queues = cluster.queues
        sums = sharing_by_queue(cluster)
        if not self._hierarchy:
            self._accounts = flat(queues, sums, cluster.total, self._stated())
            self._add_leaving()
            return
        accounts = tree(queues, sums, cluster.total, self._stated())
        self._ready = accounts is not None
        self._accounts = accounts or {}
        self._add_leaving()

    def _add_leaving(self) -> None:
        if self._counts_releasing:
            for name, amounts in self._cluster.rollup(leaving).sums().items():
                for level in self._accounts[name].lineage() if self._ready else ():
                    level.leaving = level.leaving + amounts

    def _stated(self) -> dict[str, dict[int, int]]:
        """Return the capabilities of queues, by dimension."""
        find = self._cluster.resource
        return {
            name: {
                dim: amount
                for resource, amount in queue.capability.items()
                if (dim := find(resource)) is not None
            }
            for name, queue in self._cluster.queues.items()
        }

    def _figures(self) -> Iterator[QueueFigures]:
        """Yield the figures of the accounts, and of queues without jobs."""
        if not self._ready:
            return
        queues = self._cluster.queues
        total = self._cluster.total
        idle = {name: np.zeros((4, len(total)), np.int64) for name in queues}
        for name in self._accounts:
            del idle[name]
        for account in (
            *self._accounts.values(),
            *flat(queues, idle, total, self._stated()).values(),
        ):
            states = self._hierarchy or bool(queues[account.name].capability)
            yield QueueFigures(
                name=account.name,
                allocated=account.allocated,
                request=account.request,
                inqueue=account.inqueue,
                deserved=account.deserved,
                share=account.share,
                overused=account.share > 1,
                capacity=account.capability if states else None,
                real_capacity=account.limit,
            )

    # --- orders ------------------------------------------------------------------------------

    def _place(self, queue: Queue) -> tuple[Any, ...]:
        account = self._accounts.get(queue.name)
        if account is None:
            return (-queue.priority, 0.0, False)
        if self._hierarchy:
            return (-queue.priority, _BY_BRANCH(account))
        return (-queue.priority, *account.rank)

    def _near_first(self, queue: Queue, preemptor: Queue) -> int:
        """Order victims' queues: those that share the most ancestors with the preemptor first."""
        return -common_depth(self._accounts[queue.name], self._accounts[preemptor.name])

    # --- limits ------------------------------------------------------------------------------

    def _allocatable(self, queue: Queue, task_class: TaskClass, count: int) -> int:
        if not queue.is_open or not self._ready:
            return 0
        account = self._accounts[queue.name]
        if account.children:
            return 0
        reserved = self._gates.reserved(queue.name, task_class)
        for level in account.lineage():
            count = room_for(
                level.limit, level.allocated + level.leaving + reserved, task_class.request, count
            )
            reserved = 0  # of its own queue, as in Volcano, and not of its ancestors
        return self._devices.allowed(queue, task_class, count) if self._devices else count

    def _enqueueable(self, job: Job) -> Opinion:
        if not self._ready:
            return _NOT_READY
        account, queue = self._accounts[job.queue], self._cluster.queue(job.queue)
        if account.children:
            return _NOT_A_LEAF
        if queue is None or not queue.is_open:
            return Opinion(Vote.REJECT, f"queue {job.queue} is not open")
        if job.min_resources is None:
            return PERMIT
        for level in account.lineage():
            then = job.min_resources + level.allocated + level.inqueue - level.elastic
            short = exceeding_of(then, level.limit, job.min_resources)
            if short:
                names = ", ".join(f"insufficient {self._cluster.resources[dim]}" for dim in short)
                left = level.limit - (then - job.min_resources)
                return Opinion(
                    Vote.REJECT,
                    f"queue resource quota insufficient: {names}",
                    shortfalls(self._cluster.resources, short, job.min_resources, left),
                )
        return (self._devices.objection(job) if self._devices else None) or PERMIT

    def _enqueued(self, job: Job) -> None:
        account = self._accounts.get(job.queue)
        if account is not None and job.min_resources is not None:
            account.reserve(without_gated(job, job.min_resources))
        if account is not None and self._devices is not None:
            self._devices.enqueued(job)

    def _changed(self, job: Job, task_class: TaskClass, count: int) -> None:
        account = self._accounts.get(job.queue)
        if account is not None:
            account.hold(count * task_class.request)
            if self._gates.reserves(task_class):
                self._gates.reserve(job.queue, -count * task_class.request)
            if self._devices is not None:
                self._devices.changed(job, task_class, count)

    # --- preempt and reclaim -----------------------------------------------------------------

    def _preemptive(self, queue: Queue, tasks: Sequence[Task]) -> bool:
        account = self._accounts.get(queue.name)
        if not self._ready or not queue.is_open or account is None:
            return False
        request = requested_by(tasks, account.allocated)
        if exceeding_of(account.allocated + request, account.limit, request):
            return False
        levels = self._levels if self._hierarchy else 0
        return any(
            _within_deserved(level, request) for level in (account, *account.near_ancestors(levels))
        )

    def _has_too_much(self, job: Job) -> bool:
        """Tell whether a job's queue exceeds its deserved amounts, or has none that apply."""
        account = self._accounts.get(job.queue)
        if account is None:
            return False
        if self._exceeds(account):
            return True
        known = self._deserving.setdefault(account.name, {})
        for task in job.by_status[TaskStatus.RUNNING].values():
            task_class = task.task_class
            deserves_some = known.get(task_class.id)
            if deserves_some is None:
                deserves_some = _names_some(task_class.request, account.deserved)
                known[task_class.id] = deserves_some
            if not deserves_some:
                return True
        return False

    def _exceeds(self, account: QueueAccount) -> bool:
        """Tell whether a queue exceeds its deserved amounts, for all its jobs at once."""
        allocated = account.allocated
        known = self._exceeding.get(account.name)
        if known is None or known[0] is not allocated:
            # Accounts are given other amounts, and never have theirs changed (`QueueAccount.hold`).
            known = allocated, _exceeds_deserved(allocated, account, allocated)
            self._exceeding[account.name] = known
        return known[1]

    def _reclaimable(self, preemptor: Task, candidates: Sequence[Task]) -> list[Task]:
        own = self._cluster.job_of(preemptor)
        asking = self._accounts.get(own.queue) if own else None
        if not self._ready or asking is None:
            return []
        remaining: dict[str, IntArray] = {}
        victims = []
        for task in self._cluster.in_victim_order(candidates, preemptor):
            job = self._cluster.job_of(task)
            account = self._accounts.get(job.queue) if job else None
            if account is not None and self._may_take(preemptor, asking, task, account, remaining):
                victims.append(task)
        return victims

    def _may_take(
        self,
        preemptor: Task,
        asking: QueueAccount,
        task: Task,
        account: QueueAccount,
        remaining: dict[str, IntArray],
    ) -> bool:
        """Tell whether one task may be evicted; if so, subtract it from `remaining`."""
        request = task.task_class.request
        if not _in_common(request, preemptor.task_class.request):
            return False
        left = remaining.get(account.name, account.allocated)
        if not _keeps_guarantee(account, left - request):
            return False
        levels = self._levels if self._hierarchy else 0
        if not _names_some(request, account.deserved):
            related = set(map(id, asking.near_ancestors(levels))) & set(
                map(id, account.near_ancestors(levels))
            )
            if related and not _names_some(preemptor.task_class.request, asking.deserved):
                return False
        elif not _exceeds_deserved(left, account, request):
            return False
        checked = _apart(asking, account, levels)
        for level in checked:
            if _names_some(request, level.deserved) and not _exceeds_deserved(
                remaining.get(level.name, level.allocated), level, request
            ):
                return False
        for level in (account, *checked):
            remaining[level.name] = remaining.get(level.name, level.allocated) - request
        return True

    def _evictable(
        self, context: EvictionContext, candidates: Sequence[Task]
    ) -> Sequence[Task] | None:
        if context.kind is not EvictionKind.GANG_RECLAIM:
            return candidates
        if not self._ready:
            return []
        remaining: dict[str, IntArray] = {}
        victims = []
        for task in candidates:
            job = self._cluster.job_of(task)
            account = self._accounts.get(job.queue) if job else None
            if account is None:
                continue
            request = task.task_class.request
            left = remaining.get(account.name, account.allocated)
            if _keeps_guarantee(account, left - request) and (
                not _names_some(request, account.deserved)
                or _exceeds_deserved(left, account, request)
            ):
                remaining[account.name] = left - request
                victims.append(task)
        return victims


_BY_BRANCH = functools.cmp_to_key(compare)
"""Compares two queues of a tree by their current accounts, not by those at insertion."""


def _apart(asking: QueueAccount, account: QueueAccount, levels: int) -> list[QueueAccount]:
    """Return the ancestors of a victim's account that the preemptor's does not have."""
    found = []
    for level in range(1, levels + 1):
        above = account.ancestor(level)
        if above is not None and above.ancestors and above is not asking.ancestor(level):
            found.append(above)
    return found


def _within_deserved(account: QueueAccount, request: IntArray) -> bool:
    """Tell whether one requested resource stays within the queue's deserved amount (T07)."""
    then = account.allocated + request
    requested = (request > 0) & ((then >= EPSILON) | (account.deserved >= EPSILON))
    requested[PODS_DIM] = False
    return bool((requested & (then - account.deserved < EPSILON)).any())


def _in_common(left: IntArray, right: IntArray) -> bool:
    both = (left > 0) & (right > 0)
    both[PODS_DIM] = False
    return bool(both.any())


def _names_some(request: IntArray, deserved: Any) -> bool:  # noqa: ANN401 - array of floats
    """Tell whether the queue has a deserved amount of a resource of the task."""
    return bool(((request > 0) & (deserved >= EPSILON)).any())


def _exceeds_deserved(left: IntArray, account: QueueAccount, request: IntArray) -> bool:
    """Tell whether a queue exceeds its deserved amount of a resource that both name."""
    larger = (request > 0) & account.named & (left > account.deserved)
    larger[PODS_DIM] = False
    return bool(larger.any())


def _keeps_guarantee(account: QueueAccount, left: IntArray) -> bool:
    return bool((account.guarantee - left < EPSILON).all())
