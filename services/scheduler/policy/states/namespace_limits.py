"""Limits of namespaces: ResourceQuotas (PL12) and PodDisruptionBudgets (PL14)."""

from collections.abc import Mapping
from typing import Generic, NamedTuple, TypeVar

from typing_extensions import override

from pumice.plugins import Fold, PolicyState
from services.scheduler.engine.resources.dimensions import as_listed
from services.scheduler.engine.tasks.pod_selectors import Selector, selector_of
from shared.api import kinds
from shared.api.core import ResourceQuota
from shared.api.workloads import PodDisruptionBudget
from shared.jobs.pod_terms import TooManyTerms, excess_of_budget

Amounts = Mapping[str, int]
"""Resource as the quota spells it → thousandths."""
_L = TypeVar("_L")


class _ByNamespace(PolicyState, Generic[_L]):
    """Limits of one kind, by namespace and key."""

    def __init__(self) -> None:
        self._by_namespace: dict[str, dict[str, _L]] = {}

    def _keep(self, key: str, limit: _L) -> None:
        self._by_namespace.setdefault(key.partition("/")[0], {})[key] = limit

    def remove(self, key: str) -> None:
        """Forget a limit."""
        namespace = key.partition("/")[0]
        limits = self._by_namespace.get(namespace, {})
        limits.pop(key, None)
        if not limits:
            self._by_namespace.pop(namespace, None)

    def of(self, namespace: str) -> Mapping[str, _L]:
        """Return the limits of a namespace by their keys."""
        return self._by_namespace.get(namespace, {})


class Quota(NamedTuple):
    """The status of one ResourceQuota, as the API server counts it."""

    hard: Amounts
    used: Amounts


class Quotas(_ByNamespace[Quota]):
    """All ResourceQuotas of the cluster."""

    @override
    def folds(self) -> Mapping[str, Fold]:
        """Read ResourceQuotas."""
        return {kinds.RESOURCEQUOTA.token: Fold(self.put, self.remove)}

    def put(self, key: str, obj: ResourceQuota) -> None:
        """Store a quota. Raises `BadQuantity`."""
        self._keep(key, Quota(as_listed(obj.status.hard), as_listed(obj.status.used)))


class DisruptionBudget(NamedTuple):
    """One PodDisruptionBudget."""

    selector: Selector | None
    allowed: int
    """Evictions that the disruption controller allows now."""
    counted: frozenset[str]
    """Names of pods whose eviction the budget has counted already."""

    def protects(self, labels: Mapping[str, str]) -> bool:
        """Tell whether it selects a pod; ⚠ an empty selector selects none."""
        selector = self.selector
        return selector is not None and bool(selector.requirements) and selector.matches(labels)


class Budgets(_ByNamespace[DisruptionBudget]):
    """All PodDisruptionBudgets: how many pods of a kind may be evicted now."""

    @override
    def folds(self) -> Mapping[str, Fold]:
        """Read PodDisruptionBudgets."""
        return {kinds.PDB.token: Fold(self.put, self.remove)}

    def put(self, key: str, obj: PodDisruptionBudget) -> None:
        """Store a budget. Raises `TooManyTerms`."""
        if why := excess_of_budget(obj.spec):
            raise TooManyTerms(why)
        budget = DisruptionBudget(
            selector=selector_of(obj.spec.selector, {}),
            allowed=obj.status.disruptions_allowed,
            counted=frozenset(obj.status.disrupted_pods),
        )
        self._keep(key, budget)
