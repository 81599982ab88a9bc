"""Inter-pod affinity and anti-affinity (PL07, PL08) over sums per topology domain.

A term by a label that no two nodes share (host name) depends on one node only and is checked with
all other predicates (`on_single_nodes`); other terms are checked over domains (`over_domains`).
"""

from collections.abc import Iterator

import numpy as np

from pumice.plugins import (
    BoolArray,
    CodeArray,
    CrossNodeScore,
    CrossNodeVerdict,
    FloatArray,
    IntArray,
    NodeRows,
    Reason,
    TaskClass,
)
from services.scheduler.engine.narrowing import engine_record
from services.scheduler.engine.nodes.attributes import NodeAttributes
from services.scheduler.engine.nodes.domain_sums import DomainTable
from services.scheduler.engine.nodes.pod_affinity import PodAffinityIndex
from services.scheduler.engine.tasks.affinity_terms import AffinityTerm
from services.scheduler.engine.tasks.task import TaskClass as EngineTaskClass

_MAX = 100
NO_AFFINITY, ANTI_AFFINITY, EXISTING_ANTI_AFFINITY = 1, 2, 3
REASONS = (
    Reason("node(s) didn't match pod affinity rules", resolvable=False),
    Reason("node(s) didn't match pod anti-affinity rules"),
    Reason("node(s) didn't satisfy existing pods anti-affinity rules"),
)


class InterPodAffinity:
    """Predicates and scores of affinity terms, of the pod itself and of pods on nodes."""

    def __init__(self, pod_affinity: PodAffinityIndex, attributes: NodeAttributes) -> None:
        self._pod_affinity = pod_affinity
        self._attributes = attributes

    # --- required ----------------------------------------------------------------------------

    def on_single_nodes(self, task_class: TaskClass, rows: NodeRows) -> CodeArray:
        """Check rows against anti-affinity terms whose domains are single nodes."""
        codes = np.zeros(len(rows), dtype=np.uint8)
        for code, table, counts_own in self._opposed(task_class, unique=True):
            count = table.sums[table.numbers[rows.index]]
            if counts_own:
                count = count + rows.extra * (table.numbers[rows.index] >= 0)
            codes[(count > 0) & (codes == 0)] = code
        return codes

    def over_domains(self, task_class: TaskClass) -> CrossNodeVerdict | None:
        """Return the predicate on pod affinity, and on anti-affinity over more than a node."""
        affinity_terms = engine_record(task_class, EngineTaskClass).affinity_terms
        wide = list(self._opposed(task_class, unique=False))
        if not affinity_terms.required_affinity and not wide:
            return None
        attracted = any(
            term.query in affinity_terms.matched for term in affinity_terms.required_affinity
        )
        steady = not attracted and not any(counts_own for _, _, counts_own in wide)
        return CrossNodeVerdict(lambda: self._codes(task_class), steady=steady)

    def _codes(self, task_class: TaskClass) -> CodeArray:
        codes = np.zeros(len(self._attributes.names), dtype=np.uint8)
        if engine_record(task_class, EngineTaskClass).affinity_terms.required_affinity:
            codes[~self._attracting(task_class)] = NO_AFFINITY
        for code, table, _ in self._opposed(task_class, unique=False):
            codes[(table.at > 0) & (codes == 0)] = code
        return codes

    def _attracting(self, task_class: TaskClass) -> BoolArray:
        """Return the nodes whose domains have pods that match the required affinity.

        ⚠ As in Kubernetes, the first pod of a group whose affinity matches itself may go to any
        node that has the topology keys; otherwise it would wait for itself.
        """
        affinity_terms = engine_record(task_class, EngineTaskClass).affinity_terms
        required = affinity_terms.required_affinity
        tables = [self._table(term) for term in required]
        labelled = np.ones(len(self._attributes.names), dtype=np.bool_)
        for table in tables:
            labelled &= table.numbers >= 0
        may_be_first = required[0].query in affinity_terms.matched
        if may_be_first and not any(table.sums.any() for table in tables):
            return labelled
        for table in tables:
            labelled &= table.at > 0
        return labelled

    def _opposed(
        self, task_class: TaskClass, *, unique: bool
    ) -> Iterator[tuple[int, DomainTable, bool]]:
        """Yield (code, repelling pods per node, whether the class's own tasks are among them)."""
        affinity_terms = engine_record(task_class, EngineTaskClass).affinity_terms
        for term in affinity_terms.required_anti_affinity:
            if self._attributes.is_unique(term.key) == unique:
                yield ANTI_AFFINITY, self._table(term), term.query in affinity_terms.matched
        for query in affinity_terms.matched:
            for key, tally in self._pod_affinity.anti_affinity.get(query, {}).items():
                if self._attributes.is_unique(key) == unique:
                    yield (
                        EXISTING_ANTI_AFFINITY,
                        tally.table(key),
                        AffinityTerm(query, key) in affinity_terms.required_anti_affinity,
                    )

    def _table(self, term: AffinityTerm) -> DomainTable:
        return self._pod_affinity.counts[term.query].table(term.key)

    # --- preferred ---------------------------------------------------------------------------

    def preference(self, task_class: TaskClass) -> CrossNodeScore | None:
        """Return how to score nodes by preferred terms, those of pods on nodes included.

        ⚠ Volcano leaves Kubernetes' `hardPodAffinityWeight` at 0: required affinity of existing
        pods adds no score.
        """
        affinity_terms = engine_record(task_class, EngineTaskClass).affinity_terms
        liked = [
            query for query in affinity_terms.matched if self._pod_affinity.preferred.get(query)
        ]
        if not affinity_terms.preferred and not liked:
            return None

        def score(mask: BoolArray) -> FloatArray:
            raw = np.zeros(len(mask), dtype=np.int64)
            for term in affinity_terms.preferred:
                raw += term.weight * self._table(term).at
            for query in liked:
                for key, tally in self._pod_affinity.preferred[query].items():
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
