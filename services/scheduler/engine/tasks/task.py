"""The record of one pod. Mutable, owned by the cluster state, as jobs and queues are.

A task stands on its own: what a job or a subgroup knows about its tasks is counted there.
"""

from collections.abc import Mapping

from pumice.plugins import Condition
from services.scheduler.engine.tasks.classes import TaskClass
from shared.jobs.durations import Expected
from shared.model.status import TaskStatus


class Task:
    """One pod as scheduling sees it."""

    __slots__ = (
        "cools_until",
        "created",
        "deleting",
        "displaced",
        "expected",
        "fact_node",
        "fact_status",
        "gated",
        "held",
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
    gated: bool
    queue_gated: bool
    """Whether the gate of its queue is the only one that is left."""
    lifting: bool
    """Whether that gate is to be lifted, and the object still shows it."""
    held: str
    """Why it is not placed or evicted for now, after the binder failed; else empty."""
    preemptable: bool
    task_class: TaskClass
    preempts: bool
    """Whether it may take from others: not with the preemption policy Never."""
    pod_priority: int
    """spec.priority, 0 when absent; what topology-aware preemption compares (A06)."""
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
    """PodScheduled as last written or wanted."""
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
