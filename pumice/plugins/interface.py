"""The types of the plugin interface: protocols for what a plugin reads, values for what it answers.

Amounts are integers: `cpu` in thousandths, `memory` in bytes, `pods` as a number, all other
resources in thousandths. An *amounts array* has one entry per resource in the order of
`Cluster.resources`.
"""

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
CodeArray = NDArray[np.uint8]
Arguments = Mapping[str, Any]
"""A plugin's `arguments` from the configuration file, as written there."""


class Vote(enum.IntEnum):
    """A ternary answer (SS07): one REJECT decides, PERMIT ends the tier, ABSTAIN leaves it open."""

    REJECT = -1
    ABSTAIN = 0
    PERMIT = 1


class Opinion(NamedTuple):
    """A vote with its reason, which a person reads when the vote decides."""

    vote: Vote
    reason: str = ""
    short: tuple[tuple[str, int, int], ...] = ()
    """Resources that there is too little of: name, amount asked for, amount left."""


PERMIT = Opinion(Vote.PERMIT)
ABSTAIN = Opinion(Vote.ABSTAIN)


class Condition(NamedTuple):
    """What scheduling says about an object; times and ids are the writer's (D01, D02)."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


class Invalid(NamedTuple):
    """Why a job cannot be scheduled at all now; ends up in its PodGroup's condition (D04)."""

    reason: str
    message: str


class Reason(NamedTuple):
    """Why a node does not take a task; `resolvable` when evicting pods there could change it."""

    text: str
    resolvable: bool = True


class EvictionKind(enum.IntEnum):
    """Who asks `evictable`: actions that evict for whole gangs, within a queue or across queues."""

    GANG_PREEMPT = 1
    GANG_RECLAIM = 2


class EvictionContext(NamedTuple):
    """For whom tasks would be evicted: the action and the job that needs room."""

    kind: EvictionKind
    job: Any


class WideVerdict(NamedTuple):
    """Which nodes take a task of some class, where one node's answer depends on other nodes."""

    codes: Callable[[], CodeArray]
    """Gives each node of the cluster 0 (fits) or n, the n-th reason; asked after placements."""
    steady: bool = False
    """Whether tasks of the class itself, being placed, leave the answer as it is."""
    one_by_one: bool = False
    """Whether the answer follows from what `Hooks.moved` told, so that it cannot be foreseen."""


WideScore = Callable[[BoolArray], FloatArray]
"""Scores each node 0…100, given which ones are candidates."""


class TaskClass(Protocol):
    """Tasks that are equal in everything that placement reads."""

    @property
    def id(self) -> int:
        """Number of the class, stable while the scheduler runs."""

    @property
    def request(self) -> IntArray:
        """Amounts array of what one task occupies."""

    @property
    def traits(self) -> Mapping[str, str]:
        """What tells its tasks apart beyond their specs: annotations, and `Hooks.trait`."""

    @property
    def scoring_request(self) -> tuple[int, int]:
        """Milli-CPU and bytes for scorers, with defaults for containers that ask for nothing."""

    @property
    def best_effort(self) -> bool:
        """Whether the tasks ask for nothing."""

    @property
    def node_selector(self) -> Mapping[str, str]:
        """Labels that a node must have."""

    @property
    def host_ports(self) -> tuple[tuple[str, str, int], ...]:
        """Ports on the node that a task takes: (address, protocol, port)."""


class NodeRows(Protocol):
    """Some nodes, each with a number of further tasks of one class imagined on it.

    All arrays have one entry per row. A row is a node, or one of several futures of a node; a
    function that computes from the row alone serves both.
    """

    @property
    def index(self) -> IntArray:
        """Index of each row's node in the cluster's tables."""

    @property
    def extra(self) -> IntArray:
        """How many tasks of the class are imagined on the node beyond those that are there."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def allocatable(self, resource: int) -> IntArray:
        """Return what the nodes have of a resource (its index in `Cluster.resources`)."""

    def used(self, resource: int) -> IntArray:
        """Return what tasks that were placed hold, without those that wait for a release."""

    def requested(self, resource: int) -> IntArray:
        """Return what all pods ask for, with those that wait and without those being evicted."""

    def scoring_requested(self) -> tuple[IntArray, IntArray]:
        """Return milli-CPU and bytes asked for, with the scorers' defaults."""

    def label(self, key: str) -> NDArray[np.object_]:
        """Return the value of a label per row, None where it is absent."""


class Task(Protocol):
    """One pod as scheduling sees it."""

    uid: str
    key: str
    name: str
    namespace: str
    job_key: str
    """Key of its job; empty when it belongs to none."""
    role: str
    priority: int
    priority_class: str
    preemptable: bool
    labels: Mapping[str, str]
    node: str
    """Name of the node that it is on or goes to; empty while it has none."""


class Job(Protocol):
    """One PodGroup with its tasks."""

    key: str
    uid: str
    namespace: str
    name: str
    queue: str
    priority: int
    min_available: int
    created: str
    phase: str
    annotations: Mapping[str, str]
    allocated: IntArray
    """Amounts held by tasks that are bound or on the way there."""
    min_resources: IntArray | None

    @property
    def task_count(self) -> int:
        """Number of tasks."""

    @property
    def ready_count(self) -> int:
        """Number of tasks that count towards the gang (T02)."""

    @property
    def waiting_count(self) -> int:
        """Number of tasks that wait on a node for a release."""


class Queue(Protocol):
    """One queue."""

    name: str
    uid: str
    weight: int
    priority: int
    created: str
    is_open: bool
    reclaimable: bool


class Cluster(Protocol):
    """What a plugin may ask about the cluster while it contributes and afterwards."""

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
    def jobs(self) -> Sequence[Job]:
        """Jobs that may need something; those that have all they ask for are not among them."""

    def tasks_on(self, node: str) -> Iterable[Task]:
        """Return the pods on a node, whoever placed them."""

    def queue(self, name: str) -> Queue | None:
        """Return the queue of that name."""

    def job_of(self, task: Task) -> Job | None:
        """Return the job that a task belongs to."""

    def schedulable(self, job: Job) -> int:
        """Return how many tasks are ready, or were before an attempt was given up."""

    def fit_error(self, job: Job) -> str:
        """Return why tasks of a job are not placed, as a text for people."""


class Hooks(Protocol):
    """Where a plugin adds its functions; flags of the configuration are applied by the engine.

    Order functions return a key: what sorts first is served first; ties fall to the next plugin and
    at last to age and uid (SS09).
    """

    def enabled(self, flag: str) -> bool:
        """Tell whether a flag of the plugin is set, spelled as in the configuration (K02)."""

    def job_valid(self, fn: Callable[[Any], Invalid | None]) -> None:
        """Refuse jobs that cannot be scheduled at all; ignores the enable flag (SS07 ⚠)."""

    def job_order(self, fn: Callable[[Any], Any]) -> None:
        """Order jobs within a queue."""

    def queue_order(self, fn: Callable[[Any], Any]) -> None:
        """Order queues."""

    def task_order(self, fn: Callable[[Any], Any]) -> None:
        """Order tasks within a job."""

    def job_ready(self, fn: Callable[[Any], int]) -> None:
        """Return how many tasks at least are missing before the job may start; 0 = ready."""

    def job_pipelined(self, fn: Callable[[Any], Vote]) -> None:
        """Vote whether a job may keep what it waits for on nodes."""

    def job_starving(self, fn: Callable[[Any], bool]) -> None:
        """Tell whether a job may take from others; the first tier that has an opinion decides."""

    def job_enqueueable(self, fn: Callable[[Any], Opinion]) -> None:
        """Vote whether a pending job may enter its queue."""

    def job_enqueued(self, fn: Callable[[Any], None]) -> None:
        """Be told that a job entered its queue."""

    def overused(self, fn: Callable[[Any], bool]) -> None:
        """Tell whether a queue may not get more; one yes decides."""

    def allocatable(self, fn: Callable[[Any, Any, int], int]) -> None:
        """Return how many of `count` more tasks of a class a queue may get, one after another."""

    def preemptive(self, fn: Callable[[Any, Sequence[Any]], bool]) -> None:
        """Tell whether a queue may take from others for these tasks."""

    def preemptable(self, fn: Callable[[Any, Sequence[Any]], Sequence[Any] | None]) -> None:
        """Return which tasks of the same queue a task may evict; None abstains (SS06)."""

    def reclaimable(self, fn: Callable[[Any, Sequence[Any]], Sequence[Any] | None]) -> None:
        """Return which tasks of other queues a task may evict; None abstains (SS06)."""

    def evictable(
        self, fn: Callable[[EvictionContext, Sequence[Any]], Sequence[Any] | None]
    ) -> None:
        """Return which tasks may be evicted for a whole gang; ignores enable flags (SS06 ⚠)."""

    def victim_queue_order(self, fn: Callable[[Any, Any], Any]) -> None:
        """Order (queue of a victim, queue of the taker): what sorts first is evicted first.

        Ties fall to the next plugin and at last to the reverse of the queue order.
        """

    def victim_tasks(self, fn: Callable[[Sequence[Any]], Sequence[Any]]) -> None:
        """Return which of the running tasks should go without anybody waiting for their place.

        The lists of a tier are united; the first tier that names a task decides.
        """

    def predicate(
        self,
        fn: Callable[[Any, Any], CodeArray],
        *,
        reasons: Sequence[Reason],
        static: bool = False,
    ) -> None:
        """Give each row 0 (fits) or n: the n-th reason, from 1.

        `static` promises that the answer depends on the node's object alone (labels, taints), so
        that it is computed once per class and node version.
        """

    def node_score(self, fn: Callable[[Any, Any], FloatArray]) -> None:
        """Score each row, from the row alone; scores of all plugins are added up."""

    def node_rank(
        self,
        fn: Callable[[Any, Any], IntArray],
        *,
        weight: float,
        reverse: bool = False,
    ) -> None:
        """Give each row a raw number ≥ 0 that depends on the node's object alone.

        The engine scales it to 0…100 over the candidates (reversed when less is better), as
        Kubernetes normalises, and multiplies by `weight`.
        """

    def wide_predicate(
        self, fn: Callable[[Any], WideVerdict | None], *, reasons: Sequence[Reason]
    ) -> None:
        """Refuse nodes for what happens on others (topology domains).

        `fn` gets a class and returns how to ask about it, None where it does not concern the class.
        """

    def wide_score(self, fn: Callable[[Any], WideScore | None], *, weight: float) -> None:
        """Score nodes by what happens on others; None where it does not concern the class."""

    def sub_job_ready(self, fn: Callable[[Any], int]) -> None:
        """Return how many tasks at least a subgroup of a job lacks; 0 = ready (T06)."""

    def sub_job_pipelined(self, fn: Callable[[Any], Vote]) -> None:
        """Vote whether a subgroup may keep what it waits for on nodes."""

    def sub_job_order(self, fn: Callable[[Any], Any]) -> None:
        """Order the subgroups of a job."""

    def hypernode_score(self, fn: Callable[[Any, Sequence[str]], Sequence[float]]) -> None:
        """Score HyperNodes that could take a subgroup, in the order of their names."""

    def job_gradient(self, fn: Callable[[Any, str, bool], list[list[str]]]) -> None:
        """Return which HyperNodes at or below one to try for a job.

        Levels are tried in turn until one has a solution; the flag tells whether room is to be
        made by evictions. The first plugin that is asked decides.
        """

    def sub_job_gradient(self, fn: Callable[[Any, str, bool], list[list[str]]]) -> None:
        """Return which HyperNodes at or below one to try for a subgroup, as for a job."""

    def group_score(self, fn: Callable[[Any, Any, IntArray], FloatArray | None]) -> None:
        """Score candidate columns by where the rest of a group is.

        Called with a seat (job, subgroup, HyperNode so far), a class and columns. Such a score
        changes with every placement, so tasks are placed one at a time unless it is None.
        """

    def judged(self, fn: Callable[[Any], Condition | None]) -> None:
        """Say at the end of the cycle what a job's PodGroup should show; None says nothing."""

    def closed(self, fn: Callable[[], None]) -> None:
        """Be told that the cycle has been decided."""

    def trait(self, name: str, fn: Callable[[Any], str]) -> None:
        """Tell pending tasks apart by more than their pods: a class has one value of each trait."""

    def binding(self, fn: Callable[[Any], Mapping[str, str]]) -> None:
        """Return annotations that the binding adds to a task's pod; asked once it is placed."""

    def moved(self, fn: Callable[[Any, Any, IntArray, IntArray], None]) -> None:
        """Be told which nodes (columns, and a count each) got tasks of a class for a job.

        Negative counts: taken back or evicted.
        """

    def changed(self, fn: Callable[[Any, Any, int], None]) -> None:
        """Be told that `count` tasks of a class were placed for a job; negative: taken back."""


class Plugin(Protocol):
    """What the engine calls. Built with the plugin's arguments: `PluginType(arguments)`."""

    name: str

    def contribute(self, hooks: Hooks, cluster: Cluster) -> None:
        """Add functions to `hooks`; called once per cycle, before the first action."""
