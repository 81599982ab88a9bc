"""PodGroup of Kubernetes (scheduling.k8s.io/v1beta1, KEP-4671), since 1.37 behind a feature gate.

Called native here, because Volcano's kind has the same name. A pod names its group in
`spec.schedulingGroup.podGroupName`. The view has what scheduling reads of it.
"""

from msgspec import field

from shared.api.base import View
from shared.api.core import PodResourceClaim, PodResourceClaimStatus
from shared.api.meta import ObjectMeta
from shared.api.scheduling import PodGroupCondition


class GangPolicy(View, frozen=True, kw_only=True):
    """All-or-nothing scheduling."""

    min_count: int = 1
    """Pods that are placed together or not at all."""


class PodGroupSchedulingPolicy(View, frozen=True, kw_only=True):
    """How the pods of a group are scheduled; without `gang` each by itself."""

    gang: GangPolicy | None = None


class TopologyConstraint(View, frozen=True, kw_only=True):
    """Pods of a group must be on nodes with one value of a label."""

    key: str


class PodGroupSchedulingConstraints(View, frozen=True, kw_only=True):
    """Constraints on the nodes of a group; the API server allows one topology at most."""

    topology: tuple[TopologyConstraint, ...] = ()


class AllDisruptionMode(View, frozen=True, kw_only=True):
    """All pods of a group are disrupted together or none is."""


class DisruptionMode(View, frozen=True, kw_only=True):
    """How the pods of a group may be disrupted; without `all` each by itself."""

    together: AllDisruptionMode | None = field(default=None, name="all")


class NativePodGroupSpec(View, frozen=True, kw_only=True):
    """Spec of a native PodGroup."""

    scheduling_policy: PodGroupSchedulingPolicy = PodGroupSchedulingPolicy()
    scheduling_constraints: PodGroupSchedulingConstraints = PodGroupSchedulingConstraints()
    disruption_mode: DisruptionMode = DisruptionMode()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    """Claims for devices that its pods share."""
    priority_class_name: str = ""
    priority: int | None = None
    """Of its class when it was created, by the API server's admission."""
    preemption_policy: str = ""
    """`Never`, or `PreemptLowerPriority`, which is the default."""


class NativePodGroupStatus(View, frozen=True, kw_only=True):
    """Status of a native PodGroup."""

    conditions: tuple[PodGroupCondition, ...] = ()
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()


class NativePodGroup(View, frozen=True, kw_only=True):
    """A native PodGroup."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NativePodGroupSpec = NativePodGroupSpec()
    status: NativePodGroupStatus = NativePodGroupStatus()
