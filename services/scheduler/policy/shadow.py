"""Computes when a gang could start, from the room that ending pods release per node. Pure.

The plugin `reservation` fills a `RoomTimeline` with the room of the moment and the expected ends of
pods, and asks it for the earliest time at which a gang's pods find nodes, beside gangs that have a
place reserved already (`Booking`). Sums over nodes would not suffice, because a pod needs its cards
on one node.

Between two times at which such a gang begins or ends, room only grows, so a binary search finds the
first time.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from pumice.plugins import BoolArray, FloatArray, IntArray, TaskClass

UNKNOWN = math.inf
"""The time of events that depend on pods without expected end."""


class Need(NamedTuple):
    """Equal missing pods of a gang."""

    task_class: TaskClass
    number: int
    open: BoolArray
    """Nodes that may take them, without regard to room."""


class WaitingGang(NamedTuple):
    """A gang that waits."""

    key: str
    queue: str
    needs: tuple[Need, ...]
    total: IntArray
    """Amounts of all its missing pods."""
    lasts: float
    """Expected duration in seconds; `UNKNOWN` without an estimate."""


class PlacedPods(NamedTuple):
    """Equal pods on nodes."""

    task_class: TaskClass
    columns: IntArray
    counts: IntArray


class Booking(NamedTuple):
    """The reserved start and nodes of a gang."""

    gang: WaitingGang
    start: float
    places: tuple[PlacedPods, ...]

    @property
    def end(self) -> float:
        """Its expected end."""
        return self.start + self.gang.lasts

    def overlaps(self, start: float, end: float) -> bool:
        """Tell whether it runs at some time from `start` to `end`."""
        return self.start < end and start < self.end

    def columns(self) -> IntArray:
        """Return the nodes that are reserved for it."""
        found = [place.columns for place in self.places]
        return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)


class Ending(NamedTuple):
    """Equal pods of a queue on a node that end together."""

    end: float
    column: int
    task_class: TaskClass
    number: int
    queue: str


class Releases:
    """Amounts that pods release, in the order of their ends."""

    def __init__(self, endings: Iterable[Ending], size: int) -> None:
        ordered = sorted(endings, key=lambda ending: ending.end)
        self._size = size
        self._ends = np.array([ending.end for ending in ordered], dtype=np.float64)
        self._columns = np.array([ending.column for ending in ordered], dtype=np.int64)
        self._counts = np.array([ending.number for ending in ordered], dtype=np.int64)
        self._queues = [ending.queue for ending in ordered]
        self._classes: list[TaskClass] = []
        known: dict[int, int] = {}
        for ending in ordered:
            if ending.task_class.id not in known:
                known[ending.task_class.id] = len(self._classes)
                self._classes.append(ending.task_class)
        self._shapes = np.array([known[e.task_class.id] for e in ordered], dtype=np.int64)
        self._amounts: dict[int, IntArray] = {}
        self._of_queue: dict[str, BoolArray] = {}
        self.times: list[float] = np.unique(self._ends).tolist()
        """The different ends."""

    def _of(self, dim: int) -> IntArray:
        """Return the amount of a resource that each ending releases."""
        found = self._amounts.get(dim)
        if found is None:
            each = np.array([shape.request[dim] for shape in self._classes], dtype=np.int64)
            found = each[self._shapes] * self._counts if len(each) else self._counts
            self._amounts[dim] = found
        return found

    def freed(self, dim: int, at: float) -> IntArray:
        """Return the amounts released per node by a time."""
        upto = int(np.searchsorted(self._ends, at, side="right"))
        back = np.bincount(self._columns[:upto], weights=self._of(dim)[:upto], minlength=self._size)
        return back.astype(np.int64)

    def returned(self, queue: str, dim: int, at: float) -> int:
        """Return the amounts released in a queue's share by a time."""
        mask = self._of_queue.get(queue)
        if mask is None:
            mask = np.array([name == queue for name in self._queues], dtype=np.bool_)
            self._of_queue[queue] = mask
        upto = int(np.searchsorted(self._ends, at, side="right"))
        return int(self._of(dim)[:upto][mask[:upto]].sum())


class RoomTimeline:
    """The room of nodes and of queues, now and later."""

    def __init__(
        self,
        *,
        now: float,
        allocatable: IntArray,
        free: IntArray,
        releases: Sequence[Releases],
        shares: Mapping[str, FloatArray],
    ) -> None:
        """Take amounts with a row per resource and a column per node, and shares of queues.

        `free` counts terminating pods as gone; `shares` is what queues may still get.
        """
        self._now = now
        self._allocatable = allocatable
        self._free = free
        self._releases = releases
        self._shares = shares
        self._times = sorted({time for each in releases for time in each.times if time > now})

    def earliest(self, gang: WaitingGang, beside: Sequence[Booking]) -> Booking | None:
        """Return the first time at which a gang fits, None if it never does.

        It is `UNKNOWN` if pods without expected end must end first.
        """
        edges = [self._now, *sorted(self._edges(gang, beside)), UNKNOWN]
        for edge, following in pairwise(edges):
            found = self._at(gang, beside, edge)
            if found is None:
                found = self._between(gang, beside, edge, following)
            if found is not None:
                return found
        return self._at(gang, beside, UNKNOWN)

    def _edges(self, gang: WaitingGang, beside: Sequence[Booking]) -> set[float]:
        """Return the times at which a booking starts or stops to conflict with the gang."""
        edges = {each.end for each in beside} | {each.start - gang.lasts for each in beside}
        return {edge for edge in edges if self._now < edge < UNKNOWN}

    def _between(
        self, gang: WaitingGang, beside: Sequence[Booking], after: float, before: float
    ) -> Booking | None:
        low, high = bisect_right(self._times, after), bisect_right(self._times, before)
        times = [time for time in self._times[low:high] if time < before]
        if not times or (found := self._at(gang, beside, times[-1])) is None:
            return None
        low, high = 0, len(times) - 1
        while low < high:
            middle = (low + high) // 2
            earlier = self._at(gang, beside, times[middle])
            if earlier is None:
                low = middle + 1
            else:
                found, high = earlier, middle
        return found

    def _at(self, gang: WaitingGang, beside: Sequence[Booking], at: float) -> Booking | None:
        """Return the placement of a gang at a time, None if it does not fit."""
        there = [each for each in beside if each.overlaps(at, at + gang.lasts)]
        if not self._has_share(gang, there, at):
            return None
        rooms: dict[int, IntArray] = {}
        places: list[PlacedPods] = []
        taken = [place for each in there for place in each.places]
        for need in gang.needs:
            for dim in need.task_class.dims:
                if dim not in rooms:
                    rooms[dim] = self._room(dim, taken + places, at)
            place = self._place(need, rooms)
            if place is None:
                return None
            places.append(place)
            for dim, room in rooms.items():
                room[place.columns] -= place.counts * int(need.task_class.request[dim])
        return Booking(gang, at, tuple(places))

    def _has_share(self, gang: WaitingGang, there: Sequence[Booking], at: float) -> bool:
        """Tell whether the queue's share has room for the gang at a time."""
        share = self._shares.get(gang.queue)
        if share is None:
            return True
        for dim in np.flatnonzero(gang.total).tolist():
            if dim >= len(share) or math.isinf(share[dim]):
                continue
            left = share[dim] + sum(e.returned(gang.queue, dim, at) for e in self._releases)
            left -= sum(int(e.gang.total[dim]) for e in there if e.gang.queue == gang.queue)
            if gang.total[dim] > left:
                return False
        return True

    def _room(self, dim: int, taken: Iterable[PlacedPods], at: float) -> IntArray:
        """Return the room of a resource on each node at a time, minus bookings and `taken`."""
        room: IntArray = self._free[dim].copy()
        for each in self._releases:
            room += each.freed(dim, at)
        np.minimum(room, self._allocatable[dim], out=room)
        for place in taken:
            room[place.columns] -= place.counts * int(place.task_class.request[dim])
        return room

    def _place(self, need: Need, rooms: Mapping[int, IntArray]) -> PlacedPods | None:
        """Choose nodes for equal pods: those with the least room now, so that others stay usable.

        Of such nodes those come first that take most pods later, so that few are reserved.
        """
        slots = _slots(need, rooms)
        if int(slots.sum()) < need.number:
            return None
        now = _slots(need, {dim: self._free[dim] for dim in need.task_class.dims})
        order = np.lexsort((-slots, now))
        before = np.cumsum(slots[order]) - slots[order]
        counts = np.clip(need.number - before, 0, slots[order])
        used = counts > 0
        return PlacedPods(need.task_class, order[used], counts[used])


def _slots(need: Need, rooms: Mapping[int, IntArray]) -> IntArray:
    """Return how many of these pods each node takes."""
    slots: IntArray = need.number * need.open.astype(np.int64)
    for dim in need.task_class.dims:
        request, room = int(need.task_class.request[dim]), rooms[dim]
        slots[room < request] = 0
        if request > 0:
            np.minimum(slots, room // request, out=slots)
    return slots
