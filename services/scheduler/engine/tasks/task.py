"""One pod as scheduling sees it, the class that it shares with its equals, and states of policy.

The three know one another: a task has a class, a class says which states of policy are concerned
with its tasks, and each of these counts tasks. Tasks are mutable and owned by the cluster state, as
jobs and queues are. A task stands on its own: what a job or a subgroup knows about its tasks is
counted there.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, NamedTuple

from pumice.plugins import Condition, IntArray
from services.scheduler.engine.journal import Journal
from services.scheduler.engine.tasks.affinity_terms import AffinityTerms
from shared.api.core import Pod
from shared.api.selectors import NodeAffinity, Toleration
from shared.contracts.messages import Bind
from shared.jobs.durations import Expected
from shared.model.status import TaskStatus

_NO_FOLDS: Final[Mapping[str, "Fold"]] = {}


class TaskClass:
    """Everything that placement reads of equal pods, see also `pumice.plugins.TaskClass`."""

    __slots__ = (
        "affinity_terms",
        "asked",
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
    asked: "TaskClass | None"
    """The class as its pods state it, where `request` is bounded by the largest node."""
    counted: "TaskClass"
    """The class by which its pods count in jobs and queues while they are on nodes."""
    counted_within: IntArray | None
    """The largest node for which `counted` holds."""
    node_selector: Mapping[str, str]
    node_affinity: NodeAffinity | None
    tolerations: tuple[Toleration, ...]
    demands: "Mapping[PolicyState, Any]"
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
    """Whether it may preempt others: not with the preemption policy Never."""
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


class Fold(NamedTuple):
    """How facts of one kind come in."""

    put: Callable[[str, Any], None]
    """Takes key and object; a `BadQuantity` from it means that the object counts as absent."""
    remove: Callable[[str], None]
    """Takes the key; the object may be unknown."""


class PolicyState:
    """State that policy keeps beside the engine: volumes, cards, CPUs, claims, quotas, budgets.

    The engine calls it and never looks inside; a state implements the calls that concern it. A
    cluster state has one object of each class that it was made with (`policy.catalog.STATES`) and
    hands them to plugins by class (`Cluster.store`). Facts reach it by kind, tasks by what their
    pods ask of it. What a session places is counted in by the same call as a fact, and counted out
    again when it is taken back; what it is to remember beyond the session it writes through the
    journal.
    """

    name: ClassVar[str] = ""
    """Key of what it remembers in a recorded cycle; empty where facts say everything."""
    managed_resources: ClassVar[frozenset[str]] = frozenset()
    """Resources that it accounts for on its own: the engine counts them nowhere."""
    journal: Journal
    """The journal of the present session."""

    def folds(self) -> Mapping[str, Fold]:
        """Return how it reads facts, by token of their kind (`shared.api.kinds`)."""
        return _NO_FOLDS

    def manages(self, resource: str) -> bool:
        """Tell whether it accounts for a resource on its own; always the same answer."""
        return resource in self.managed_resources

    def demand(self, pod: Pod) -> object:  # noqa: ARG002 - few states read pods
        """Return what a pod asks of it, in values that msgspec encodes; nothing: not concerned.

        Part of the task class, `task_class.demands[state]`. May raise `BadQuantity`.
        """
        return None

    def join(self, task: "Task", pod: Pod) -> None:
        """Take up a task with a demand, as its object is now; it is on no node yet."""

    def leave(self, task: "Task", *, gone: bool) -> None:
        """Let go of a task, counted out before; unless it is `gone`, it joins again at once."""

    def count(self, task: "Task", sign: int) -> None:
        """Count a task with a demand in on its node (-1: out), by a fact or by a decision."""

    def assume(self, bind: Bind) -> None:
        """Take note of a published bind with `devices` or annotations, before its pod counts."""

    def lacking(self, task: "Task") -> str:  # noqa: ARG002 - few states hold a bind back
        """Return what a placed task with a demand has to wait for before its bind; "": nothing."""
        return ""

    def awaited(self, task: "Task") -> str:  # noqa: ARG002 - few binds wait
        """Return what the bind of a task with a demand waits for, by facts alone; "": nothing."""
        return ""

    def bars(self, task_class: "TaskClass") -> bool:  # noqa: ARG002 - few states bar all nodes
        """Tell whether no node takes a class with a demand, whatever else a session may place."""
        return False

    def begin(self, journal: Journal) -> None:
        """Begin a session."""
        self.journal = journal

    def dump(self) -> object:
        """Return what it remembers that no fact says, in values that msgspec encodes."""
        return None

    def restore(self, kept: Any) -> None:  # noqa: ANN401 - of the type that the state dumps
        """Take over what another one dumped, before any fact. Raises `msgspec.ValidationError`."""
