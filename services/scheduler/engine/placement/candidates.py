"""Feasibility and scores of all nodes for one task class, updated while a session places tasks.

Everything is computed for all nodes once per class and session; after placements only the nodes
that changed are computed again. What depends on node objects alone (static predicates, ranks) is
kept between cycles, per node generation.
"""

from collections import Counter
from functools import partial
from typing import NamedTuple

import numpy as np

from pumice.plugins import (
    BoolArray,
    CodeArray,
    CrossNodeScore,
    CrossNodeVerdict,
    FloatArray,
    IntArray,
)
from pumice.plugins.contributions import CrossNodePredicate, Predicate, Rank
from services.scheduler.engine.nodes.attributes import StaticCache
from services.scheduler.engine.nodes.nodes import Nodes
from services.scheduler.engine.placement.hooks import Combined
from services.scheduler.engine.placement.rows import Rows
from services.scheduler.engine.plan import Shortage
from services.scheduler.engine.resources.dimensions import Dimensions
from services.scheduler.engine.tasks.task import TaskClass

_MAX_NODE_SCORE = 100


class FitErrors(NamedTuple):
    """Why no node takes a task: counts of nodes per reason, and resources that are short."""

    nodes: int
    reasons: dict[str, int]
    shortages: tuple[Shortage, ...]

    def text(self) -> str:
        """Return Volcano's message: `0/3 nodes are unavailable: 3 Insufficient cpu.` (T11)."""
        if not self.nodes:
            return "0/0 nodes are unavailable"
        listed = ", ".join(sorted(f"{count} {reason}" for reason, count in self.reasons.items()))
        return f"0/{self.nodes} nodes are unavailable: {listed}."


class Candidates:
    """Fit and score of one task class on all nodes."""

    def __init__(
        self,
        nodes: Nodes,
        dimensions: Dimensions,
        hooks: Combined,
        cache: StaticCache,
        task_class: TaskClass,
    ) -> None:
        self.nodes = nodes
        self.task_class = task_class
        self._dimensions = dimensions
        self._hooks = hooks
        self._size = nodes.ledger.size
        self._seen = nodes.ledger.tick
        self._dynamic = [predicate for predicate in hooks.predicate if not predicate.static]
        self._failure: tuple[int, FitErrors] | None = None
        rows = Rows(nodes, task_class)
        self._verdicts = self._static_verdicts(rows, cache)
        self._refused = ~nodes.ledger.alive[: self._size]
        for _, codes in self._verdicts:
            self._refused |= codes != 0
        self._ranks = self._ranks_that_differ(rows, cache)
        self._cross_node_verdicts: list[tuple[CrossNodePredicate, CrossNodeVerdict]] = [
            (entry, verdict)
            for entry in hooks.cross_node_predicate
            if (verdict := entry.fn(task_class)) is not None
        ]
        self._cross_node_scores: list[tuple[float, CrossNodeScore]] = [
            (entry.weight, score)
            for entry in hooks.cross_node_score
            if (score := entry.fn(task_class)) is not None
        ]
        self.stepwise = bool(self._cross_node_scores) or any(
            not v.steady for _, v in self._cross_node_verdicts
        )
        """Whether placing a task changes more than the node that it is placed on."""
        self.one_by_one = any(verdict.one_by_one for _, verdict in self._cross_node_verdicts)
        """Whether only a placement itself shows where the next task may go."""
        self.own_idle, self.own_future, self.score = self._evaluate(rows)
        """Nodes that admit the class by themselves; `idle` and `future` add cross-node rules."""
        self.own_idle &= ~self._refused
        self.own_future &= ~self._refused
        self._widen()

    def _static_verdicts(self, rows: Rows, cache: StaticCache) -> list[tuple[Predicate, CodeArray]]:
        """Return the results of predicates that read only node objects; cached while unchanged."""
        found = []
        for predicate in self._hooks.predicate:
            if predicate.static:
                key = (predicate.identity, self.task_class.id)
                ask = partial(predicate.fn, self.task_class, rows)
                codes = cache.get(key, self.nodes.attributes.generation, ask)
                found.append((predicate, codes.astype(np.uint8, copy=False)))
        return found

    def _ranks_that_differ(self, rows: Rows, cache: StaticCache) -> list[tuple[Rank, IntArray]]:
        """Return the ranks of nodes, without those that are equal on all nodes."""
        found = []
        for rank in self._hooks.node_rank:
            key = (rank.identity, self.task_class.id)
            ask = partial(rank.fn, self.task_class, rows)
            raw = cache.get(key, self.nodes.attributes.generation, ask).astype(np.int64, copy=False)
            if self._size and raw.min() != raw.max():
                found.append((rank, raw))
        return found

    # --- keeping up --------------------------------------------------------------------------

    def refresh(self) -> None:
        """Recompute the nodes that changed since the last call."""
        ledger = self.nodes.ledger
        if self._seen == ledger.tick:
            return
        columns = ledger.changed_since(self._seen)
        self._seen = ledger.tick
        idle, future, score = self._evaluate(Rows(self.nodes, self.task_class, columns))
        free = ~self._refused[columns]
        self.own_idle[columns] = idle & free
        self.own_future[columns] = future & free
        self.score[columns] = score
        self._widen()

    def _widen(self) -> None:
        self.idle, self.future = self.own_idle, self.own_future
        if self._cross_node_verdicts:
            within = later = self.open_within(waiting=False)
            if any(verdict.later for _, verdict in self._cross_node_verdicts):
                later = self.open_within(waiting=True)
            self.idle, self.future = self.idle & within, self.future & later

    def open_within(self, *, waiting: bool) -> BoolArray:
        """Return the nodes that cross-node predicates admit, now or after all releases."""
        result = np.ones(self._size, dtype=np.bool_)
        for _, verdict in self._cross_node_verdicts:
            result &= _codes(verdict, waiting=waiting) == 0
        return result

    def level(self, rows: Rows, *, waiting: bool) -> tuple[BoolArray, FloatArray]:
        """Return which rows fit by the state of their own node, and their scores."""
        fits = self.fits(rows, waiting=waiting) & self.admitted(rows)
        return fits & ~rows.pick(self._refused), self.scored(rows)

    def _evaluate(self, rows: Rows) -> tuple[BoolArray, BoolArray, FloatArray]:
        admitted = self.admitted(rows)
        idle = admitted & self.fits(rows, waiting=False)
        future = idle.copy() if rows.at_rest else admitted & self.fits(rows, waiting=True)
        return idle, future, self.scored(rows)

    # --- functions of rows -------------------------------------------------------------------

    def admitted(self, rows: Rows) -> BoolArray:
        """Return which rows the dynamic predicates admit."""
        result: BoolArray | None = None
        for predicate in self._dynamic:
            admits = predicate.fn(self.task_class, rows) == 0
            result = admits if result is None else result & admits
        return np.ones(len(rows), dtype=np.bool_) if result is None else result

    def fits(self, rows: Rows, *, waiting: bool) -> BoolArray:
        """Return which rows have room, now or (`waiting`) after all releases.

        A best-effort task needs none (A04). ⚠ CPU and memory are compared even if not requested: an
        overcommitted node takes no pod (T07). ⚠ What Pipelined tasks reserve is not free now
        either: a node must have room now and later (A03).
        """
        result = np.ones(len(rows), dtype=np.bool_)
        if self.task_class.best_effort:
            return result
        for dim in self.task_class.dims:
            if not waiting:
                result &= rows.room(dim, waiting=False) >= self.task_class.request[dim]
            if waiting or not rows.at_rest:
                result &= rows.room(dim, waiting=True) >= self.task_class.request[dim]
        return result

    def scored(self, rows: Rows) -> FloatArray:
        """Return the sum of all scores that depend on the row alone (SS08)."""
        result = np.zeros(len(rows), dtype=np.float64)
        for fn in self._hooks.node_score:
            result += fn(self.task_class, rows)
        return result

    def ranked(self, mask: BoolArray) -> FloatArray | None:
        """Return the normalised part of the score over these candidates, None when it is flat."""
        result: FloatArray | None = None
        for rank, raw in self._ranks:
            among = raw[mask]
            if not len(among) or among.min() == among.max():
                continue
            scaled = _MAX_NODE_SCORE * raw // among.max()
            if rank.reverse:
                scaled = _MAX_NODE_SCORE - scaled
            part = rank.weight * scaled
            result = part if result is None else result + part
        for weight, score in self._cross_node_scores if mask.any() else ():
            part = weight * score(mask)
            result = part if result is None else result + part
        return result

    @property
    def open(self) -> BoolArray:
        """The nodes that predicates on node objects admit."""
        return ~self._refused

    def reachable(self) -> BoolArray:
        """Return the nodes that evictions could open: no refusal there is permanent (A05)."""
        result: BoolArray = self.nodes.ledger.alive[: self._size].copy()
        rows = Rows(self.nodes, self.task_class)
        verdicts: list[tuple[Predicate | CrossNodePredicate, CodeArray]] = [
            *self._verdicts,
            *((p, p.fn(self.task_class, rows)) for p in self._dynamic if not _all_resolvable(p)),
            *((_worded(p, verdict), verdict.codes()) for p, verdict in self._cross_node_verdicts),
        ]
        for predicate, codes in verdicts:
            result &= ~_permanent(predicate, codes)
        return result

    def admits(self, column: int) -> bool:
        """Tell whether predicates admit a Pipelined task on a node; resources do not count."""
        row = Rows(self.nodes, self.task_class, np.array([column], dtype=np.int64))
        verdicts = [verdict for _, verdict in self._cross_node_verdicts]
        within = all(not _codes(verdict, waiting=True)[column] for verdict in verdicts)
        return not self._refused[column] and within and bool(self.admitted(row)[0])

    def best_first(self, mask: BoolArray, first: int) -> list[int]:
        """Return the columns of a mask by falling score; equal ones from column `first` on."""
        found: list[int] = self._ordered(mask, first, None).tolist()
        return found

    def best(self, mask: BoolArray, first: int, bias: FloatArray | None) -> int:
        """Return the best column of a mask that has any; `bias` adds to the score of each."""
        return int(self._ordered(mask, first, bias)[0])

    def _ordered(self, mask: BoolArray, first: int, bias: FloatArray | None) -> IntArray:
        columns = np.flatnonzero(mask)
        score = self.score[columns]
        if bias is not None:
            score = score + bias
        rank = self.ranked(mask)
        if rank is not None:
            score = score + rank[columns]
        turn = (columns - first) % max(1, len(mask))
        ordered: IntArray = columns[np.lexsort((turn, -score))]
        return ordered

    # --- explanation -------------------------------------------------------------------------

    def failure(self) -> FitErrors:
        """Return why no node takes a task now; computed once per state of the ledger."""
        version = self.nodes.ledger.version
        if self._failure is None or self._failure[0] != version:
            self._failure = (version, self._explain())
        return self._failure[1]

    def _explain(self) -> FitErrors:
        rows = Rows(self.nodes, self.task_class)
        open_rows = self.nodes.ledger.alive[: self._size].copy()
        total = int(open_rows.sum())
        reasons: Counter[str] = Counter()
        shortages = []
        verdicts: list[tuple[Predicate | CrossNodePredicate, CodeArray]] = [
            (p, p.fn(self.task_class, rows)) for p in self._dynamic
        ]
        for cross_node, verdict in self._cross_node_verdicts:
            judged = verdict.codes()  # before its reasons, which may follow from them
            verdicts.append((_worded(cross_node, verdict), judged))
        decisive = ~self._refused
        for predicate, codes in verdicts:
            decisive &= ~_permanent(predicate, codes)
        if not self.task_class.best_effort:
            for dim in self.task_class.dims:
                name = self._dimensions.names[dim]
                room = rows.room(dim, waiting=True)
                lacks = room < self.task_class.request[dim]
                short = open_rows & lacks
                if short.any():
                    reasons[f"Insufficient {name}"] += int(short.sum())
                    open_rows &= ~short
                # What no node has is short, too, where nodes are counted for another resource.
                only = decisive & (lacks if lacks[decisive].all() else short)
                if only.any():
                    shortages.append(self._shortage(name, dim, room[only]))
        for predicate, codes in (*self._verdicts, *verdicts):
            counts = np.bincount(codes[open_rows], minlength=len(predicate.reasons) + 1)
            for number, reason in enumerate(predicate.reasons, start=1):
                if counts[number]:
                    reasons[reason.text] += int(counts[number])
            open_rows &= codes == 0
        return FitErrors(total, dict(reasons), tuple(shortages))

    def _shortage(self, name: str, dim: int, room: IntArray) -> Shortage:
        """Return the shortage of a resource; `room` has the nodes that evictions could open."""
        return Shortage(
            resource=name,
            requested=int(self.task_class.request[dim]),
            largest_free=int(room.max()),
        )


def _codes(verdict: CrossNodeVerdict, *, waiting: bool) -> CodeArray:
    return verdict.later() if waiting and verdict.later is not None else verdict.codes()


def _worded(predicate: CrossNodePredicate, verdict: CrossNodeVerdict) -> CrossNodePredicate:
    """Return a predicate with the reasons of its verdict, if the verdict has any."""
    if verdict.reasons is None:
        return predicate
    return predicate._replace(reasons=verdict.reasons())


def _permanent(predicate: Predicate | CrossNodePredicate, codes: CodeArray) -> BoolArray:
    """Return the nodes with a reason that no eviction can change."""
    final = np.array([False, *(not reason.resolvable for reason in predicate.reasons)])
    refused: BoolArray = final[codes]
    return refused


def _all_resolvable(predicate: Predicate | CrossNodePredicate) -> bool:
    return all(reason.resolvable for reason in predicate.reasons)
