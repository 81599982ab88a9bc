"""Choosing nodes for a run of equal tasks: exactly what placing them one by one would choose.

There are three algorithms, by what a placement changes: only its own node (`fill`), the feasibility
of a whole topology domain (`Stepping`), or the scores of all nodes (`choose_by_batch_order`).

Volcano places one pod, scores all nodes again, places the next. For tasks of one class only the
score of the node just used changes, so a heap over the best nodes, each with its scores after 1, 2,
3 … more tasks, gives the same choices. For T tasks the T best nodes are enough: a step takes either
a node used before or the best unused one.
"""

import heapq
import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pumice.plugins import BoolArray, FloatArray, IntArray
from pumice.plugins.points import Points
from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.jobs.subjobs import SubJob
from services.scheduler.engine.placement.candidates import Candidates
from services.scheduler.engine.placement.hooks import Combined
from services.scheduler.engine.placement.rows import Rows


class PlacementTarget(NamedTuple):
    """A job or a subgroup of it, and the nodes that it may go to."""

    job: Job
    sub: SubJob | None = None
    allocated: str = ""
    """HyperNode that the subgroup is placed in so far."""
    within: BoolArray | None = None
    """Nodes that may be chosen; None = all."""


def choose_by_batch_order(
    hooks: Combined, candidates: Candidates, target: PlacementTarget, *, waiting: bool, first: int
) -> list[int]:
    """Return the best column for one task, none if all candidates have the same score.

    Where plugins score by the rest of a group (BatchNodeOrder of SS08), the scores change with each
    placement and compare the candidates with each other: the caller gets one column at a time.

    Among equals the search begins at column `first`.
    """
    if not hooks.of(Points.batch_node_order):
        return []
    mask = candidates.future if waiting else candidates.idle
    if target.within is not None:
        mask = mask & target.within
    columns = np.flatnonzero(mask)
    if not len(columns):
        return []
    bias = hooks.batch_node_order(target, candidates.task_class, columns)
    return [] if bias is None else [candidates.best(mask, first, bias)]


_BLOCK = 4096
"""Rows to evaluate ahead at once: a few levels of every node in the heap."""


def fill(
    candidates: Candidates,
    count: int,
    *,
    waiting: bool,
    first: int = 0,
    within: BoolArray | None = None,
) -> list[int]:
    """Return the columns for up to `count` tasks, in the order in which they are placed.

    Only nodes `within` count. Returns fewer if room runs out, or if more can only be chosen after
    these are placed. Equal scores go to the lowest column, counted from `first`.
    """
    mask = candidates.future if waiting else candidates.idle
    if within is not None:
        mask = mask & within
        count = 1 if candidates.stepwise else count
    count = 1 if candidates.one_by_one else count
    if count == 1:
        column = _best(candidates, candidates.score, mask, first)
        return [] if column is None else [column]
    if candidates.stepwise:
        return Stepping(candidates, waiting=waiting, first=first).take(count)
    mask = mask.copy()
    chosen: list[int] = []
    while len(chosen) < count and mask.any():
        heap = _Heap(
            candidates, mask, count - len(chosen), Counter(chosen), waiting=waiting, first=first
        )
        chosen += heap.take(count - len(chosen))
        if heap.full is None:
            break
        # A candidate dropped out, so ranks are normalised over the others from here on.
        mask[heap.full] = False
    return chosen


def _best(candidates: Candidates, score: FloatArray, mask: BoolArray, first: int) -> int | None:
    """Return the best column, None if the mask is empty: one task needs no heap."""
    if not len(mask):
        return None
    rank = candidates.ranked(mask)
    masked = np.where(mask, score if rank is None else score + rank, -math.inf)
    column = int(np.roll(masked, -first).argmax()) if first else int(masked.argmax())
    column = (column + first) % len(mask)
    return column if mask[column] else None


class _Heap:
    """The best nodes, each at the score that its next task would have."""

    def __init__(
        self,
        candidates: Candidates,
        mask: BoolArray,
        count: int,
        spent: Counter[int],
        *,
        waiting: bool,
        first: int,
    ) -> None:
        self._candidates = candidates
        self._waiting = waiting
        self._rank = candidates.ranked(mask)
        self.full: int | None = None
        """The node that became full when that changes the ranks of the others."""
        score = candidates.score
        if spent:
            score = score.copy()
            used = np.array(list(spent), dtype=np.int64)
            extra = np.array(list(spent.values()), dtype=np.int64)
            score[used] = candidates.scored(self._rows(used, extra))
        if self._rank is not None:
            score = score + self._rank
        self._columns = _top(score, np.flatnonzero(mask), count, first, len(mask))
        self._listed: list[int] = self._columns.tolist()
        self._base = [spent[column] for column in self._listed]
        """Tasks on the node when the heap was built, beyond the ledger's."""
        self._ahead: list[list[float]] = [[] for _ in self._listed]
        """Per node, scores at base + 1, base + 2, …; -inf where it does not fit."""
        self._heap = [
            (-value, (column - first) % len(mask), slot)
            for slot, (value, column) in enumerate(
                zip(score[self._columns].tolist(), self._listed, strict=True)
            )
        ]
        heapq.heapify(self._heap)

    def take(self, count: int) -> list[int]:
        """Return the next choices; stops early when ranks have to be normalised again."""
        chosen: list[int] = []
        heap = self._heap
        levels = [0] * len(self._listed)
        while heap:
            _, tie, slot = heap[0]
            chosen.append(self._listed[slot])
            remaining = count - len(chosen)
            if not remaining:
                break
            if levels[slot] == len(self._ahead[slot]):
                self._look_ahead(slot, remaining)
            following = self._ahead[slot][levels[slot]]
            levels[slot] += 1
            if following != -math.inf:
                heapq.heapreplace(heap, (-following, tie, slot))
                continue
            heapq.heappop(heap)
            if self._rank is not None:
                self.full = self._listed[slot]
                break
        return chosen

    def _rows(self, columns: IntArray, extra: IntArray) -> Rows:
        candidates = self._candidates
        return Rows(candidates.nodes, candidates.task_class, columns, extra, waiting=self._waiting)

    def _look_ahead(self, slot: int, remaining: int) -> None:
        if not any(self._ahead):
            depth = max(1, min(remaining, _BLOCK // len(self._listed)))
            slots: Sequence[int] = range(len(self._listed))
        else:
            depth = max(1, min(remaining, _BLOCK))
            slots = (slot,)
        columns = self._columns[list(slots)]
        known = np.array([self._base[s] + len(self._ahead[s]) + 1 for s in slots], dtype=np.int64)
        for s, scores in zip(slots, self._evaluate(columns, known, depth), strict=True):
            self._ahead[s].extend(scores)

    def _evaluate(self, columns: IntArray, start: IntArray, depth: int) -> list[list[float]]:
        """Return per column its scores at `depth` levels from `start`, -inf where it is full."""
        extra = (start[:, None] + np.arange(depth)[None, :]).ravel()
        repeated = np.repeat(columns, depth)
        rows = self._rows(repeated, extra)
        score = self._candidates.scored(rows)
        if self._rank is not None:
            score += self._rank[repeated]
        fits = self._candidates.fits(rows, waiting=self._waiting) & self._candidates.admitted(rows)
        score[~fits] = -math.inf
        result: list[list[float]] = score.reshape(len(columns), depth).tolist()
        return result


def _top(score: FloatArray, columns: IntArray, count: int, first: int, size: int) -> IntArray:
    """Return the `count` best columns; of equal ones those that come first from `first` on."""
    order = (columns - first) % size if first else columns
    if len(columns) > count:
        values = score[columns]
        bound = np.partition(values, len(values) - count)[len(values) - count]
        above = columns[values > bound]
        equal = columns[values == bound]
        if first:
            equal = equal[np.argsort((equal - first) % size, kind="stable")]
        return np.concatenate([above, equal[: count - len(above)]])
    return columns[np.argsort(order, kind="stable")]


_EVERYWHERE: int = 3
"""Levels computed for all nodes at once; further levels only for a node with so many tasks."""
_AHEAD = 64


class Stepping:
    """One run of equal tasks of which each placement matters beyond its node.

    Pod affinity and spreading make each choice change the verdict on a whole topology domain, so
    there is no order of nodes to prepare. Each step is a few passes over all nodes; what a node's
    own state says of its second, third … task is computed for all nodes at once when it is first
    needed. Its imagined placements are undone when it has chosen.
    """

    def __init__(self, candidates: Candidates, *, waiting: bool, first: int) -> None:
        self._candidates = candidates
        self._waiting = waiting
        self._first = first
        own = candidates.own_future if waiting else candidates.own_idle
        self._open: BoolArray = own.copy()
        self._score: FloatArray = candidates.score.copy()
        self._taken = np.zeros(len(own), dtype=np.int64)
        self._levels: dict[int, tuple[BoolArray, FloatArray]] = {}
        self._alone: dict[int, tuple[int, BoolArray, FloatArray]] = {}

    def take(self, count: int) -> list[int]:
        """Return the columns of up to `count` tasks, in the order in which they are placed."""
        pod_affinity = self._candidates.nodes.pod_affinity
        affinity_terms = self._candidates.task_class.affinity_terms
        names = self._candidates.nodes.attributes.names
        chosen: list[int] = []
        while len(chosen) < count:
            mask = self._open & self._candidates.open_within(waiting=self._waiting)
            column = _best(self._candidates, self._score, mask, self._first)
            if column is None:
                break
            chosen.append(column)
            pod_affinity.imagine(affinity_terms, names[column], 1)
            self._advance(column)
        for column in chosen:
            pod_affinity.imagine(affinity_terms, names[column], -1)
        return chosen

    def _advance(self, column: int) -> None:
        """Advance a node to its state with one more task."""
        self._taken[column] += 1
        level = int(self._taken[column])
        if level <= _EVERYWHERE:
            fits, score = self._everywhere(level)
            self._open[column], self._score[column] = fits[column], score[column]
            return
        start, fits, score = self._alone.get(column, (0, self._open[:0], self._score[:0]))
        if level - start >= len(fits):
            start, (fits, score) = level, self._ahead(column, level)
            self._alone[column] = (start, fits, score)
        self._open[column], self._score[column] = fits[level - start], score[level - start]

    def _everywhere(self, level: int) -> tuple[BoolArray, FloatArray]:
        found = self._levels.get(level)
        if found is None:
            candidates = self._candidates
            extra = np.full(len(self._open), level, dtype=np.int64)
            rows = Rows(candidates.nodes, candidates.task_class, None, extra, waiting=self._waiting)
            found = self._levels[level] = candidates.level(rows, waiting=self._waiting)
        return found

    def _ahead(self, column: int, level: int) -> tuple[BoolArray, FloatArray]:
        candidates = self._candidates
        extra = np.arange(level, level + _AHEAD)
        columns = np.full(_AHEAD, column, dtype=np.int64)
        rows = Rows(candidates.nodes, candidates.task_class, columns, extra, waiting=self._waiting)
        return candidates.level(rows, waiting=self._waiting)
