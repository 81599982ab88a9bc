"""Parked jobs: they wait, everything about it is said, and nothing they wait for has changed.

A long queue is looked at job by job once. After that its jobs are parked: sessions count them in
sums and do not visit them, so that a cycle costs what has changed and not what waits. Jobs of one
queue that ask for the same form a group; what refuses its first job refuses all of them.

A job leaves as soon as a fact changes it (`Jobs.refresh`) or the rules of a session no longer
refuse its group (`session.waking`). One that has been parked for long is looked at all the same,
so that what is shown of it does not grow old.
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
"""A job that has been parked for so long is looked at when there is time for it."""
ENTERING_MAX: Final = 3
"""So many jobs without pods at most are looked at in one cycle for that reason."""
PLACING_EVERY_S: Final = 0.2
"""A job with pods takes longer, and less often."""
CONTENDED_S: Final = 30.0
"""For so long no job of a group is parked that might have had something by an eviction."""


class Wants(NamedTuple):
    """Amounts that a job without pods asks for to enter its queue."""

    minimum: IntArray


class Asking(enum.Enum):
    """Which of a job's pods may take from others at all (`preemptionPolicy`)."""

    NONE = "none"
    SOME = "some"
    ALL = "all"

    @classmethod
    def of(cls, answers: Collection[bool]) -> "Asking":
        """Return it by what each pod says."""
        return cls.ALL if all(answers) else cls.SOME if any(answers) else cls.NONE


class Needs(NamedTuple):
    """The pods for which a job that has entered its queue finds no place."""

    missing: int
    """How many of them it needs at least."""
    classes: tuple[tuple[TaskClass, int], ...]
    """Its pending pods by class."""
    priority: int
    asking: Asking


Demand = Wants | Needs
_Place = tuple[OrderKey, Job]
_order = itemgetter(0)


class Group:
    """Parked jobs of one queue that ask for the same, in their order."""

    __slots__ = ("demand", "id", "members", "queue")

    def __init__(self, name: "_GroupName", queue: str, demand: Demand) -> None:
        self.id = name
        self.queue = queue
        self.demand = demand
        self.members: list[_Place] = []

    @property
    def first(self) -> Job:
        """The job whose turn comes first."""
        return self.members[0][1]


_GroupName = tuple[str, object]


class _ParkedJob(NamedTuple):
    """Where a job is parked."""

    group: Group
    order: OrderKey
    since: float


class ParkingLot:
    """The parked jobs before one gate: entering a queue, or finding nodes."""

    def __init__(self) -> None:
        self._spots: dict[str, _ParkedJob] = {}
        """By the key of the job, longest parked first."""
        self._groups: dict[str, dict[_GroupName, Group]] = {}
        """Queue → its groups."""
        self._orders: dict[str, list[OrderKey]] = {}
        """Queue → orders of all that are parked."""
        self._least: dict[str, list[Group]] = {}
        """Queue → groups of which no other asks for as little in everything, where known."""

    def __len__(self) -> int:
        return len(self._spots)

    def __contains__(self, key: str) -> bool:
        return key in self._spots

    def jobs(self) -> list[Job]:
        """Return all jobs."""
        groups = (group for of_queue in self._groups.values() for group in of_queue.values())
        return [job for group in groups for _, job in group.members]

    def queues(self) -> list[str]:
        """Return the queues of parked jobs."""
        return list(self._groups)

    def groups(self, queue: str) -> list[Group]:
        """Return the groups of a queue."""
        return list(self._groups.get(queue, {}).values())

    def count(self, queue: str) -> int:
        """Return how many jobs of a queue are parked."""
        return len(self._orders.get(queue, ()))

    def ahead(self, queue: str, order: OrderKey) -> int:
        """Return how many parked jobs of a queue come before one of that order."""
        return bisect_left(self._orders.get(queue, ()), order)

    def least(self, queue: str) -> list[Group]:
        """Return groups of `Wants` of which every other one asks for as much or more."""
        found = self._least.get(queue)
        if found is None:
            found = self._least[queue] = _least(self.groups(queue))
        return found

    def longest(self, now: float, most: int) -> Iterator[Job]:
        """Yield up to `most` jobs that have been parked for long, by `now` in Unix seconds."""
        for spot in islice(self._spots.values(), most):
            if 0 <= now - spot.since < REFRESH_S:
                return
            members = spot.group.members
            yield members[bisect_left(members, spot.order, key=_order)][1]

    def park(self, job: Job, order: OrderKey, demand: Demand, now: float) -> None:
        """Take a job in that is not here."""
        name = _name_of(job, demand)
        groups = self._groups.setdefault(job.queue, {})
        group = groups.get(name)
        if group is None:
            group = groups[name] = Group(name, job.queue, demand)
            self._least.pop(job.queue, None)
        insort(group.members, (order, job), key=_order)
        insort(self._orders.setdefault(job.queue, []), order)
        self._spots[job.key] = _ParkedJob(group, order, now)

    def leave(self, key: str) -> None:
        """Let a job out."""
        group, order, _ = self._spots.pop(key)
        del group.members[bisect_left(group.members, order, key=_order)]
        orders = self._orders[group.queue]
        del orders[bisect_left(orders, order)]
        if not group.members:
            groups = self._groups[group.queue]
            del groups[group.id]
            if not groups:
                del self._groups[group.queue], self._orders[group.queue]
            if any(each is group for each in self._least.get(group.queue, ())):
                del self._least[group.queue]


class Parking:
    """All parked jobs."""

    def __init__(self) -> None:
        self.entering = ParkingLot()
        """Jobs without pods that their queue does not let in."""
        self.placing = ParkingLot()
        """Jobs in their queue whose pods find no place."""
        self._left: list[str] = []
        self._contended: dict[_GroupName, float] = {}
        """When groups might last have had something by an eviction."""
        self._refreshed_at = 0.0
        self.refreshed: frozenset[str] = frozenset()
        """Keys of the jobs that the last session looked at for being old."""

    def __len__(self) -> int:
        return len(self.entering) + len(self.placing)

    def __contains__(self, key: str) -> bool:
        return key in self.entering or key in self.placing

    def park(self, job: Job, order: OrderKey, demand: Demand, now: float) -> None:
        """Take a job in that is not here."""
        parked = self.entering if isinstance(demand, Wants) else self.placing
        parked.park(job, order, demand, now)

    def has_contended(self, job: Job, demand: Demand, now: float) -> bool:
        """Tell whether a job's group might have had something by an eviction not long ago."""
        then = self._contended.get(_name_of(job, demand))
        return then is not None and 0 <= now - then < CONTENDED_S

    def note_contenders(self, groups: Collection[Group], now: float) -> None:
        """Keep groups from being parked that might have something by an eviction."""
        recent = {k: then for k, then in self._contended.items() if 0 <= now - then < CONTENDED_S}
        self._contended = recent | dict.fromkeys((group.id for group in groups), now)

    def leave(self, key: str) -> bool:
        """Let a job out, if it is here; return whether it was."""
        for parked in (self.entering, self.placing):
            if key in parked:
                parked.leave(key)
                self._left.append(key)
                return True
        return False

    def take_left(self) -> list[str]:
        """Return the keys of the jobs that left since the last call."""
        left, self._left = self._left, []
        return left

    def refresh(self, now: float) -> list[Job]:
        """Return jobs that are to be looked at since they have been parked for long."""
        found = list(self.entering.longest(now, ENTERING_MAX))
        if not 0 <= now - self._refreshed_at < PLACING_EVERY_S:
            self._refreshed_at = now
            found += self.placing.longest(now, 1)
        self.refreshed = frozenset(job.key for job in found)
        return found


def _name_of(job: Job, demand: Demand) -> _GroupName:
    if isinstance(demand, Wants):
        return job.queue, demand.minimum.tobytes()
    classes = tuple((task_class.id, count) for task_class, count in demand.classes)
    return job.queue, (demand.missing, classes, demand.priority, demand.asking)


def _least(groups: list[Group]) -> list[Group]:
    """Return the groups that no other one undercuts in every resource; smallest sums first."""
    found: list[Group] = []
    amounts: list[IntArray] = []
    of_group = [(group, _minimum(group)) for group in groups]
    for group, minimum in sorted(of_group, key=lambda each: int(each[1].sum())):
        if not any((less <= minimum).all() for less in amounts):
            found.append(group)
            amounts.append(minimum)
    return found


def _minimum(group: Group) -> IntArray:
    demand = group.demand
    return demand.minimum if isinstance(demand, Wants) else np.zeros(0, np.int64)
