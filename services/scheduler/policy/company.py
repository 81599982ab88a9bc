"""Inter-pod affinity and anti-affinity (PL07, PL08) over sums per topology domain.

A term by a label that no two nodes share (host names) is a matter of the node alone and decided
with all other predicates (`Company.here`); other terms are decided over domains (`elsewhere`).
"""

from collections.abc import Iterator

import numpy as np

from pumice.plugins import (
    BoolArray,
    CodeArray,
    FloatArray,
    IntArray,
    NodeRows,
    Reason,
    TaskClass,
    WideScore,
    WideVerdict,
)
from services.scheduler.engine.labels import NodeAttributes
from services.scheduler.engine.locality import Near
from services.scheduler.engine.own import own
from services.scheduler.engine.peers import Peers
from services.scheduler.engine.shapes import TaskClass as OwnClass
from services.scheduler.engine.tallies import DomainTable

_MAX = 100
ALONE, TOGETHER, SHUNNED = 1, 2, 3
REASONS = (
    Reason("node(s) didn't match pod affinity rules", resolvable=False),
    Reason("node(s) didn't match pod anti-affinity rules"),
    Reason("node(s) didn't satisfy existing pods anti-affinity rules"),
)


class Company:
    """What pods on nodes say about where others may go."""

    def __init__(self, peers: Peers, attributes: NodeAttributes) -> None:
        self._peers = peers
        self._attributes = attributes

    # --- required ----------------------------------------------------------------------------

    def here(self, shape: TaskClass, rows: NodeRows) -> CodeArray:
        """Judge rows by anti-affinity terms whose domains are single nodes."""
        codes = np.zeros(len(rows), dtype=np.uint8)
        for code, table, counts_own in self._opposed(shape, unique=True):
            near = table.sums[table.numbers[rows.index]]
            if counts_own:
                near = near + rows.extra * (table.numbers[rows.index] >= 0)
            codes[(near > 0) & (codes == 0)] = code
        return codes

    def elsewhere(self, shape: TaskClass) -> WideVerdict | None:
        """Return how to judge nodes by affinity, and by anti-affinity over wider domains."""
        locality = own(shape, OwnClass).locality
        wide = list(self._opposed(shape, unique=False))
        if not locality.beside and not wide:
            return None
        attracted = any(near.query in locality.matched for near in locality.beside)
        steady = not attracted and not any(counts_own for _, _, counts_own in wide)
        return WideVerdict(lambda: self._codes(shape), steady=steady)

    def _codes(self, shape: TaskClass) -> CodeArray:
        codes = np.zeros(len(self._attributes.names), dtype=np.uint8)
        if own(shape, OwnClass).locality.beside:
            codes[~self._beside(shape)] = ALONE
        for code, table, _ in self._opposed(shape, unique=False):
            codes[(table.at > 0) & (codes == 0)] = code
        return codes

    def _beside(self, shape: TaskClass) -> BoolArray:
        """Return the nodes whose domains have the company that is asked for.

        The first pod of a group that wants its own company goes wherever there are domains.
        """
        tables = [self._table(near) for near in own(shape, OwnClass).locality.beside]
        labelled = np.ones(len(self._attributes.names), dtype=np.bool_)
        for table in tables:
            labelled &= table.numbers >= 0
        first = (
            own(shape, OwnClass).locality.beside[0].query in own(shape, OwnClass).locality.matched
        )
        if first and not any(table.sums.any() for table in tables):
            return labelled
        for table in tables:
            labelled &= table.at > 0
        return labelled

    def _opposed(
        self, shape: TaskClass, *, unique: bool
    ) -> Iterator[tuple[int, DomainTable, bool]]:
        """Yield (code, pods that keep the class away, whether its own tasks are such pods)."""
        locality = own(shape, OwnClass).locality
        for near in locality.apart:
            if self._attributes.is_unique(near.key) == unique:
                yield TOGETHER, self._table(near), near.query in locality.matched
        for query in locality.matched:
            for key, tally in self._peers.shunning.get(query, {}).items():
                if self._attributes.is_unique(key) == unique:
                    yield SHUNNED, tally.table(key), Near(query, key) in locality.apart

    def _table(self, near: Near) -> DomainTable:
        return self._peers.counts[near.query].table(near.key)

    # --- preferred ---------------------------------------------------------------------------

    def preference(self, shape: TaskClass) -> WideScore | None:
        """Return how to score nodes by the company that is liked, on either side.

        ⚠ Volcano leaves Kubernetes' `hardPodAffinityWeight` at 0: required affinity of pods that
        are there attracts nobody.
        """
        locality = own(shape, OwnClass).locality
        liked = [query for query in locality.matched if self._peers.leaning.get(query)]
        if not locality.leaning and not liked:
            return None

        def score(mask: BoolArray) -> FloatArray:
            raw = np.zeros(len(mask), dtype=np.int64)
            for near in locality.leaning:
                raw += near.weight * self._table(near).at
            for query in liked:
                for key, tally in self._peers.leaning[query].items():
                    raw += tally.table(key).at
            return stretched(raw, mask)

        return score


def stretched(raw: IntArray, mask: BoolArray) -> FloatArray:
    """Scale to 0…100 between the least and the most of the candidates, as whole numbers."""
    among = raw[mask]
    least, most = int(among.min()), int(among.max())
    if least == most:
        return np.zeros(len(raw), dtype=np.float64)
    result: FloatArray = np.trunc(_MAX * ((raw - least) / (most - least)))
    return result
