"""One pod as scheduling sees it, and the class that it shares with its equals.

Tasks are mutable and owned by the cluster state, as jobs and queues are. What a job or a subgroup
knows about its tasks is counted there.
"""

from collections.abc import Mapping
from typing import Any

from pumice.plugins import Condition, IntArray, PolicyState
from services.scheduler.engine.tasks.affinity_terms import AffinityTerms
from shared.api.selectors import NodeAffinity, Toleration
from shared.jobs.expected_durations import Expected
from shared.model.status import TaskStatus


class TaskClass:
    """Everything that placement reads of equal pods, see also `pumice.plugins.TaskClass`."""

    __slots__ = (
        "affinity_terms",
        "best_effort",
        "beyond",
        "claims",
        "content",
        "counted",
        "counted_within",
        "demands",
        "device_claims",
        "dims",
        "exclusive",
        "host_ports",
        "id",
        "images",
        "node_affinity",
        "node_selector",
        "request",
        "scoring_request",
        "stem",
        "tolerations",
        "traits",
        "unbounded",
        "weight",
    )

    id: int
    request: IntArray
    beyond: tuple[str, ...]
    """Resources of which it asks for more than any node can have."""
    dims: tuple[int, ...]
    best_effort: bool
    scoring_request: tuple[int, int]
    weight: int
    """No amount of it is larger (`amounts.Sums`)."""
    unbounded: "TaskClass | None"
    """The class as its pods state it, where `request` is bounded by the largest node."""
    counted: "TaskClass"
    """The class by which its pods count in jobs and queues while they are on nodes."""
    counted_within: IntArray | None
    """The largest node for which `counted` holds."""
    node_selector: Mapping[str, str]
    node_affinity: NodeAffinity | None
    tolerations: tuple[Toleration, ...]
    demands: Mapping[PolicyState, Any]
    """Demands of its tasks on each state of policy that is concerned with them."""
    exclusive: tuple[int, ...]
    """CPUs that each container gets to itself; empty unless the pod is Guaranteed."""
    claims: tuple[str, ...]
    device_claims: tuple[str, ...]
    images: tuple[str, ...]
    host_ports: tuple[tuple[str, str, int], ...]
    affinity_terms: AffinityTerms
    content: bytes
    """The encoded content without affinity terms, by which the class is found."""
    stem: bytes
    """The content without traits."""
    traits: Mapping[str, str]
    """Values by which plugins and annotations tell its tasks from others of equal spec."""


class Task:
    """One pod as scheduling sees it."""

    __slots__ = (
        "backoff_reason",
        "cools_until",
        "created",
        "deleting",
        "displaced",
        "eviction_cost",
        "expected",
        "fact_node",
        "fact_status",
        "gated",
        "index",
        "job_key",
        "key",
        "labels",
        "last_condition",
        "lifting",
        "name",
        "namespace",
        "node",
        "nominated",
        "ours",
        "owned",
        "owner_job",
        "pod_priority",
        "preemptable",
        "preempts",
        "priority",
        "priority_class",
        "queue_gated",
        "role",
        "rv",
        "shown",
        "shown_since",
        "started",
        "status",
        "task_class",
        "uid",
    )

    uid: str
    key: str
    name: str
    namespace: str
    job_key: str
    """Key of the PodGroup; empty for a pod without one (KY1)."""
    owner_job: str
    """Key of the Job that made it, for events; empty if none did."""
    role: str
    """Name of the job's task it is a replica of; empty when unknown."""
    priority: int
    priority_class: str
    index: int
    """Trailing number of the name, -1 when there is none (SS09)."""
    created: str
    labels: Mapping[str, str]
    ours: bool
    """Whether this scheduler is asked to place it."""
    owned: bool
    """Whether it has a controller, which makes another pod in its place."""
    gated: bool
    queue_gated: bool
    """Whether the gate of its queue is the only one that is left."""
    lifting: bool
    """Whether that gate is to be lifted, and the object still shows it."""
    backoff_reason: str
    """Why it is not placed or evicted for now, after the binder failed; else empty."""
    preemptable: bool
    task_class: TaskClass
    preempts: bool
    """Whether it may preempt others: not with the preemption policy Never."""
    pod_priority: int
    """spec.priority, 0 when absent; what topology-aware preemption compares (A06)."""
    eviction_cost: int | None
    """Its cost as a victim, if the pod states one; else that of its job counts."""
    started: float
    """When the kubelet took it, Unix seconds; infinity before."""
    cools_until: float
    """Until when the plugin cdp protects it, Unix seconds (PL15)."""
    displaced: bool
    """Whether it is being deleted because a scheduler evicted it for another pod."""
    expected: Expected | None
    """How long it will run, if it says so."""
    nominated: str
    deleting: bool
    fact_status: TaskStatus
    """The status that the API server's object shows."""
    fact_node: str
    status: TaskStatus
    """The status for scheduling: that of the fact, overlaid by assumptions and decisions."""
    node: str
    last_condition: Condition | None
    """PodScheduled as last written or desired."""
    shown: Condition | None
    """PodScheduled as the object showed it last."""
    shown_since: str
    """When it came about, as the object says."""
    rv: str
    """resourceVersion of the pod as it was seen last."""

    @property
    def expected_s(self) -> float | None:
        """How long it will run in seconds, if it says so."""
        return None if self.expected is None else self.expected.seconds

    def order(self) -> tuple[int, str, str]:
        """Return the default order within a job: index, age, uid (SS09)."""
        return self.index, self.created, self.uid
