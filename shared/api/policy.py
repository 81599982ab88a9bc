"""View of PodDisruptionBudget: which voluntary evictions are allowed now."""

from collections.abc import Mapping

from msgspec import field

from shared.api.base import View
from shared.api.meta import ObjectMeta
from shared.api.selectors import LabelSelector


class PodDisruptionBudgetSpec(View, frozen=True, kw_only=True):
    """How many pods must stay; numbers or percentages."""

    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    selector: LabelSelector | None = None
    """Absent matches no pod, empty matches all of the namespace."""


class PodDisruptionBudgetStatus(View, frozen=True, kw_only=True):
    """What the disruption controller worked out."""

    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    observed_generation: int = 0
    disrupted_pods: Mapping[str, str] = field(default_factory=dict)
    """Pod name → time: evicted already, not yet seen gone."""


class PodDisruptionBudget(View, frozen=True, kw_only=True):
    """A disruption budget."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()
