"""PodDisruptionBudgets: how many pods of a kind may be evicted now, by namespace (PL14)."""

from collections.abc import Mapping
from typing import NamedTuple

from typing_extensions import override

from services.scheduler.engine.tasks.pod_selectors import Selector, selector_of
from services.scheduler.engine.tasks.policy_state import Fold, PolicyState
from shared.api import kinds
from shared.api.workloads import PodDisruptionBudget


class Budget(NamedTuple):
    """One PodDisruptionBudget."""

    selector: Selector | None
    allowed: int
    """Evictions that the disruption controller allows now."""
    counted: frozenset[str]
    """Names of pods whose eviction the budget has counted already."""

    def protects(self, labels: Mapping[str, str]) -> bool:
        """Tell whether it speaks of a pod; ⚠ an empty selector speaks of none."""
        selector = self.selector
        return selector is not None and bool(selector.requirements) and selector.matches(labels)


class Budgets(PolicyState):
    """All budgets, by the namespace of the pods that they protect."""

    def __init__(self) -> None:
        self._by_namespace: dict[str, dict[str, Budget]] = {}

    @override
    def folds(self) -> Mapping[str, Fold]:
        """Read PodDisruptionBudgets."""
        return {kinds.PDB.token: Fold(self.put, self.remove)}

    def put(self, key: str, obj: PodDisruptionBudget) -> None:
        """Take over a budget."""
        budget = Budget(
            selector=selector_of(obj.spec.selector, {}),
            allowed=obj.status.disruptions_allowed,
            counted=frozenset(obj.status.disrupted_pods),
        )
        self._by_namespace.setdefault(key.partition("/")[0], {})[key] = budget

    def remove(self, key: str) -> None:
        """Forget a budget."""
        self._by_namespace.get(key.partition("/")[0], {}).pop(key, None)

    def of(self, namespace: str) -> dict[str, Budget]:
        """Return the budgets of a namespace by their keys."""
        return self._by_namespace.get(namespace, {})
