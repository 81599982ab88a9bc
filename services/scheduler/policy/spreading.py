"""Pod topology spread (PL07, PL08): hard constraints as a predicate, soft ones as a score."""

from collections.abc import Callable
from functools import partial

import numpy as np

from pumice.plugins import (
    BoolArray,
    CodeArray,
    FloatArray,
    IntArray,
    Reason,
    TaskClass,
    WideScore,
    WideVerdict,
)
from services.scheduler.engine.labels import NodeAttributes
from services.scheduler.engine.locality import Even
from services.scheduler.engine.own import own
from services.scheduler.engine.peers import Peers
from services.scheduler.engine.shapes import TaskClass as OwnClass
from services.scheduler.engine.tallies import DomainTable, Tally
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
    """How evenly pods lie over the domains of node labels."""

    def __init__(self, peers: Peers, attributes: NodeAttributes) -> None:
        self._peers = peers
        self._attributes = attributes
        self._nobody = Tally(lambda _: -1, attributes, [])

    # --- hard --------------------------------------------------------------------------------

    def constraint(self, shape: TaskClass) -> WideVerdict | None:
        """Return how to judge nodes by a class's hard constraints."""
        hard = own(shape, OwnClass).locality.hard
        if not hard:
            return None
        tables = self._tables(shape, hard)
        present = [_present(table) for table in tables]
        steady = not any(even.query in own(shape, OwnClass).locality.matched for even in hard)
        judge = partial(_judge, list(zip(hard, tables, present, strict=True)))
        return WideVerdict(lambda: judge(len(self._attributes.names)), steady=steady)

    def _tables(self, shape: TaskClass, evens: tuple[Even, ...]) -> list[DomainTable]:
        labelled = nodes_with([even.key for even in evens], self._attributes)
        tables = []
        for even in evens:
            counted = labelled
            if even.by_affinity:
                counted = counted & by_affinity(shape, self._attributes)
            if even.by_taints:
                counted = counted & by_taints(shape, self._attributes)
            tally = self._peers.counts[even.query] if even.counts_others else self._nobody
            tables.append(tally.table(even.key, (shape.id, even, evens), counted))
        return tables

    # --- soft --------------------------------------------------------------------------------

    def preference(self, shape: TaskClass) -> WideScore | None:
        """Return how to score nodes by a class's soft constraints.

        Kubernetes' own default constraints count pods of a Service; nobody here reads Services.
        """
        if not own(shape, OwnClass).locality.soft:
            return None
        return _Soft(
            own(shape, OwnClass).locality.soft,
            self._tables(shape, own(shape, OwnClass).locality.soft),
            self._here,
        )

    def _here(self, even: Even) -> DomainTable:
        tally = self._peers.counts[even.query] if even.counts_others else self._nobody
        return tally.table(even.key)


def _present(table: DomainTable) -> IntArray:
    """Return the domains that have a node that counts."""
    return np.unique(table.into[table.into >= 0])


def _judge(parts: list[tuple[Even, DomainTable, IntArray]], size: int) -> CodeArray:
    codes = np.zeros(size, dtype=np.uint8)
    for even, table, present in parts:
        least = int(table.sums[present].min()) if len(present) else _UNBOUNDED
        if len(present) < even.min_domains:
            least = 0
        skewed = table.at + int(even.counts_itself) - least > even.max_skew
        unjudged = codes == 0
        lacking = table.numbers < 0
        codes[unjudged & lacking] = UNLABELLED
        codes[unjudged & ~lacking & skewed] = SKEWED
    return codes


class _Soft:
    """The score of one class; remembers what only the set of candidates decides."""

    def __init__(
        self,
        evens: tuple[Even, ...],
        tables: list[DomainTable],
        here: Callable[[Even], DomainTable],
    ) -> None:
        self._parts = [
            (even, here(even) if even.key == keys.HOSTNAME else table)
            for even, table in zip(evens, tables, strict=True)
        ]
        self._mask: BoolArray | None = None
        self._valid: BoolArray = np.zeros(0, dtype=np.bool_)
        self._weights: list[float] = []

    def __call__(self, mask: BoolArray) -> FloatArray:
        if self._mask is None or not np.array_equal(mask, self._mask):
            self._look_at(mask)
        raw = np.zeros(len(mask), dtype=np.float64)
        for (even, table), weight in zip(self._parts, self._weights, strict=True):
            raw += table.at * weight + (even.max_skew - 1)
        return evened(np.floor(raw + 0.5).astype(np.int64), self._valid)

    def _look_at(self, mask: BoolArray) -> None:
        self._mask = mask
        self._valid = mask.copy()
        for _, table in self._parts:
            self._valid &= table.numbers >= 0
        number = int(self._valid.sum())
        self._weights = []
        for even, table in self._parts:
            size = number
            if even.key != keys.HOSTNAME:
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
