"""Pod topology spread (PL07, PL08): hard constraints as a predicate, soft ones as a score."""

from collections.abc import Callable
from functools import partial

import numpy as np

from pumice.plugins import (
    BoolArray,
    CodeArray,
    CrossNodeScore,
    CrossNodeVerdict,
    FloatArray,
    IntArray,
    Reason,
    TaskClass,
)
from services.scheduler.engine.narrowing import engine_record
from services.scheduler.engine.nodes.attributes import NodeAttributes
from services.scheduler.engine.nodes.domain_sums import DomainTable, Tally
from services.scheduler.engine.nodes.pod_affinity import PodAffinityIndex
from services.scheduler.engine.tasks.affinity_terms import SpreadConstraint
from services.scheduler.engine.tasks.task import TaskClass as EngineTaskClass
from services.scheduler.policy.eligible import by_affinity, by_taints, nodes_with
from shared.api import keys

_MAX = 100
_UNBOUNDED = 2**31 - 1
SKEWED, UNLABELLED = 1, 2
REASONS = (
    Reason("node(s) didn't match pod topology spread constraints"),
    Reason(
        "node(s) didn't match pod topology spread constraints (missing required label)",
        resolvable=False,
    ),
)


class Spreading:
    """Predicate and score of topology spread constraints."""

    def __init__(self, pod_affinity: PodAffinityIndex, attributes: NodeAttributes) -> None:
        self._pod_affinity = pod_affinity
        self._attributes = attributes
        self._no_pods = Tally(lambda _: -1, attributes, [])

    # --- hard --------------------------------------------------------------------------------

    def hard_constraints(self, task_class: TaskClass) -> CrossNodeVerdict | None:
        """Return the predicate on a class's hard topology spread constraints."""
        affinity_terms = engine_record(task_class, EngineTaskClass).affinity_terms
        hard = affinity_terms.hard_spreading
        if not hard:
            return None
        tables = self._tables(task_class, hard)
        present = [_present(table) for table in tables]
        steady = not any(constraint.query in affinity_terms.matched for constraint in hard)
        predicate = partial(_predicate, list(zip(hard, tables, present, strict=True)))
        return CrossNodeVerdict(lambda: predicate(len(self._attributes.names)), steady=steady)

    def _tables(
        self, task_class: TaskClass, constraints: tuple[SpreadConstraint, ...]
    ) -> list[DomainTable]:
        labelled = nodes_with([constraint.key for constraint in constraints], self._attributes)
        tables = []
        for constraint in constraints:
            counted = labelled
            if constraint.by_affinity:
                counted = counted & by_affinity(task_class, self._attributes)
            if constraint.by_taints:
                counted = counted & by_taints(task_class, self._attributes)
            among = (task_class.id, constraint, constraints)
            tables.append(self._tally(constraint).table(constraint.key, among, counted))
        return tables

    # --- soft --------------------------------------------------------------------------------

    def preference(self, task_class: TaskClass) -> CrossNodeScore | None:
        """Return how to score nodes by a class's soft constraints.

        Kubernetes' own default constraints count pods of a Service; Pumice does not read Services.
        """
        soft = engine_record(task_class, EngineTaskClass).affinity_terms.soft_spreading
        return _Soft(soft, self._tables(task_class, soft), self._here) if soft else None

    def _here(self, constraint: SpreadConstraint) -> DomainTable:
        return self._tally(constraint).table(constraint.key)

    def _tally(self, constraint: SpreadConstraint) -> Tally:
        if constraint.counts_others:
            return self._pod_affinity.counts[constraint.query]
        return self._no_pods


def _present(table: DomainTable) -> IntArray:
    """Return the domains that have a node that counts."""
    return np.unique(table.into[table.into >= 0])


def _predicate(parts: list[tuple[SpreadConstraint, DomainTable, IntArray]], size: int) -> CodeArray:
    codes = np.zeros(size, dtype=np.uint8)
    for constraint, table, present in parts:
        least = int(table.sums[present].min()) if len(present) else _UNBOUNDED
        if len(present) < constraint.min_domains:
            least = 0
        skewed = table.at + int(constraint.counts_itself) - least > constraint.max_skew
        undecided = codes == 0
        without_label = table.numbers < 0
        codes[undecided & without_label] = UNLABELLED
        codes[undecided & ~without_label & skewed] = SKEWED
    return codes


class _Soft:
    """The score of one class; remembers what only the set of candidates decides."""

    def __init__(
        self,
        constraints: tuple[SpreadConstraint, ...],
        tables: list[DomainTable],
        here: Callable[[SpreadConstraint], DomainTable],
    ) -> None:
        self._parts = [
            (constraint, here(constraint) if constraint.key == keys.HOSTNAME else table)
            for constraint, table in zip(constraints, tables, strict=True)
        ]
        self._mask: BoolArray | None = None
        self._valid: BoolArray = np.zeros(0, dtype=np.bool_)
        self._weights: list[float] = []

    def __call__(self, mask: BoolArray) -> FloatArray:
        if self._mask is None or not np.array_equal(mask, self._mask):
            self._look_at(mask)
        raw = np.zeros(len(mask), dtype=np.float64)
        for (constraint, table), weight in zip(self._parts, self._weights, strict=True):
            raw += table.at * weight + (constraint.max_skew - 1)
        return evened(np.floor(raw + 0.5).astype(np.int64), self._valid)

    def _look_at(self, mask: BoolArray) -> None:
        self._mask = mask
        self._valid = mask.copy()
        for _, table in self._parts:
            self._valid &= table.numbers >= 0
        number = int(self._valid.sum())
        self._weights = []
        for constraint, table in self._parts:
            size = number
            if constraint.key != keys.HOSTNAME:
                size = int(np.count_nonzero(np.bincount(table.numbers[self._valid])))
            self._weights.append(float(np.log(size + 2)))


def evened(raw: IntArray, valid: BoolArray) -> FloatArray:
    """Turn counts into 0…100, fewer being better; nodes without the labels get 0."""
    result = np.zeros(len(raw), dtype=np.float64)
    among = raw[valid]
    if not len(among):
        return result
    least, most = int(among.min()), int(among.max())
    result[valid] = _MAX * (most + least - among) // most if most else _MAX
    return result
