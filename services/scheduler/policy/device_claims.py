"""Claims for devices: where they let a pod go, and what queues may have of them (PL06, PL07).

Devices are not allocated here yet: a pod goes where its claims are allocated already, and waits
while one is not, rather than be bound to a node whose kubelet would refuse it.
"""

from collections import Counter
from collections.abc import Mapping

import numpy as np

from pumice.plugins import (
    Cluster,
    CodeArray,
    CrossNodeVerdict,
    Job,
    Opinion,
    Queue,
    Reason,
    TaskClass,
    Vote,
)
from services.scheduler.engine.nodes.attributes import NodeAttributes
from services.scheduler.policy.capacity_accounts import Accounts
from services.scheduler.policy.states.claims import Devices
from shared.model.status import HOLDS_RESOURCES, TaskStatus

CLAIM_REASONS = (
    Reason("waiting for a resource claim to be created", resolvable=False),
    Reason("cannot allocate all claims", resolvable=False),
    Reason("resourceclaim not available on the node", resolvable=False),
)
_UNKNOWN, _UNALLOCATED, _ELSEWHERE = range(1, 4)
_QUOTA = "deviceclass/"


class DeviceClaims:
    """Predicate and quotas of resource claims."""

    def __init__(self, cluster: Cluster) -> None:
        self._devices = cluster.store(Devices)
        self._attributes = cluster.store(NodeAttributes)

    def predicate(self, task_class: TaskClass) -> CrossNodeVerdict | None:
        """Return how to judge nodes, None for a class without claims."""
        if not task_class.device_claims:
            return None
        return CrossNodeVerdict(lambda: self._codes(task_class), steady=True)

    def _codes(self, task_class: TaskClass) -> CodeArray:
        codes = np.zeros(len(self._attributes.names), dtype=np.uint8)
        for key in task_class.device_claims:
            claim = self._devices.claims.get(key)
            if claim is None or claim.status.allocation is None:
                codes[:] = _UNKNOWN if claim is None else _UNALLOCATED
                return codes
            selector = claim.status.allocation.node_selector
            if selector is not None:
                codes[~self._attributes.selected(selector) & (codes == 0)] = _ELSEWHERE
        return codes


class DeviceQuotas:
    """Quotas `deviceclass/<class>` in the capabilities of queues, on every level of a tree."""

    def __init__(self, cluster: Cluster, accounts: Accounts) -> None:
        """Count what the queues' tasks hold and what jobs in them reserve."""
        self._devices = cluster.store(Devices)
        self._lines = {
            name: [level.name for level in account.line()] for name, account in accounts.items()
        }
        self._limits = {name: _limits(queue) for name, queue in cluster.queues.items()}
        self._held: dict[str, Counter[str]] = {}
        self._reserved: dict[str, Counter[str]] = {}
        for task in self._devices.users.values():
            job = cluster.job_of(task)
            if job is None or job.queue not in self._lines:
                continue
            demand = self._devices.asked(task.task_class.device_claims)
            if HOLDS_RESOURCES[task.status]:
                self._add(self._held, job.queue, demand)
            elif task.status is TaskStatus.PENDING and job.phase == "Inqueue":
                self._add(self._reserved, job.queue, demand)

    def _add(
        self, sums: dict[str, Counter[str]], queue: str, demand: Mapping[str, int], times: int = 1
    ) -> None:
        for level in self._lines[queue]:
            counter = sums.setdefault(level, Counter())
            for name, amount in demand.items():
                counter[name] += times * amount

    def allowed(self, queue: Queue, task_class: TaskClass, count: int) -> int:
        """Return how many of `count` tasks stay within the quotas, one after another."""
        if not task_class.device_claims:
            return count
        for level in self._lines[queue.name]:
            held = self._held.get(level, Counter())
            for name, amount in self._devices.asked(task_class.device_claims).items():
                limit = self._limits[level].get(name)
                if limit is not None and amount:
                    count = min(count, max(0, (limit - held[name]) // amount))
        return count

    def objection(self, job: Job) -> Opinion | None:
        """Return why a job may not enter its queue, None when it may."""
        demand = self._demand(job)
        for level in self._lines[job.queue]:
            held, reserved = (sums.get(level, Counter()) for sums in (self._held, self._reserved))
            left = {
                name: limit - held[name] - reserved[name]
                for name, limit in self._limits[level].items()
            }
            short = sorted(name for name in demand if demand[name] > left.get(name, demand[name]))
            if short:
                names = ", ".join(f"insufficient {_QUOTA}{name}" for name in short)
                return Opinion(
                    Vote.REJECT,
                    f"queue resource quota insufficient: {names}",
                    tuple((f"{_QUOTA}{n}", demand[n], max(0, left[n])) for n in short),
                )
        return None

    def _demand(self, job: Job) -> Counter[str]:
        """Return what a job's pending tasks ask for."""
        asked: Counter[str] = Counter()
        for task in job.by_status[TaskStatus.PENDING].values():
            asked.update(self._devices.asked(task.task_class.device_claims))
        return asked

    def enqueued(self, job: Job) -> None:
        """Reserve what a job that entered its queue asks for."""
        self._add(self._reserved, job.queue, self._demand(job))

    def changed(self, job: Job, task_class: TaskClass, count: int) -> None:
        """Count placed tasks in, or out with a negative count."""
        if task_class.device_claims and job.queue in self._lines:
            self._add(self._held, job.queue, self._devices.asked(task_class.device_claims), count)


def _limits(queue: Queue) -> dict[str, int]:
    return {
        name.removeprefix(_QUOTA): amount
        for name, amount in queue.capability.items()
        if name.startswith(_QUOTA)
    }
