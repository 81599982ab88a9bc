"""Buckets of a job's tasks that belong on one node (PL20): pure, one job at a time.

Roles attract each other, or themselves, or keep apart; a bucket collects tasks so that attraction
is largest. Tasks that have a node already make up the bucket of that node.

Users write the rules and choose how many tasks there are. So buckets with the same roles are
compared once, tasks of the same request are counted and not listed, and rules on more than
`ROLES_MAX` roles are not looked at.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from pumice.plugins import IntArray, Task
from services.scheduler.engine.resources.amounts import AMOUNT_MAX
from services.scheduler.engine.resources.dimensions import CPU_DIM, MEMORY_DIM
from shared.api import keys

_SELF_ANTI, _INTER, _SELF, _INTER_ANTI = 4, 3, 2, 1
"""The kind of rule that puts a role first."""
_MIB: Final = 1024 * 1024
ROLES_MAX: Final = 64
"""Roles that the rules of a job may name: pairs of them are looked at."""
_Roles = frozenset[tuple[str, int]]


class RoleRules(NamedTuple):
    """The rules of one job about its roles."""

    near: frozenset[tuple[str, str]]
    """Pairs of roles that attract each other, both ways; a role with itself too."""
    apart: frozenset[tuple[str, str]]
    order: Mapping[str, tuple[int, int]]
    """Role → what comes first: place in the stated order, then kind of rule; larger is earlier."""

    def pull(self, role: str, others: Mapping[str, int], *, only_apart: bool = False) -> int:
        """Return how many tasks of other roles attract a role, less those that repel it."""
        total = 0
        for other, count in others.items():
            total += count * ((role, other) in self.near and not only_apart)
            total -= count * ((role, other) in self.apart)
        return total


def rules_of(annotations: Mapping[str, str], roles: frozenset[str]) -> RoleRules | None:
    """Return what a PodGroup's annotations say; None when nothing, or when it makes no sense.

    It makes none when it names a role that no task has, one twice in a set, or too many.
    """
    near = _sets(annotations.get(keys.TASK_TOPOLOGY_AFFINITY), ";")
    apart = _sets(annotations.get(keys.TASK_TOPOLOGY_ANTI_AFFINITY), ";")
    order = _sets(annotations.get(keys.TASK_TOPOLOGY_TASK_ORDER), None)
    named = [[role for role in one if role] for one in (*near, *apart, *order)]
    if len({role for one in named for role in one}) > ROLES_MAX:
        return None
    if not named or any(len(one) != len(set(one)) or set(one) - roles for one in named):
        return None
    priority: Counter[str] = Counter()
    for sets, alone, together in ((near, _SELF, _INTER), (apart, _SELF_ANTI, _INTER_ANTI)):
        for one in sets:
            for role in one:
                priority[role] = max(priority[role], alone if len(one) == 1 else together)
    places = {role: len(one) - at for one in order for at, role in enumerate(one)}
    return RoleRules(
        near=_pairs(near),
        apart=_pairs(apart),
        order={role: (places.get(role, 0), kind) for role, kind in priority.items()},
    )


def _sets(text: str | None, separator: str | None) -> list[list[str]]:
    if text is None:
        return []
    return [one.split(",") for one in (text.split(separator) if separator else [text])]


def _pairs(sets: Sequence[Sequence[str]]) -> frozenset[tuple[str, str]]:
    alone = {(one[0], one[0]) for one in sets if len(one) == 1}
    return frozenset(alone | {(a, b) for one in sets for a in one for b in one if a != b})


class Bucket:
    """Tasks that should share a node."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.roles: Counter[str] = Counter()
        self.nodes: Counter[str] = Counter()
        """Node → tasks of the bucket that are there."""
        self.waiting: dict[bytes, tuple[IntArray, int]] = {}
        """Requests of those that have none, by their bytes, and how many have it."""
        self.score = 0.0

    @property
    def size(self) -> int:
        """Number of tasks with and without a node."""
        return self.left + self.nodes.total()

    @property
    def left(self) -> int:
        """Number of tasks without a node."""
        return sum(count for _, count in self.waiting.values())

    def add(self, task: Task) -> None:
        """Take a task in."""
        self.roles[task.role] += 1
        if task.node:
            self.nodes[task.node] += 1
            return
        self._wait(task.task_class.request, 1)
        self.score += _weight(task.task_class.request)

    def settle(self, node: str, request: IntArray, count: int) -> None:
        """Move waiting tasks of a request to a node, or back with a negative count."""
        self.nodes[node] += count
        self._wait(request, -count)

    def _wait(self, request: IntArray, count: int) -> None:
        at = request.tobytes()
        _, before = self.waiting.get(at, (request, 0))
        if before + count > 0:
            self.waiting[at] = (request, before + count)
        else:
            self.waiting.pop(at, None)


def _weight(request: IntArray) -> float:
    """Return one number for a request: a thousandth of a CPU or GPU counts as a MiB."""
    others = float(request.sum() - request[CPU_DIM] - request[MEMORY_DIM])
    return float(request[CPU_DIM]) + float(request[MEMORY_DIM]) / _MIB + others


class Buckets:
    """The buckets of one job."""

    def __init__(self, tasks: Sequence[Task], rules: RoleRules) -> None:
        self.rules = rules
        self.all: list[Bucket] = []
        self.of: dict[str, Bucket] = {}
        """Task uid → bucket; tasks of roles without rules have none."""
        self.placed: dict[str, Counter[str]] = {}
        """Node → role → tasks that were put there in this session."""
        self._alike: dict[_Roles, list[tuple[float, int]]] = {}
        """Roles of a bucket → score and index of buckets that have, or had, just these: a heap."""
        by_node: dict[str, Bucket] = {}
        for task in sorted((t for t in tasks if t.role in rules.order), key=self._first):
            bucket = by_node.get(task.node) if task.node else self._fitting(task)
            if bucket is None:
                bucket = Bucket(len(self.all))
                self.all.append(bucket)
                if task.node:
                    by_node[task.node] = bucket
            bucket.add(task)
            of_roles = self._alike.setdefault(frozenset(bucket.roles.items()), [])
            heapq.heappush(of_roles, (bucket.score, bucket.index))
            self.of[task.uid] = bucket
        self.largest = max((bucket.size for bucket in self.all), default=0)

    def _first(self, task: Task) -> tuple[bool, str, tuple[int, ...], str]:
        order = tuple(-place for place in self.rules.order[task.role])
        return not task.node, task.node, () if task.node else order, task.name

    def _fitting(self, task: Task) -> Bucket | None:
        """Return the bucket that attracts a task most, of equal ones the least loaded."""
        best: tuple[int, float, int] | None = None
        for roles in list(self._alike):
            first = self._first_of(roles)
            if first is None:
                del self._alike[roles]
                continue
            found = (-self.rules.pull(task.role, dict(roles)), *first)
            best = found if best is None else min(best, found)
        return self.all[best[2]] if best is not None and best[0] <= 0 else None

    def _first_of(self, roles: _Roles) -> tuple[float, int] | None:
        """Return score and index of the least loaded bucket with these roles."""
        heap = self._alike[roles]
        while heap:
            score, index = heap[0]
            bucket = self.all[index]
            if bucket.score == score and frozenset(bucket.roles.items()) == roles:
                return heap[0]
            heapq.heappop(heap)  # it has taken another task in since
        return None

    def scores(
        self,
        bucket: Bucket,
        role: str,
        request: IntArray,
        room: IntArray,
        columns: Callable[[str], int],
    ) -> IntArray:
        """Return how many tasks of a bucket each node would hold; `room` is resource by node.

        `columns` gives the column of a node's name. Tasks are taken away, request by request, until
        the rest fits.
        """
        waiting = dict(bucket.waiting)
        score = np.full(room.shape[1], bucket.left, dtype=np.int64)
        for name in {**bucket.nodes, **self.placed}:
            repelled = self.rules.pull(role, self.placed.get(name, {}), only_apart=True)
            if (column := columns(name)) >= 0:
                score[column] += bucket.nodes.get(name, 0) + min(0, repelled)
        left = np.zeros_like(request)
        for each, count in waiting.values():
            left = np.minimum(left + _product(each, count), AMOUNT_MAX)
        if request.tobytes() in waiting:
            own, count = waiting[request.tobytes()]
            waiting[request.tobytes()] = (own, count - 1)
        short = (left[:, None] > room).any(axis=0)
        for each, count in waiting.values():
            needed = _needed(left[:, None] - room, each, count)
            score[short] -= np.minimum(needed, count)[short]
            left = left - _product(each, count)
            short &= needed > count
        score[(request[:, None] > room).any(axis=0)] = 0
        return score


def _product(each: IntArray, count: int) -> IntArray:
    """Return a request times a number, `AMOUNT_MAX` at most."""
    product: IntArray = np.where(each > AMOUNT_MAX // max(count, 1), AMOUNT_MAX, each * count)
    return product


def _needed(excess: IntArray, each: IntArray, count: int) -> IntArray:
    """Return how many requests to take away per node until nothing is in excess.

    It is more than `count` where taking away all of them does not help.
    """
    needed = np.zeros(excess.shape[1], dtype=np.int64)
    for amount, over in zip(each.tolist(), excess, strict=True):
        helped = -(-over // amount) if amount > 0 else np.full_like(over, count + 1)
        needed = np.maximum(needed, np.where(over > 0, helped, 0))
    return needed
