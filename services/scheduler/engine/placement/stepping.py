"""Choosing nodes for equal tasks one after another, where a placement matters beyond its node.

Pod affinity and spreading make each choice change the verdict on a whole topology domain, so there
is no order of nodes to prepare (as `fill` does). Each step is a few passes over all nodes; what a
node's own state says of its second, third … task is computed for all nodes at once when it is
first needed.
"""

import math

import numpy as np

from pumice.plugins import BoolArray, FloatArray
from services.scheduler.engine.placement.candidates import Candidates
from services.scheduler.engine.placement.rows import Rows

_EVERYWHERE: int = 3
"""Levels that are computed for all nodes at once; beyond, for the node that got so many."""
_AHEAD = 64


class Stepping:
    """One run of equal tasks; what it imagines is taken back when it has chosen."""

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
            column = self._best()
            if column is None:
                break
            chosen.append(column)
            pod_affinity.imagine(affinity_terms, names[column], 1)
            self._advance(column)
        for column in chosen:
            pod_affinity.imagine(affinity_terms, names[column], -1)
        return chosen

    def _best(self) -> int | None:
        mask = self._open & self._candidates.open_within(waiting=self._waiting)
        if not mask.any():
            return None
        rank = self._candidates.ranked(mask)
        score = self._score if rank is None else self._score + rank
        masked = np.where(mask, score, -math.inf)
        if not self._first:
            return int(masked.argmax())
        return (int(np.roll(masked, -self._first).argmax()) + self._first) % len(mask)

    def _advance(self, column: int) -> None:
        """Have a node answer for one more task than before."""
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
