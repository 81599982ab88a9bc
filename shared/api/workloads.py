"""Workloads of Kubernetes whose pods our schedulers may place, and their disruption budgets.

ReplicaSet, StatefulSet, DaemonSet and batch/v1 Job in one view: what groups of their pods depend on
is annotations, the number of pods wanted, and the scheduler that their template names (P02, P04).
"""

from collections.abc import Mapping

from msgspec import field

from shared.api.base import View
from shared.api.meta import ObjectMeta
from shared.api.selectors import LabelSelector


class WorkloadPodSpec(View, frozen=True, kw_only=True):
    """The part of a pod template that says whose pods these are."""

    scheduler_name: str = ""


class WorkloadTemplate(View, frozen=True, kw_only=True):
    """A pod template."""

    spec: WorkloadPodSpec = WorkloadPodSpec()


class WorkloadSpec(View, frozen=True, kw_only=True):
    """Spec of a workload."""

    replicas: int | None = None
    """Absent where the kind knows no such number."""
    template: WorkloadTemplate = WorkloadTemplate()


class Workload(View, frozen=True, kw_only=True):
    """The controlling owner of pods."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()


class PodDisruptionBudgetSpec(View, frozen=True, kw_only=True):
    """How many pods must stay; numbers or percentages."""

    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    selector: LabelSelector | None = None
    """Absent matches no pod, empty matches all of the namespace."""


class PodDisruptionBudgetStatus(View, frozen=True, kw_only=True):
    """Status of a disruption budget."""

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
