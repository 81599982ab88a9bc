"""Protocols of the objects that a plugin reads: the cluster, its nodes, queues, jobs and tasks.

Their values belong to the engine: a plugin never writes to them or keeps them after the cycle.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from pumice.plugins.status import TaskStatus
from pumice.plugins.values import BoolArray, EvictionKind, FloatArray, IntArray, NodeGroups

_Scalar = TypeVar("_Scalar", bound=np.generic)
_S = TypeVar("_S")
_T = TypeVar("_T", bound="Task")


class TaskClass(Protocol):
    """Tasks that are equal in everything that placement reads."""

    id: int
    """Number of the class, stable while the scheduler runs."""
    request: IntArray
    """Amounts array of what one task occupies."""
    dims: tuple[int, ...]
    """Resources that a comparison with the request looks at, by index."""
    traits: Mapping[str, str]
    """Properties of its tasks beyond their specs: annotations, and answers of `Hooks.trait`."""
    scoring_request: tuple[int, int]
    """Milli-CPU and bytes for scorers, with defaults for containers that ask for nothing."""
    best_effort: bool
    """Whether the tasks ask for nothing."""
    node_selector: Mapping[str, str]
    """Labels that a node must have."""
    host_ports: tuple[tuple[str, str, int], ...]
    """Ports on the node that a task takes: (address, protocol, port)."""
    claims: tuple[str, ...]
    """Keys of the PersistentVolumeClaims that a task mounts."""
    device_claims: tuple[str, ...]
    """Keys of the ResourceClaims that a task names."""
    images: tuple[str, ...]
    """Images of its containers, init containers first."""
    exclusive: tuple[int, ...]
    """CPUs that each container gets to itself; empty unless the pod is Guaranteed."""
    demands: Mapping[Any, Any]
    """State (`PolicyState`) → what a task requests of it, for those that are concerned."""


class NodeRows(Protocol):
    """Some nodes, each with a number of further tasks of one class imagined on it.

    All arrays have one entry per row, which is a node or one of several futures of a node.
    """

    @property
    def index(self) -> IntArray:
        """Index of each row's node in the cluster's tables."""

    @property
    def extra(self) -> IntArray:
        """Number of tasks of the class that are assumed on the node beyond those that are there."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def pick(self, per_node: NDArray[_Scalar]) -> NDArray[_Scalar]:
        """Return an array over all nodes as one over the rows."""

    def allocatable(self, resource: int) -> IntArray:
        """Return what the nodes have of a resource (its index in `Cluster.resources`)."""

    def used(self, resource: int) -> IntArray:
        """Return what tasks that were placed hold, without those that wait for a release."""

    def requested(self, resource: int) -> IntArray:
        """Return what all pods ask for, with those that wait and without those being evicted."""

    def scoring_requested(self) -> tuple[IntArray, IntArray]:
        """Return milli-CPU and bytes requested, with the scorers' defaults."""

    def label(self, key: str) -> NDArray[np.object_]:
        """Return the value of a label per row, None where it is absent."""

    def ports_taken(self) -> BoolArray:
        """Return which rows' nodes have a port in use that the class asks for."""


class Task(Protocol):
    """One pod as scheduling sees it."""

    uid: str
    key: str
    name: str
    namespace: str
    job_key: str
    """Key of its job; empty when it belongs to none."""
    role: str
    index: int
    """Trailing number of the name, -1 when there is none."""
    priority: int
    priority_class: str
    pod_priority: int
    """spec.priority, 0 when absent."""
    preemptable: bool
    gated: bool
    created: str
    started: float
    """When the kubelet took it, Unix seconds; infinity before."""
    cools_until: float
    """Until when its cooldown protects it, Unix seconds."""
    labels: Mapping[str, str]
    ours: bool
    """Whether this scheduler places it."""
    status: TaskStatus
    node: str
    """Name of the node that it is on or goes to; empty while it has none."""
    fact_status: TaskStatus
    """The status that the API server's object shows."""
    fact_node: str
    """Name of the node that the API server's object has."""

    @property
    def task_class(self) -> TaskClass:
        """Its class."""

    @property
    def expected_s(self) -> float | None:
        """Seconds that it will run from its start, as the pod itself says; None if it does not."""

    def order(self) -> tuple[int, str, str]:
        """Return the default order within a job: index, age, uid."""


class SubJob(Protocol):
    """Tasks of one job that are placed together."""

    id: str
    job_key: str
    policy: str
    """Name of its policy; empty for tasks that none is about."""
    min_available: int
    match_index: int
    """First label value that sets it apart, if that is a number."""

    @property
    def tasks(self) -> Mapping[str, Task]:
        """Its tasks by uid."""

    @property
    def missing(self) -> int:
        """Number of tasks that it lacks; 0 = ready."""

    @property
    def is_pipelined(self) -> bool:
        """Whether it will be ready once releases have happened."""

    @property
    def priority(self) -> int:
        """The highest priority of its tasks, at least 0."""

    @property
    def states_topology(self) -> bool:
        """Whether it states a network topology."""

    def pending(self) -> Sequence[Task]:
        """Return the tasks that are still to be placed."""


class Job(Protocol):
    """One PodGroup with its tasks."""

    key: str
    uid: str
    namespace: str
    name: str
    queue: str
    priority: int
    priority_class: str
    min_available: int
    created: str
    phase: str
    """Phase of the PodGroup that scheduling goes by; actions change it within a cycle."""
    reservation_expired: bool
    """Whether the reservation that it got at admission has expired."""
    preemptable: bool
    annotations: Mapping[str, str]
    min_resources: IntArray | None
    min_listed: Mapping[str, int]
    """minResources as quotas count: every name that is written, in thousandths."""
    gated: int
    """Number of tasks that scheduling gates hold back."""
    pending_best_effort: int
    """Number of pending tasks that ask for nothing."""

    @property
    def tasks(self) -> Mapping[str, Task]:
        """Its tasks by uid."""

    @property
    def by_status(self) -> Sequence[Mapping[str, Task]]:
        """Its tasks by uid, for each `TaskStatus`."""

    @property
    def roles(self) -> Mapping[str, Sequence[int]]:
        """Names of its tasks' roles, with numbers of tasks per `TaskStatus`."""

    @property
    def allocated(self) -> IntArray:
        """Amounts held by tasks that are bound or on the way there."""

    @property
    def requested(self) -> IntArray:
        """Amounts of allocated and pending tasks."""

    @property
    def claimed(self) -> IntArray:
        """Amounts that its tasks hold or wait for on nodes."""

    @property
    def task_count(self) -> int:
        """Number of tasks."""

    @property
    def ready_count(self) -> int:
        """Number of tasks that count towards the gang (T02)."""

    @property
    def valid_count(self) -> int:
        """Number of tasks that may still become part of the gang (T02)."""

    @property
    def waiting_count(self) -> int:
        """Number of tasks that wait on a node for a release."""

    @property
    def allocated_count(self) -> int:
        """Number of tasks that hold resources."""

    @property
    def is_ready(self) -> bool:
        """Whether the gang's minimum is reached, pending best-effort tasks included."""

    @property
    def expected_s(self) -> float | None:
        """Seconds that its pods may run (`max-runtime`), else those that they say; or None."""

    def roles_short_of(self, *statuses: int, best_effort: bool) -> Mapping[str, int]:
        """Return role → tasks missing to its minimum, counting tasks in these statuses."""

    def short_policies(self, *, pipelined: bool = False, exists: bool = False) -> int:
        """Return how many policies lack subgroups that are ready (pipelined, or only exist)."""


class Queue(Protocol):
    """One queue."""

    name: str
    uid: str
    weight: int
    priority: int
    created: str
    state: str
    is_open: bool
    reclaimable: bool
    parent: str
    annotations: Mapping[str, str]
    capability: Mapping[str, int]
    """Resource → amount; absent names are unlimited."""
    guarantee: IntArray
    deserved: IntArray
    deserved_dims: tuple[int, ...]
    """Resources that `deserved` or `guarantee` name, be it with 0."""

    @property
    def affinity(self) -> NodeGroups | None:
        """The groups of nodes that it names; None when it names none."""


class PlacementTarget(Protocol):
    """The job and subgroup for which nodes are chosen."""

    @property
    def job(self) -> Job:
        """The job."""

    @property
    def sub(self) -> SubJob | None:
        """The subgroup, None for a job that has none."""

    @property
    def allocated(self) -> str:
        """HyperNode in which the subgroup is so far; empty for none."""


class Nodes(Protocol):
    """The tables of nodes: arrays with one column per node, which follow the cycle's decisions.

    A column's number is the node's index in `Cluster.node_names`. Amounts have a row per resource.
    """

    @property
    def alive(self) -> BoolArray:
        """Whether a column is a node that exists."""

    @property
    def unschedulable(self) -> BoolArray:
        """Whether a node is cordoned."""

    @property
    def allocatable(self) -> IntArray:
        """Amounts that pods may use on each node."""

    @property
    def used(self) -> IntArray:
        """Amounts that placed tasks hold, including those that are being deleted."""

    @property
    def releasing(self) -> IntArray:
        """Amounts that tasks hold which are being deleted."""

    @property
    def pipelined(self) -> IntArray:
        """Amounts that are promised to tasks which wait for others to be deleted."""

    @property
    def evicted(self) -> IntArray:
        """Amounts that tasks hold which were evicted in this cycle."""

    def total_used(self) -> IntArray:
        """Return the amounts array of what is used on all nodes."""

    def column(self, name: str) -> int:
        """Return a node's column, -1 when there is no such node."""

    def label(self, key: str) -> NDArray[np.object_]:
        """Return the value of a label per column, None where it is absent."""

    def labels(self, name: str) -> Mapping[str, str]:
        """Return all labels of a node."""


class EvictionContext(NamedTuple):
    """The action that evicts, and the job that needs room."""

    kind: EvictionKind
    job: Job


Measure = Callable[[Job], IntArray]
GroupOf = Callable[[Job], str]
"""A job → what it adds to a roll-up, an array of a fixed leading shape over amounts; its group."""


class Rollup(Protocol):
    """Sums of one measure over the jobs of each queue or group, kept up between cycles."""

    def sums(self) -> Mapping[str, IntArray]:
        """Return group → sum for the groups that have jobs; a copy that a plugin may change."""

    def total(self, empty: IntArray) -> IntArray:
        """Return the sum over all groups; `empty` gives shape and the zero to start from."""


class Cluster(Protocol):
    """The cluster as a plugin sees it, while it contributes and when its functions are called."""

    volcano_evictions: bool
    """Whether pods are evicted, and groups reserve, as in Volcano (`volcanoEvictions`)."""

    @property
    def now(self) -> float:
        """Unix seconds at which the cycle decides."""

    @property
    def resources(self) -> Sequence[str]:
        """Names of the resources, in the order of amounts arrays."""

    @property
    def total(self) -> IntArray:
        """Amounts array of all nodes' allocatable resources."""

    @property
    def node_names(self) -> Sequence[str]:
        """Names of the nodes, by their index in the cluster's tables; empty for unused places."""

    @property
    def nodes(self) -> Nodes:
        """The tables of nodes."""

    @property
    def jobs(self) -> Sequence[Job]:
        """Jobs that may need something; those that have all they ask for are not among them."""

    @property
    def queues(self) -> Mapping[str, Queue]:
        """All queues by name."""

    @property
    def memory(self) -> MutableMapping[str, float]:
        """Numbers that plugins keep from cycle to cycle, each under the plugin's name."""

    def resource(self, name: str) -> int | None:
        """Return the index of a resource, None when no object ever named it."""

    def amounts(self, listed: Mapping[str, str | int | float]) -> IntArray:
        """Return a Kubernetes resource list as an amounts array. Raises ValueError."""

    def jobs_of(self, queue: str) -> Sequence[Job]:
        """Return the jobs of a queue in any state, finished ones too, in order of their keys."""

    def tasks_on(self, node: str) -> Iterable[Task]:
        """Return the pods on a node, including those of other schedulers."""

    def queue(self, name: str) -> Queue | None:
        """Return the queue of that name."""

    def job(self, key: str) -> Job | None:
        """Return the job of that key, `namespace/name`."""

    def job_of(self, task: Task) -> Job | None:
        """Return the job that a task belongs to."""

    def turn_of(self, job: Job) -> tuple[Any, ...]:
        """Return a key by which jobs of a queue have their turns; the smallest comes first."""

    def open_nodes(self, task_class: TaskClass) -> BoolArray:
        """Return the nodes that take tasks of a class by node objects alone, whatever room is."""

    def room_of(self, queue: Queue) -> FloatArray:
        """Return the amounts that a queue may still get, infinite where no plugin limits it."""

    def schedulable(self, job: Job) -> int:
        """Return how many tasks are ready, or were before an attempt was given up."""

    def waiting_for_nodes(self, job: Job) -> Sequence[Task]:
        """Return the tasks that would start if there were nodes for all, as far as was tried."""

    def fit_error(self, job: Job) -> str:
        """Return why tasks of a job are not placed, as a text for people."""

    def rollup(self, measure: Measure, group_of: GroupOf | None = None) -> Rollup:
        """Return the sums per queue, or group, of a measure over the jobs in any state."""

    def in_victim_order(self, victims: Iterable[_T], preemptor: Task) -> Iterator[_T]:
        """Yield tasks in the order in which they should make room for a preemptor."""

    def store(self, kind: type[_S]) -> _S:
        """Return the state of a class that a plugin names; those of built-in ones may change."""
