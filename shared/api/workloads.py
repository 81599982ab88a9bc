"""Workloads of Kubernetes whose pods our schedulers may place: what groups of their pods depend on.

ReplicaSet, StatefulSet, DaemonSet and batch/v1 Job in one view: annotations, the number of pods
wanted, and the scheduler that their template names (P02, P04).
"""

from shared.api.base import View
from shared.api.meta import ObjectMeta


class WorkloadPodSpec(View, frozen=True, kw_only=True):
    """The part of a pod template that says whose pods these are."""

    scheduler_name: str = ""


class WorkloadTemplate(View, frozen=True, kw_only=True):
    """A pod template."""

    spec: WorkloadPodSpec = WorkloadPodSpec()


class WorkloadSpec(View, frozen=True, kw_only=True):
    """What a workload asks for."""

    replicas: int | None = None
    """Absent where the kind knows no such number."""
    template: WorkloadTemplate = WorkloadTemplate()


class Workload(View, frozen=True, kw_only=True):
    """The controlling owner of pods."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()
