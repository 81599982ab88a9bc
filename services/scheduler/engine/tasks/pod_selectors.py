"""Label selectors of pods in one canonical, hashable form: equal selectors are the same key.

Pods of one controller repeat the same selector thousands of times; counts are kept once per
distinct one (`nodes.pod_affinity`).
"""

from collections.abc import Mapping
from typing import NamedTuple

from shared.api.selectors import LabelSelector, PodAffinityTerm, holds


class Requirement(NamedTuple):
    """One condition on one label."""

    key: str
    operator: str
    values: tuple[str, ...]

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Tell whether labels meet it; an unknown operator holds for none."""
        return holds(self.operator, labels.get(self.key), self.values)


class Selector(NamedTuple):
    """All requirements must hold; none at all match everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether labels are selected."""
        return all(requirement.holds(labels) for requirement in self.requirements)


class PodFilter(NamedTuple):
    """The pods that one term selects."""

    namespaces: tuple[str, ...]
    namespace_selector: Selector | None
    selector: Selector | None
    """None selects no pod."""

    def matches(
        self, namespace: str, labels: Mapping[str, str], of_namespace: Mapping[str, str]
    ) -> bool:
        """Tell whether a pod is meant; `of_namespace` are the labels of its namespace."""
        if self.selector is None or not self.selector.matches(labels):
            return False
        if namespace in self.namespaces:
            return True
        desired = self.namespace_selector
        return desired is not None and desired.matches(of_namespace)


class Query(NamedTuple):
    """Pods that all filters mean: what is counted per node."""

    filters: tuple[PodFilter, ...]
    staying: bool = False
    """Leave out pods that are being deleted, as spreading does."""

    def matches(
        self, namespace: str, labels: Mapping[str, str], of_namespace: Mapping[str, str]
    ) -> bool:
        """Tell whether a pod is counted, apart from its being deleted."""
        return all(each.matches(namespace, labels, of_namespace) for each in self.filters)

    @property
    def reads_namespaces(self) -> bool:
        """Whether labels of namespaces matter."""
        return any(each.namespace_selector for each in self.filters)

    def keys(self) -> set[str]:
        """Return the labels of pods that decide."""
        return {need.key for need in self._requirements()}

    def pairs(self) -> list[tuple[str, str]]:
        """Return (label, value) pairs of which each matching pod has one; empty: no such list."""
        for need in self._requirements():
            if need.operator == "In":
                return [(need.key, value) for value in need.values]
        return []

    def _requirements(self) -> list[Requirement]:
        selectors = [each.selector for each in self.filters]
        return [need for selector in selectors if selector for need in selector.requirements]


def selector_of(selector: LabelSelector | None, more: Mapping[str, str]) -> Selector | None:
    """Return the canonical form with `more` labels demanded; None for an absent selector."""
    if selector is None:
        return None
    pairs = [*selector.match_labels.items(), *more.items()]
    needs = {Requirement(key, "In", (value,)) for key, value in pairs}
    needs |= {
        Requirement(need.key, need.operator, tuple(sorted(set(need.values))))
        for need in selector.match_expressions
    }
    return Selector(tuple(sorted(needs)))


def filter_of(term: PodAffinityTerm, namespace: str, labels: Mapping[str, str]) -> PodFilter:
    """Return which pods a term means that stands in a pod of this namespace and labels.

    The API server has merged `matchLabelKeys` into the selector of new pods already; merging once
    more changes nothing then.
    """
    selector = selector_of(term.label_selector, taken(labels, term.match_label_keys))
    if selector is not None:
        unlike = taken(labels, term.mismatch_label_keys)
        needs = {Requirement(key, "NotIn", (value,)) for key, value in unlike.items()}
        selector = Selector(tuple(sorted({*selector.requirements, *needs})))
    named = tuple(sorted(set(term.namespaces)))
    if not named and term.namespace_selector is None:
        named = (namespace,)
    return PodFilter(named, selector_of(term.namespace_selector, {}), selector)


def taken(labels: Mapping[str, str], keys: tuple[str, ...]) -> dict[str, str]:
    """Return those of the labels that have these keys."""
    return {key: labels[key] for key in keys if key in labels}
