"""What a pod's placement has to do with other pods: its terms, resolved, and who counts it.

Part of a task class. Queries are named by their numbers in `peers`, so that two pods share a class
exactly when the same counts decide about both.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from services.scheduler.engine.selecting import PodFilter, Query, filter_of, selector_of, taken
from shared.api.core import PodSpec
from shared.api.selectors import PodAffinity, TopologySpreadConstraint, WhenUnsatisfiable

HONOR: Final = "Honor"
IGNORE: Final = "Ignore"


class Near(NamedTuple):
    """Pods of `query` in the domain of a node by `key`; `weight` where it is a preference."""

    query: int
    key: str
    weight: int = 0


class Even(NamedTuple):
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
    """An empty selector selects the pod itself but counts nobody (as Kubernetes does)."""


class Locality(NamedTuple):
    """All of it for one class."""

    matched: tuple[int, ...] = ()
    """Queries that count the pod."""
    beside: tuple[Near, ...] = ()
    """Required affinity: the query of each term is that of all terms together."""
    apart: tuple[Near, ...] = ()
    leaning: tuple[Near, ...] = ()
    """Preferences for (weight > 0) and against (weight < 0) company."""
    hard: tuple[Even, ...] = ()
    soft: tuple[Even, ...] = ()

    def stated(self) -> set[int]:
        """Return the queries of its own terms."""
        parts: list[Near | Even]
        parts = [*self.beside, *self.apart, *self.leaning, *self.hard, *self.soft]
        return {part.query for part in parts}

    def renumbered(self, numbers: Mapping[int, int], matched: tuple[int, ...]) -> "Locality":
        """Return the same terms with other numbers of queries."""

        def nears(terms: tuple[Near, ...]) -> tuple[Near, ...]:
            return tuple(term._replace(query=numbers[term.query]) for term in terms)

        def evens(terms: tuple[Even, ...]) -> tuple[Even, ...]:
            return tuple(term._replace(query=numbers[term.query]) for term in terms)

        return Locality(
            matched=matched,
            beside=nears(self.beside),
            apart=nears(self.apart),
            leaning=nears(self.leaning),
            hard=evens(self.hard),
            soft=evens(self.soft),
        )

    @property
    def states_terms(self) -> bool:
        """Whether the pod itself asks for something."""
        return any((self.beside, self.apart, self.leaning, self.hard, self.soft))


NOWHERE_SPECIAL: Final = Locality()
"""The locality of a pod that states nothing and that nobody counts."""


def states_terms(spec: PodSpec) -> bool:
    """Tell whether a pod asks for something that has to do with other pods."""
    affinity = spec.affinity
    return bool(spec.topology_spread_constraints) or (
        affinity is not None
        and (affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None)
    )


def terms_of(
    spec: PodSpec, namespace: str, labels: Mapping[str, str], number: Callable[[Query], int]
) -> Locality:
    """Return a pod's terms; `number` names queries. `matched` stays empty."""
    affinity = spec.affinity
    beside = affinity.pod_affinity if affinity else None
    apart = affinity.pod_anti_affinity if affinity else None

    def means(filters: tuple[PodFilter, ...]) -> int:
        return number(Query(filters))

    def near(terms: PodAffinity | None) -> list[tuple[PodFilter, str]]:
        required = terms.required_during_scheduling_ignored_during_execution if terms else ()
        return [(filter_of(term, namespace, labels), term.topology_key) for term in required]

    def leaning(terms: PodAffinity | None, sign: int) -> list[Near]:
        preferred = terms.preferred_during_scheduling_ignored_during_execution if terms else ()
        return [
            Near(
                means((filter_of(each.pod_affinity_term, namespace, labels),)),
                each.pod_affinity_term.topology_key,
                sign * each.weight,
            )
            for each in preferred
        ]

    wanted = near(beside)
    together = means(tuple(sorted({each for each, _ in wanted}, key=repr))) if wanted else -1
    spreading = [
        _even(each, namespace, labels, number) for each in spec.topology_spread_constraints
    ]
    return Locality(
        beside=tuple(Near(together, key) for _, key in wanted),
        apart=tuple(Near(means((each,)), key) for each, key in near(apart)),
        leaning=(*leaning(beside, 1), *leaning(apart, -1)),
        hard=tuple(even for even, is_hard in spreading if is_hard),
        soft=tuple(even for even, is_hard in spreading if not is_hard),
    )


def _even(
    constraint: TopologySpreadConstraint,
    namespace: str,
    labels: Mapping[str, str],
    number: Callable[[Query], int],
) -> tuple[Even, bool]:
    more = taken(labels, constraint.match_label_keys)
    selector = selector_of(constraint.label_selector, more)
    query = Query((PodFilter((namespace,), None, selector),), staying=True)
    even = Even(
        query=number(query),
        key=constraint.topology_key,
        max_skew=constraint.max_skew,
        min_domains=constraint.min_domains or 1,
        by_affinity=(constraint.node_affinity_policy or HONOR) == HONOR,
        by_taints=(constraint.node_taints_policy or IGNORE) == HONOR,
        counts_itself=selector is not None and selector.matches(labels),
        counts_others=selector is not None and bool(selector.requirements),
    )
    return even, constraint.when_unsatisfiable == WhenUnsatisfiable.DO_NOT_SCHEDULE
