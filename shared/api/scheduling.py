"""PodGroup and Queue (scheduling.volcano.sh) and the built-in PriorityClass.

PodGroup and Queue are full API types: `make crds` turns them into the CRDs, so every bound,
pattern and default here is what the API server enforces (C03, C04). PodGroup has no status
subresource (C03 ⚠): its status is written through the object itself.
"""

import enum
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Final

from msgspec import Meta, field

from shared.api.base import (
    Count,
    CrResourceList,
    DnsName,
    Int32,
    Name,
    Timestamp,
    View,
    default,
    doc,
    rule,
)
from shared.api.meta import ObjectMeta
from shared.api.selectors import LabelSelector

DEFAULT_QUEUE = "default"
ROOT_QUEUE = "root"


def queue_lineage(queue: str, parent_of: Callable[[str], str]) -> Iterator[str]:
    """Yield a queue and its ancestors up to `root`, each once even if parents form a ring.

    `parent_of` returns the parent of a queue; "", also for an unknown queue, stands for `root`.
    """
    seen: set[str] = set()
    while queue not in seen:
        yield queue
        seen.add(queue)
        queue = parent_of(queue) or ROOT_QUEUE


def podgroup_of(job: str, uid: str) -> str:
    """Return the name of the PodGroup that is made for a job (J27); for a job's key, its key."""
    return f"{job}-{uid}"


def uid_of_job(podgroup: str, job: str) -> str:
    """Return the uid in the name of a PodGroup made for a job (J27); "" if it was not."""
    return podgroup.removeprefix(f"{job}-") if job and podgroup.startswith(f"{job}-") else ""


class QueueOrder(enum.StrEnum):
    """How jobs of a queue may pass those before them: annotation `pumice.dev/order`."""

    BEST_EFFORT = "best-effort"
    STRICT = "strict"
    BACKFILL = "backfill"


class TopologyMode(enum.StrEnum):
    """Whether a network topology constraint is required or preferred."""

    HARD = "hard"
    SOFT = "soft"


class NetworkTopology(View, frozen=True, kw_only=True):
    """How near to each other pods must run, as tiers of HyperNodes (C01e)."""

    mode: Annotated[
        TopologyMode,
        doc("hard: the tier is an upper bound; soft: near is better."),
        default("hard"),
    ] = TopologyMode.HARD
    highest_tier_allowed: (
        Annotated[
            int, Meta(ge=0), doc("Highest tier that the pods may span; excludes highestTierName.")
        ]
        | None
    ) = None
    highest_tier_name: Annotated[
        Name, doc("Name of the highest tier that the pods may span; excludes highestTierAllowed.")
    ] = ""


TIERS: Final = (
    "must not specify 'highestTierAllowed' and 'highestTierName' in networkTopology simultaneously"
)
ONE_TIER: Final = rule(
    TIERS,
    "!has(self.highestTierAllowed) || !has(self.highestTierName) || self.highestTierName == ''",
)
"""With both it would be unclear which of the two is meant (W25, W41)."""


class SubGroupPolicy(View, frozen=True, kw_only=True):
    """How pods of a group form subgroups that are placed together (J29, T06)."""

    name: Annotated[Name, doc("Name of the policy.")] = ""
    network_topology: (
        Annotated[
            NetworkTopology,
            doc("How near to each other the pods of one subgroup must run."),
            ONE_TIER,
        ]
        | None
    ) = None
    sub_group_size: Annotated[Int32, Meta(ge=1), default(1), doc("Pods in each subgroup.")] = 1
    min_sub_groups: Annotated[
        Count, default(0), doc("Subgroups that must be placed; 0 leaves it to minMember.")
    ] = 0
    label_selector: Annotated[LabelSelector, doc("Pods that the policy is about.")] | None = None
    match_label_keys: Annotated[
        tuple[str, ...], doc("Labels whose values tell the subgroups apart.")
    ] = ()


class PodGroupPhase(enum.StrEnum):
    """Phases of a PodGroup (C03b); an absent phase counts as Pending for pod creation (J23)."""

    PENDING = "Pending"
    RUNNING = "Running"
    UNKNOWN = "Unknown"
    INQUEUE = "Inqueue"
    COMPLETED = "Completed"


class PodGroupConditionType(enum.StrEnum):
    """Types of PodGroup conditions (C03b)."""

    UNSCHEDULABLE = "Unschedulable"
    SCHEDULED = "Scheduled"


class PodGroupSpec(View, frozen=True, kw_only=True):
    """Spec of a PodGroup."""

    min_member: Annotated[Count, doc("Pods that are placed together or not at all.")] = 0
    min_task_member: Annotated[
        Mapping[str, Int32], doc("Pods of each task that must be placed together.")
    ] = field(default_factory=dict)
    queue: Annotated[
        DnsName, default(DEFAULT_QUEUE), doc("Queue that the group draws resources from.")
    ] = DEFAULT_QUEUE
    priority_class_name: Annotated[Name, doc("PriorityClass of the group.")] = ""
    min_resources: Annotated[
        CrResourceList, doc("Resources that must be free before the group may enter its queue.")
    ] = field(default_factory=dict)
    network_topology: (
        Annotated[NetworkTopology, doc("How near to each other the pods must run."), ONE_TIER]
        | None
    ) = None
    sub_group_policy: Annotated[
        tuple[SubGroupPolicy, ...], doc("Policies that divide the group into subgroups.")
    ] = ()


class PodGroupCondition(View, frozen=True, kw_only=True):
    """Condition of a PodGroup, written by scheduling."""

    type: Annotated[str, doc("Unschedulable or Scheduled.")] = ""
    status: Annotated[str, doc("True, False or Unknown.")] = ""
    transition_id: Annotated[str, doc("Id of the scheduling cycle that wrote it.")] = field(
        default="", name="transitionID"
    )
    last_transition_time: Annotated[Timestamp, doc("When it was written.")] | None = None
    reason: Annotated[str, doc("One word why.")] = ""
    message: Annotated[str, doc("Why, for people.")] = ""


class PodGroupStatus(View, frozen=True, kw_only=True):
    """How far a group has come."""

    phase: Annotated[PodGroupPhase, doc("Phase of the group.")] | None = None
    conditions: Annotated[tuple[PodGroupCondition, ...], doc("Latest conditions.")] = ()
    running: Annotated[Count, doc("Pods that run.")] = 0
    succeeded: Annotated[Count, doc("Pods that succeeded.")] = 0
    failed: Annotated[Count, doc("Pods that failed.")] = 0


class PodGroup(View, frozen=True, kw_only=True):
    """Pods that are scheduled as one (a gang)."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[PodGroupSpec, doc("What the group asks for.")] = PodGroupSpec()
    status: Annotated[PodGroupStatus, doc("How far it has come.")] = PodGroupStatus()


class QueueState(enum.StrEnum):
    """States of a queue (Q02)."""

    OPEN = "Open"
    CLOSED = "Closed"
    CLOSING = "Closing"
    UNKNOWN = "Unknown"


class DequeueStrategy(enum.StrEnum):
    """Whether a job that does not fit holds up those behind it; has no effect (C04a ⚠)."""

    FIFO = "fifo"
    TRAVERSE = "traverse"


class Guarantee(View, frozen=True, kw_only=True):
    """Resources reserved for a queue."""

    resource: Annotated[CrResourceList, doc("Resources that only this queue may use.")] = field(
        default_factory=dict
    )


class NodeGroupTerms(View, frozen=True, kw_only=True):
    """Names of node groups, required and preferred."""

    required_during_scheduling_ignored_during_execution: tuple[str, ...] = ()
    preferred_during_scheduling_ignored_during_execution: tuple[str, ...] = ()


class QueueAffinity(View, frozen=True, kw_only=True):
    """Node groups that a queue's pods must, would like to, or must not run on (PL13)."""

    node_group_affinity: Annotated[NodeGroupTerms, doc("Groups to run on.")] | None = None
    node_group_anti_affinity: Annotated[NodeGroupTerms, doc("Groups to stay off.")] | None = None


class ExtendCluster(View, frozen=True, kw_only=True):
    """A cluster that a queue's jobs may be forwarded to (J33)."""

    name: Annotated[str, doc("Name of the cluster.")] = ""
    weight: Annotated[Int32, doc("Its weight among the clusters.")] = 0
    capacity: Annotated[CrResourceList, doc("What it has.")] = field(default_factory=dict)


class QueueSpec(View, frozen=True, kw_only=True):
    """Spec of a queue."""

    weight: Annotated[
        Int32, Meta(ge=1, le=65535), default(1), doc("Share of the cluster, relative to siblings.")
    ] = 1
    capability: Annotated[CrResourceList, doc("Resources that it can never exceed.")] = field(
        default_factory=dict
    )
    deserved: Annotated[
        CrResourceList, doc("Resources beyond which others may reclaim what it uses.")
    ] = field(default_factory=dict)
    guarantee: Annotated[Guarantee, doc("Resources reserved for it.")] = Guarantee()
    reclaimable: (
        Annotated[bool, doc("Whether others may reclaim what it uses; true unless set.")] | None
    ) = None
    parent: Annotated[DnsName, doc("Queue that it is part of; root unless set.")] = ""
    priority: Annotated[Count, doc("Higher is served first.")] = 0
    affinity: Annotated[QueueAffinity, doc("Node groups for its pods.")] | None = None
    extend_clusters: Annotated[
        tuple[ExtendCluster, ...], doc("Clusters that its jobs may be forwarded to.")
    ] = ()
    type: Annotated[Name, doc("Free text for other tools.")] = ""
    dequeue_strategy: Annotated[
        DequeueStrategy,
        default("traverse"),
        doc("traverse: a job that does not fit lets those behind it pass; fifo: it does not."),
    ] = DequeueStrategy.TRAVERSE


class Reservation(View, frozen=True, kw_only=True):
    """Nodes that are held for a queue."""

    nodes: Annotated[tuple[str, ...], doc("Names of the nodes.")] = ()
    resource: Annotated[CrResourceList, doc("What they have.")] = field(default_factory=dict)


class QueueStatus(View, frozen=True, kw_only=True):
    """Status of a queue; the controller writes `state`, scheduling `allocated`."""

    state: Annotated[QueueState, doc("Whether it takes jobs.")] | None = None
    unknown: Annotated[Count, doc("PodGroups in phase Unknown.")] = 0
    pending: Annotated[Count, doc("PodGroups in phase Pending.")] = 0
    running: Annotated[Count, doc("PodGroups in phase Running.")] = 0
    inqueue: Annotated[Count, doc("PodGroups in phase Inqueue.")] = 0
    completed: Annotated[Count, doc("PodGroups in phase Completed.")] = 0
    reservation: Annotated[Reservation, doc("Nodes held for it.")] | None = None
    allocated: Annotated[CrResourceList, doc("Resources that its pods hold.")] = field(
        default_factory=dict
    )


class Queue(View, frozen=True, kw_only=True):
    """A share of the cluster that jobs draw on."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[QueueSpec, doc("What it may use.")] = QueueSpec()
    status: Annotated[QueueStatus, doc("What it uses.")] = QueueStatus()


class PriorityClass(View, frozen=True, kw_only=True):
    """A named priority (scheduling.k8s.io/v1)."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    global_default: bool = False
    preemption_policy: str | None = None


# --- shard.volcano.sh: the nodes of one scheduler where several share a cluster (C10) ---


class NodeShardSpec(View, frozen=True, kw_only=True):
    """Which nodes a scheduler is to have."""

    nodes_desired: Annotated[
        tuple[str, ...], doc("Nodes that belong to the scheduler of this name.")
    ]


class NodeShardStatus(View, frozen=True, kw_only=True):
    """Which nodes it has, and what is still to change."""

    nodes_in_use: Annotated[tuple[str, ...], doc("Nodes that it uses.")] = ()
    nodes_to_add: Annotated[tuple[str, ...], doc("Nodes that it will use.")] = ()
    nodes_to_remove: Annotated[tuple[str, ...], doc("Nodes that it will leave.")] = ()
    last_update_time: Annotated[Timestamp | None, doc("When the status changed.")] = None


class NodeShard(View, frozen=True, kw_only=True):
    """The shard of the scheduler that it is named after."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[NodeShardSpec, doc("Desired state.")] = NodeShardSpec(nodes_desired=())
    status: Annotated[NodeShardStatus, doc("Observed state.")] = NodeShardStatus()
