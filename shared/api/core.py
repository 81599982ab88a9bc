"""Views of the core kinds: Pod, Node, Namespace, ResourceQuota (`storage` has the volumes).

The cache decodes with them, the scheduler, binder and controller read them. A pod's view holds all
that scheduling reads and all from which the job controller derives its events (J07); the heartbeat
times of node conditions are left out on purpose, so that a heartbeat is no change.
"""

import enum
from collections.abc import Mapping

from msgspec import field

from shared.api import keys
from shared.api.base import ResourceList, View
from shared.api.meta import ObjectMeta
from shared.api.selectors import (
    Affinity,
    Taint,
    Toleration,
    TopologySpreadConstraint,
)


class PodPhase(enum.StrEnum):
    """Phases of a pod."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


class ResourceClaimUse(View, frozen=True, kw_only=True):
    """A container's use of one of the pod's resource claims."""

    name: str
    request: str = ""


class ResourceRequirements(View, frozen=True, kw_only=True):
    """Requests and limits of a container, or of a whole pod."""

    requests: ResourceList = field(default_factory=dict)
    limits: ResourceList = field(default_factory=dict)
    claims: tuple[ResourceClaimUse, ...] = ()


class ContainerPort(View, frozen=True, kw_only=True):
    """A port of a container; a `host_port` other than 0 occupies it on the node."""

    container_port: int
    host_port: int = 0
    host_ip: str = field(default="", name="hostIP")
    protocol: str = "TCP"
    name: str = ""


class Container(View, frozen=True, kw_only=True):
    """A container or init container; `restart_policy` Always makes an init container a sidecar."""

    name: str
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str | None = None


class ClaimVolume(View, frozen=True, kw_only=True):
    """The claim that a volume stands for."""

    claim_name: str
    read_only: bool = False


class EphemeralVolume(View, frozen=True, kw_only=True):
    """A volume whose claim `<pod>-<volume>` lives and dies with the pod."""


class Volume(View, frozen=True, kw_only=True):
    """A volume; only those that lead to a claim matter to scheduling."""

    name: str
    persistent_volume_claim: ClaimVolume | None = None
    ephemeral: EphemeralVolume | None = None


class PodResourceClaim(View, frozen=True, kw_only=True):
    """A claim for devices (dynamic resource allocation), by name or from a template."""

    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodResourceClaimStatus(View, frozen=True, kw_only=True):
    """The claim that was made of a template; none when the template asks for nothing."""

    name: str
    resource_claim_name: str | None = None


class PodExtendedResourceClaimStatus(View, frozen=True, kw_only=True):
    """The claim that was made for a pod's extended resources."""

    resource_claim_name: str = ""


class PodSchedulingGate(View, frozen=True, kw_only=True):
    """While a pod has a gate it is not scheduled."""

    name: str


class PodSchedulingGroup(View, frozen=True, kw_only=True):
    """The native PodGroup of a pod."""

    pod_group_name: str = ""


class PodSpec(View, frozen=True, kw_only=True):
    """Spec of a pod."""

    node_name: str = ""
    scheduler_name: str = ""
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    node_selector: Mapping[str, str] = field(default_factory=dict)
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: ResourceList = field(default_factory=dict)
    resources: ResourceRequirements | None = None
    """Pod-level resources; where present they stand for those of the containers."""
    resource_claims: tuple[PodResourceClaim, ...] = ()
    scheduling_gates: tuple[PodSchedulingGate, ...] = ()
    scheduling_group: PodSchedulingGroup | None = None
    volumes: tuple[Volume, ...] = ()
    host_network: bool = False
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None


class ContainerStateTerminated(View, frozen=True, kw_only=True):
    """How a container ended."""

    exit_code: int
    signal: int = 0
    reason: str = ""
    message: str = ""
    finished_at: str | None = None


class ContainerStateWaiting(View, frozen=True, kw_only=True):
    """Why a container does not run yet."""

    reason: str = ""
    message: str = ""


class ContainerStateRunning(View, frozen=True, kw_only=True):
    """Since when a container runs."""

    started_at: str | None = None


class ContainerState(View, frozen=True, kw_only=True):
    """At most one of the three is set."""

    running: ContainerStateRunning | None = None
    waiting: ContainerStateWaiting | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(View, frozen=True, kw_only=True):
    """Status of a container, as the node reports it."""

    name: str
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    allocated_resources: ResourceList = field(default_factory=dict)
    """Amounts reserved by the node; they differ from the spec while a resize is under way."""
    resources: ResourceRequirements | None = None


class PodCondition(View, frozen=True, kw_only=True):
    """A condition of a pod."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class PodStatus(View, frozen=True, kw_only=True):
    """Status of a pod."""

    phase: str = PodPhase.PENDING.value
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    nominated_node_name: str = ""
    reason: str = ""
    message: str = ""
    start_time: str | None = None
    resize: str = ""
    """`Proposed`, `InProgress`, `Deferred` or `Infeasible` (before 1.33; later a condition)."""
    resources: ResourceRequirements | None = None
    """Actual pod-level resources."""
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None
    allocated_resources: ResourceList = field(default_factory=dict)


class Pod(View, frozen=True, kw_only=True):
    """A pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def group_name(self) -> str:
        """Return the name of its PodGroup: Volcano's by annotation, else the native one, or ""."""
        named = self.metadata.annotations.get(keys.GROUP_NAME, "")
        native = self.spec.scheduling_group
        return named or (native.pod_group_name if native is not None else "")


class PodTemplateSpec(View, frozen=True, kw_only=True):
    """The part of a pod template that scheduling reads; the whole travels verbatim (`batch`)."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class NodeSpec(View, frozen=True, kw_only=True):
    """Spec of a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeCondition(View, frozen=True, kw_only=True):
    """A condition of a node, without its heartbeat."""

    type: str
    status: str
    reason: str = ""


class ContainerImage(View, frozen=True, kw_only=True):
    """An image that the node has already."""

    names: tuple[str, ...] = ()
    size_bytes: int = 0


class NodeStatus(View, frozen=True, kw_only=True):
    """Status of a node: its capacity and its conditions."""

    allocatable: ResourceList = field(default_factory=dict)
    capacity: ResourceList = field(default_factory=dict)
    conditions: tuple[NodeCondition, ...] = ()
    images: tuple[ContainerImage, ...] = ()


class Node(View, frozen=True, kw_only=True):
    """A node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class ConfigMap(View, frozen=True, kw_only=True):
    """A ConfigMap, of which only those of device plugins are read."""

    metadata: ObjectMeta = ObjectMeta()
    data: Mapping[str, str] = field(default_factory=dict)


class NamespaceStatus(View, frozen=True, kw_only=True):
    """Whether a namespace lives: `Active` or `Terminating`."""

    phase: str = ""


class Namespace(View, frozen=True, kw_only=True):
    """A namespace."""

    metadata: ObjectMeta = ObjectMeta()
    status: NamespaceStatus = NamespaceStatus()


class ScopedExpression(View, frozen=True, kw_only=True):
    """One expression over a scope."""

    scope_name: str
    operator: str
    values: tuple[str, ...] = ()


class ScopedSelector(View, frozen=True, kw_only=True):
    """Which pods a quota counts."""

    match_expressions: tuple[ScopedExpression, ...] = ()


class ResourceQuotaSpec(View, frozen=True, kw_only=True):
    """Spec of a quota: the most that a namespace may use."""

    hard: ResourceList = field(default_factory=dict)
    scopes: tuple[str, ...] = ()
    scope_selector: ScopedSelector | None = None


class ResourceQuotaStatus(View, frozen=True, kw_only=True):
    """Status of a quota: the use of its namespace."""

    hard: ResourceList = field(default_factory=dict)
    used: ResourceList = field(default_factory=dict)


class ResourceQuota(View, frozen=True, kw_only=True):
    """A quota of a namespace."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()
