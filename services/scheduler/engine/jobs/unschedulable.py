"""The pool of unschedulable jobs, which sessions do not visit.

A job enters the pool when it was refused, its wait is reported, and nothing that it waits for has
changed. Sessions count jobs of the pool in sums only, so the cost of a cycle grows with the number
of changes and not with the number of waiting jobs. Jobs of one queue with the same demand form a
group: a rule that refuses the first job of a group refuses all of them.

A job becomes active again as soon as a fact changes it (`Jobs.refresh`), or as soon as the rules of
a session no longer refuse its group (`session.activation`). The oldest jobs of the pool are visited
in any case, so that its status stays up to date.
"""

import enum
from bisect import bisect_left, insort
from collections.abc import Collection, Iterator
from itertools import islice
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np

from pumice.plugins import IntArray
from pumice.plugins.combining import OrderKey
from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.tasks.task import TaskClass

REFRESH_S: Final = 30.0
"""A job that has been in the pool for this long is visited, within the two limits below."""
ENQUEUE_MAX: Final = 3
"""At most this many jobs without pods are visited per cycle because of `REFRESH_S`."""
ALLOCATE_EVERY_S: Final = 0.2
"""At most one job with pods is visited in this time because of `REFRESH_S`: it costs more."""
CONTENDED_S: Final = 30.0
"""A group stays out of the pool for this long after an eviction might have made room for it."""


class EnqueueDemand(NamedTuple):
    """The resources that a job without pods asks the action enqueue for."""

    min_resources: IntArray


class Preempting(enum.Enum):
    """Which of a job's pods may preempt others (`preemptionPolicy`)."""

    NONE = "none"
    SOME = "some"
    ALL = "all"

    @classmethod
    def of(cls, answers: Collection[bool]) -> "Preempting":
        """Return the value for the preemption policies of all pods of a job."""
        return cls.ALL if all(answers) else cls.SOME if any(answers) else cls.NONE


class AllocateDemand(NamedTuple):
    """The pods of a job that the action allocate found no nodes for."""

    missing: int
    """Minimum number of them to place."""
    classes: tuple[tuple[TaskClass, int], ...]
    """Its pending pods by class."""
    priority: int
    preempting: Preempting


Demand = EnqueueDemand | AllocateDemand
_Place = tuple[OrderKey, Job]
_order = itemgetter(0)


class DemandGroup:
    """Unschedulable jobs of one queue with the same demand, in job order."""

    __slots__ = ("demand", "id", "members", "queue")

    def __init__(self, name: "_GroupName", queue: str, demand: Demand) -> None:
        self.id = name
        self.queue = queue
        self.demand = demand
        self.members: list[_Place] = []

    @property
    def first(self) -> Job:
        """The first job in job order."""
        return self.members[0][1]


_GroupName = tuple[str, object]


class _PoolEntry(NamedTuple):
    """A job of the pool: its group, its order key, and its time of entry (Unix seconds)."""

    group: DemandGroup
    order: OrderKey
    since: float


class RefusedJobs:
    """The jobs that one action refused: enqueue or allocate."""

    def __init__(self) -> None:
        self._entries: dict[str, _PoolEntry] = {}
        """Key of the job → where it is; oldest first."""
        self._groups: dict[str, dict[_GroupName, DemandGroup]] = {}
        """Queue → its groups."""
        self._orders: dict[str, list[OrderKey]] = {}
        """Queue → order keys of its unschedulable jobs, sorted."""
        self._smallest_of: dict[str, list[DemandGroup]] = {}
        """Queue → groups than which no other asks for less of every resource, where computed."""

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def jobs(self) -> list[Job]:
        """Return all jobs."""
        groups = (group for of_queue in self._groups.values() for group in of_queue.values())
        return [job for group in groups for _, job in group.members]

    def queues(self) -> list[str]:
        """Return the queues of unschedulable jobs."""
        return list(self._groups)

    def groups(self, queue: str) -> list[DemandGroup]:
        """Return the groups of a queue."""
        return list(self._groups.get(queue, {}).values())

    def count(self, queue: str) -> int:
        """Return the number of jobs of a queue."""
        return len(self._orders.get(queue, ()))

    def ahead(self, queue: str, order: OrderKey) -> int:
        """Return how many unschedulable jobs of a queue come before a job with this order key."""
        return bisect_left(self._orders.get(queue, ()), order)

    def smallest(self, queue: str) -> list[DemandGroup]:
        """Return groups such that each other group asks for at least as much as one of them."""
        found = self._smallest_of.get(queue)
        if found is None:
            found = self._smallest_of[queue] = _smallest(self.groups(queue))
        return found

    def oldest(self, now: float, most: int) -> Iterator[Job]:
        """Yield up to `most` jobs that entered at least `REFRESH_S` before `now` (Unix seconds)."""
        for entry in islice(self._entries.values(), most):
            if 0 <= now - entry.since < REFRESH_S:
                return
            members = entry.group.members
            yield members[bisect_left(members, entry.order, key=_order)][1]

    def add(self, job: Job, order: OrderKey, demand: Demand, now: float) -> None:
        """Add a job that is not in the pool."""
        name = _name_of(job, demand)
        groups = self._groups.setdefault(job.queue, {})
        group = groups.get(name)
        if group is None:
            group = groups[name] = DemandGroup(name, job.queue, demand)
            self._smallest_of.pop(job.queue, None)
        insort(group.members, (order, job), key=_order)
        insort(self._orders.setdefault(job.queue, []), order)
        self._entries[job.key] = _PoolEntry(group, order, now)

    def remove(self, key: str) -> None:
        """Remove a job."""
        group, order, _ = self._entries.pop(key)
        del group.members[bisect_left(group.members, order, key=_order)]
        orders = self._orders[group.queue]
        del orders[bisect_left(orders, order)]
        if not group.members:
            groups = self._groups[group.queue]
            del groups[group.id]
            if not groups:
                del self._groups[group.queue], self._orders[group.queue]
            if any(each is group for each in self._smallest_of.get(group.queue, ())):
                del self._smallest_of[group.queue]


class UnschedulablePool:
    """The unschedulable jobs of both actions, and the groups that evictions concern."""

    def __init__(self) -> None:
        self.at_enqueue = RefusedJobs()
        """Pending jobs without pods, which enqueue refused."""
        self.at_allocate = RefusedJobs()
        """Inqueue jobs with pods, for which allocate found no nodes."""
        self._removed: list[str] = []
        self._contended: dict[_GroupName, float] = {}
        """Group → when an eviction might last have made room for it (Unix seconds)."""
        self._refreshed_at = 0.0
        self.refreshed: frozenset[str] = frozenset()
        """Keys of the jobs that the last session visited because of `REFRESH_S`."""

    def __len__(self) -> int:
        return len(self.at_enqueue) + len(self.at_allocate)

    def __contains__(self, key: str) -> bool:
        return key in self.at_enqueue or key in self.at_allocate

    def add(self, job: Job, order: OrderKey, demand: Demand, now: float) -> None:
        """Add a job that is not in the pool."""
        refused = self.at_enqueue if isinstance(demand, EnqueueDemand) else self.at_allocate
        refused.add(job, order, demand, now)

    def has_contended(self, job: Job, demand: Demand, now: float) -> bool:
        """Tell whether an eviction might have made room for a job's group within `CONTENDED_S`."""
        then = self._contended.get(_name_of(job, demand))
        return then is not None and 0 <= now - then < CONTENDED_S

    def note_contenders(self, groups: Collection[DemandGroup], now: float) -> None:
        """Keep groups out of the pool for which an eviction might make room."""
        recent = {k: then for k, then in self._contended.items() if 0 <= now - then < CONTENDED_S}
        self._contended = recent | dict.fromkeys((group.id for group in groups), now)

    def remove(self, key: str) -> bool:
        """Remove a job, if it is in the pool; return whether it was."""
        for refused in (self.at_enqueue, self.at_allocate):
            if key in refused:
                refused.remove(key)
                self._removed.append(key)
                return True
        return False

    def take_removed(self) -> list[str]:
        """Return the keys of the jobs that left since the last call."""
        left, self._removed = self._removed, []
        return left

    def refresh(self, now: float) -> list[Job]:
        """Return the jobs that a session has to visit because of `REFRESH_S`."""
        found = list(self.at_enqueue.oldest(now, ENQUEUE_MAX))
        if not 0 <= now - self._refreshed_at < ALLOCATE_EVERY_S:
            self._refreshed_at = now
            found += self.at_allocate.oldest(now, 1)
        self.refreshed = frozenset(job.key for job in found)
        return found


def _name_of(job: Job, demand: Demand) -> _GroupName:
    if isinstance(demand, EnqueueDemand):
        return job.queue, demand.min_resources.tobytes()
    classes = tuple((task_class.id, count) for task_class, count in demand.classes)
    return job.queue, (demand.missing, classes, demand.priority, demand.preempting)


def _smallest(groups: list[DemandGroup]) -> list[DemandGroup]:
    """Return the groups than which no other asks for less of every resource; smallest first."""
    found: list[DemandGroup] = []
    amounts: list[IntArray] = []
    of_group = [(group, _minimum(group)) for group in groups]
    for group, minimum in sorted(of_group, key=lambda each: int(each[1].sum())):
        if not any((less <= minimum).all() for less in amounts):
            found.append(group)
            amounts.append(minimum)
    return found


def _minimum(group: DemandGroup) -> IntArray:
    demand = group.demand
    return demand.min_resources if isinstance(demand, EnqueueDemand) else np.zeros(0, np.int64)
