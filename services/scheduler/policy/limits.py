"""Limits of users, namespaces and queues: the arithmetic of plugin `limits`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np

from pumice.plugins import Cluster, FloatArray, IntArray, Job
from services.scheduler.engine.resources.amounts import AMOUNT_MAX
from services.scheduler.engine.resources.dimensions import PODS_DIM, readable
from services.scheduler.policy.reservations import unallocated_minimum
from services.scheduler.policy.shares import room_for
from shared.jobs.limits import LimitHolder, LimitScope, scopes_of
from shared.jobs.users import user_of
from shared.model.resources import PODS
from shared.model.status import TaskStatus

_SEPARATOR: Final = "\n"
"""Between the names in the name of a group of jobs; none contains it."""
_HELD, _RESERVED, _JOBS = 0, 1, 2
_RUNNING, _ENTERED = 0, 1


class Limit(LimitScope, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One limit of the configuration."""

    pods: int | None = None
    """Number of pods that hold resources."""
    jobs: int | None = None
    """Number of PodGroups with such pods."""
    resources: Mapping[str, str | int | float] = {}


def group_of(job: Job) -> str:
    """Return the group of jobs that count together: of one queue, user and namespace."""
    return _SEPARATOR.join((job.queue, *holder_of(job)))


def holder_of(job: Job) -> LimitHolder:
    """Return user and namespace of a job."""
    return LimitHolder(user_of(job.annotations), job.namespace)


def usage(job: Job) -> IntArray:
    """Measure of a job: allocated and reserved amounts, and numbers of jobs in a third row.

    The numbers are whether it has pods that hold resources, and whether it has entered its queue.
    """
    numbers = np.zeros_like(job.allocated)
    numbers[_RUNNING] = job.allocated_count > 0
    numbers[_ENTERED] = job.allocated_count > 0 or job.phase in {"Inqueue", "Running", "Unknown"}
    reserved = unallocated_minimum(job)
    if job.phase == "Inqueue" and not job.reservation_expired:
        reserved = with_pods(reserved, max(0, job.min_available - job.allocated_count))
    return np.stack([job.allocated, reserved, numbers])


def with_pods(amounts: IntArray, pods: int) -> IntArray:
    """Return amounts with a number of pods."""
    found = amounts.copy()
    found[PODS_DIM] = pods
    return found


def least_need(job: Job) -> IntArray | None:
    """Return the least that a job takes when it starts or grows; None without pending pods.

    These are as many of its smallest pods as its minimum lacks, at least one; for each resource by
    itself.
    """
    classes = Counter(task.task_class for task in job.by_status[TaskStatus.PENDING].values())
    if not classes:
        return None
    missing = max(1, job.min_available - job.ready_count - job.pending_best_effort)
    requests = np.stack([task_class.request for task_class in classes])
    counts = np.array(list(classes.values()))
    need: IntArray = np.zeros_like(requests[0])
    for dim, column in enumerate(requests.T):
        order = np.argsort(column, kind="stable")
        before = np.cumsum(counts[order]) - counts[order]
        taken = np.clip(missing - before, 0, counts[order])
        need[dim] = min(int((taken.astype(object) * column[order]).sum()), AMOUNT_MAX)
    return need


class Account:
    """What counts against one limit, for one user or namespace or for all."""

    def __init__(self, limit: Limit, holder: LimitHolder, ceiling: FloatArray) -> None:
        """`ceiling` is an amounts array of the limit, infinite where there is none."""
        self.limit = limit
        self.holder = holder
        self.ceiling = ceiling
        self.held: IntArray = np.zeros(len(ceiling), dtype=np.int64)
        """Amounts of pods that hold resources or wait on nodes for them."""
        self.reserved: IntArray = np.zeros_like(self.held)
        """What jobs that entered the queue still need for their minimum."""
        self.running = 0
        self.entered = 0

    def add(self, sums: IntArray) -> None:
        """Add the sums of `usage` over some jobs."""
        self.held = self.held + sums[_HELD]
        self.reserved = self.reserved + sums[_RESERVED]
        self.running += int(sums[_JOBS][_RUNNING])
        self.entered += int(sums[_JOBS][_ENTERED])

    def allowed(self, request: IntArray, count: int) -> int:
        """Return how many of `count` pods with such a request stay within the limit."""
        count = room_for(self.ceiling, self.held, request, count)
        if self.limit.pods is None:
            return count
        return max(0, min(count, self.limit.pods - int(self.held[PODS_DIM])))

    @property
    def has_room_for_a_job(self) -> bool:
        """Whether one more job may run."""
        return self.limit.jobs is None or self.running < self.limit.jobs

    def exceeded_by(self, need: IntArray, names: Sequence[str], *, reserved: bool = False) -> str:
        """Return in words which limit some more pods would exceed, "" if none.

        `reserved`: beside what jobs of the queue have reserved.
        """
        taken = self.held + self.reserved if reserved else self.held
        pods = int(taken[PODS_DIM])
        if self.limit.pods is not None and pods + int(need[PODS_DIM]) > self.limit.pods:
            return self._text(f"{pods} of {self.limit.pods} pods", f"{int(need[PODS_DIM])} pods")
        beyond = (need > 0) & (taken + need > self.ceiling)
        beyond[PODS_DIM] = False
        for dim in np.flatnonzero(beyond).tolist():
            name = names[dim]
            taken_text, ceiling = readable(name, int(taken[dim])), int(self.ceiling[dim])
            has = f"{taken_text} of {readable(name, ceiling)} {name}"
            return self._text(has, f"{readable(name, int(need[dim]))} {name}")
        return ""

    def text_of_jobs(self, running: int) -> str:
        """Return in words that no further job may run."""
        return self._text(f"{running} of {self.limit.jobs} jobs", "1 job")

    def _text(self, holds: str, need: str) -> str:
        limit = self.limit
        return f"{limit.holds(self.holder)} {holds} in queue {limit.queue}; the job needs {need}"


class LimitAccounts:
    """The accounts of a cycle, by limit and holder; those without jobs are made on first use."""

    def __init__(self, limits: Sequence[Limit], cluster: Cluster) -> None:
        self._cluster = cluster
        self._limits = limits
        self._ceilings = [_ceiling(limit, cluster) for limit in limits]
        self._accounts: dict[tuple[int, LimitHolder], Account] = {}
        self._found: dict[tuple[str, LimitHolder], tuple[Account, ...]] = {}
        for name, sums in cluster.rollup(usage, group_of).sums().items():
            queue, *holder = name.split(_SEPARATOR)
            for account in self.of(queue, LimitHolder(*holder)):
                account.add(sums)

    def of_job(self, job: Job) -> tuple[Account, ...]:
        """Return the accounts that a job counts against."""
        return self.of(job.queue, holder_of(job))

    def of(self, queue: str, holder: LimitHolder) -> tuple[Account, ...]:
        """Return the accounts of a user and namespace, those of the queue itself first."""
        found = self._found.get((queue, holder))
        if found is None:
            keys = scopes_of(self._limits, queue, holder, partial(parent_of, self._cluster))
            found = self._found[queue, holder] = tuple(self._account(*key) for key in keys)
        return found

    def _account(self, number: int, holder: LimitHolder) -> Account:
        found = self._accounts.get((number, holder))
        if found is None:
            found = Account(self._limits[number], holder, self._ceilings[number])
            self._accounts[number, holder] = found
        return found


def parent_of(cluster: Cluster, queue: str) -> str:
    """Return the parent of a queue, "" where there is none."""
    known = cluster.queue(queue)
    return known.parent if known is not None else ""


def _ceiling(limit: Limit, cluster: Cluster) -> FloatArray:
    ceiling: FloatArray = np.full(len(cluster.total), np.inf)
    amounts = cluster.amounts({n: v for n, v in limit.resources.items() if n != PODS})
    for name in limit.resources:
        dim = cluster.resource(name)
        if dim is not None:  # one that no object names is requested by no pod
            ceiling[dim] = amounts[dim]
    return ceiling
