"""Pod affinity, anti-affinity and spread constraints of a pod, and the queries that match it.

Part of a task class. Queries are named by their numbers in `nodes.pod_affinity`, so that two pods
share a class exactly when the same counts decide about both.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from services.scheduler.engine.tasks.pod_selectors import (
    PodFilter,
    Query,
    filter_of,
    selector_of,
    taken,
)
from shared.api.core import PodSpec
from shared.api.selectors import PodAffinity, TopologySpreadConstraint, WhenUnsatisfiable

HONOR: Final = "Honor"
IGNORE: Final = "Ignore"


class AffinityTerm(NamedTuple):
    """Pods of `query` in the domain of a node by `key`; `weight` where it is a preference."""

    query: int
    key: str
    weight: int = 0


class SpreadConstraint(NamedTuple):
    """A spread constraint."""

    query: int
    key: str
    max_skew: int
    min_domains: int
    by_affinity: bool
    """Only nodes that the pod's node selector and affinity admit have domains."""
    by_taints: bool
    """Only nodes whose taints the pod tolerates have domains."""
    counts_itself: bool
    counts_others: bool
    """⚠ An empty selector selects the pod itself but counts no other pod, as in Kubernetes."""


class AffinityTerms(NamedTuple):
    """The terms of one class, and the queries that match its pods."""

    matched: tuple[int, ...] = ()
    """Queries that count the pod."""
    required_affinity: tuple[AffinityTerm, ...] = ()
    """Required affinity: the query of each term is that of all terms together."""
    required_anti_affinity: tuple[AffinityTerm, ...] = ()
    preferred: tuple[AffinityTerm, ...] = ()
    """Preferred affinity (weight > 0) and anti-affinity (weight < 0)."""
    hard_spreading: tuple[SpreadConstraint, ...] = ()
    soft_spreading: tuple[SpreadConstraint, ...] = ()

    def stated(self) -> set[int]:
        """Return the queries of its own terms."""
        parts: list[AffinityTerm | SpreadConstraint]
        parts = [
            *self.required_affinity,
            *self.required_anti_affinity,
            *self.preferred,
            *self.hard_spreading,
            *self.soft_spreading,
        ]
        return {part.query for part in parts}

    def renumbered(self, numbers: Mapping[int, int], matched: tuple[int, ...]) -> "AffinityTerms":
        """Return the same terms with other numbers of queries."""

        def affinity(terms: tuple[AffinityTerm, ...]) -> tuple[AffinityTerm, ...]:
            return tuple(term._replace(query=numbers[term.query]) for term in terms)

        def spreading(terms: tuple[SpreadConstraint, ...]) -> tuple[SpreadConstraint, ...]:
            return tuple(term._replace(query=numbers[term.query]) for term in terms)

        return AffinityTerms(
            matched=matched,
            required_affinity=affinity(self.required_affinity),
            required_anti_affinity=affinity(self.required_anti_affinity),
            preferred=affinity(self.preferred),
            hard_spreading=spreading(self.hard_spreading),
            soft_spreading=spreading(self.soft_spreading),
        )

    @property
    def states_terms(self) -> bool:
        """Whether the pod itself asks for something."""
        return any(
            (
                self.required_affinity,
                self.required_anti_affinity,
                self.preferred,
                self.hard_spreading,
                self.soft_spreading,
            )
        )


NO_AFFINITY_TERMS: Final = AffinityTerms()
"""Terms of a pod that states none and that no query matches."""


def states_terms(spec: PodSpec) -> bool:
    """Tell whether a pod asks for something that has to do with other pods."""
    affinity = spec.affinity
    return bool(spec.topology_spread_constraints) or (
        affinity is not None
        and (affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None)
    )


def terms_of(
    spec: PodSpec, namespace: str, labels: Mapping[str, str], number: Callable[[Query], int]
) -> AffinityTerms:
    """Return a pod's terms; `number` names queries. `matched` stays empty."""
    affinity = spec.affinity
    pod_affinity = affinity.pod_affinity if affinity else None
    pod_anti_affinity = affinity.pod_anti_affinity if affinity else None

    def means(filters: tuple[PodFilter, ...]) -> int:
        return number(Query(filters))

    def required_terms(terms: PodAffinity | None) -> list[tuple[PodFilter, str]]:
        required = terms.required_during_scheduling_ignored_during_execution if terms else ()
        return [(filter_of(term, namespace, labels), term.topology_key) for term in required]

    def preferred_terms(terms: PodAffinity | None, sign: int) -> list[AffinityTerm]:
        preferred = terms.preferred_during_scheduling_ignored_during_execution if terms else ()
        return [
            AffinityTerm(
                means((filter_of(each.pod_affinity_term, namespace, labels),)),
                each.pod_affinity_term.topology_key,
                sign * each.weight,
            )
            for each in preferred
        ]

    desired = required_terms(pod_affinity)
    together = means(tuple(sorted({each for each, _ in desired}, key=repr))) if desired else -1
    spreading = [
        _constraint(each, namespace, labels, number) for each in spec.topology_spread_constraints
    ]
    return AffinityTerms(
        required_affinity=tuple(AffinityTerm(together, key) for _, key in desired),
        required_anti_affinity=tuple(
            AffinityTerm(means((each,)), key) for each, key in required_terms(pod_anti_affinity)
        ),
        preferred=(*preferred_terms(pod_affinity, 1), *preferred_terms(pod_anti_affinity, -1)),
        hard_spreading=tuple(constraint for constraint, is_hard in spreading if is_hard),
        soft_spreading=tuple(constraint for constraint, is_hard in spreading if not is_hard),
    )


def _constraint(
    stated: TopologySpreadConstraint,
    namespace: str,
    labels: Mapping[str, str],
    number: Callable[[Query], int],
) -> tuple[SpreadConstraint, bool]:
    more = taken(labels, stated.match_label_keys)
    selector = selector_of(stated.label_selector, more)
    query = Query((PodFilter((namespace,), None, selector),), staying=True)
    constraint = SpreadConstraint(
        query=number(query),
        key=stated.topology_key,
        max_skew=stated.max_skew,
        min_domains=stated.min_domains or 1,
        by_affinity=(stated.node_affinity_policy or HONOR) == HONOR,
        by_taints=(stated.node_taints_policy or IGNORE) == HONOR,
        counts_itself=selector is not None and selector.matches(labels),
        counts_others=selector is not None and bool(selector.requirements),
    )
    return constraint, stated.when_unsatisfiable == WhenUnsatisfiable.DO_NOT_SCHEDULE
