"""The API group `visibility.pumice.dev`: answers of Pumice to users who ask through the API server.

The service `visibility` makes these objects on request; the API server stores none of
them. `pumice` and the live page read the same types. Amounts are quantities as text, so that a
reader needs no table of units per resource.
"""

from typing import Annotated, Final

from msgspec import field
from typing_extensions import override

from shared.api.base import Timestamp, View, doc
from shared.api.meta import ObjectMeta
from shared.model.quantity import decimal

GROUP: Final = "visibility.pumice.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"


QueueName = Annotated[str, doc("Name of the queue.")]
GroupName = Annotated[str, doc("Name of the PodGroup, which need not be that of the Job.")]
Priority = Annotated[int, doc("Value of the PriorityClass.")]
Words = Annotated[str, doc("What the scheduler says, for a person.")]


class ObjectRef(View, frozen=True, kw_only=True):
    """Kind and name of an object that an answer speaks of."""

    api_version: Annotated[
        str, doc("Group and version of an owner that a client can look up, else empty.")
    ] = ""
    kind: Annotated[str, doc("Job, PodGroup, Pod, Queue, Node or the kind of another owner.")]
    namespace: Annotated[str, doc("Empty for an object of the cluster.")] = ""
    name: Annotated[str, doc("Name of the object.")]
    uid: Annotated[str, doc("UID of an owner that a client can look up, else empty.")] = ""


Owner = Annotated[
    ObjectRef,
    doc(
        "What controls the PodGroup, or the PodGroup itself. Clients of Pumice put the workload "
        "here that is at the top of the chain of owners."
    ),
]


class ResourceShortage(View, frozen=True, kw_only=True):
    """A resource that is short, and by how much."""

    resource: Annotated[str, doc("Name of the resource.")]
    requested: Annotated[str, doc("What the gate looked for: one pod, or a job's minimum.")]
    free: Annotated[str, doc("What is left: on the node with most, in queue, cluster or quota.")]
    pods: Annotated[
        int, doc("How many pods ask for that much each; 0 where it is asked for in all.")
    ] = 0
    nodes: Annotated[int, doc("How many nodes have room for such a pod now.")] = 0
    places: Annotated[int, doc("For how many such pods these nodes have room.")] = 0

    @override
    def __str__(self) -> str:
        """Return the form of table cells: `cpu 40 (2 free)`."""
        return f"{self.resource} {decimal(self.requested)} ({decimal(self.free)} free)"


class NodesReason(View, frozen=True, kw_only=True):
    """A reason why nodes do not take a pod, and how many nodes have it."""

    reason: Annotated[str, doc("Why these nodes take no pod of the job.")]
    nodes: Annotated[int, doc("How many nodes have that reason.")]


class Holder(View, frozen=True, kw_only=True):
    """A job that holds some of what another one waits for."""

    job: Annotated[ObjectRef, doc("The job that holds it.")]
    owner: Owner | None = None
    queue: QueueName = ""
    holds: Annotated[dict[str, str], doc("Resource name → quantity, of the short resources.")]
    expected_end: Annotated[
        Timestamp | None, doc("When it is expected to end; empty: not known.")
    ] = None


class ExpectedStart(View, frozen=True, kw_only=True):
    """When a job is expected to start, from several plays of the engine with drawn durations."""

    median: Annotated[Timestamp | None, doc("Half of the draws start the job by then.")] = None
    latest: Annotated[Timestamp | None, doc("Nine of ten draws start the job by then.")] = None
    basis: Annotated[
        str,
        doc(
            "Where durations come from: annotation, deadline, history, others, default; "
            "and after how long jobs to come are left out, if they are."
        ),
    ] = ""
    unknown: Annotated[
        str, doc("Why there is no time: not within 7 days, and because of what.")
    ] = ""
    never: Annotated[
        bool, doc("Whether the job cannot start with the nodes and queues that there are.")
    ] = False

    @property
    def is_guess(self) -> bool:
        """Whether the duration of a job is known neither from itself nor from similar ones."""
        return not {"others", "default"}.isdisjoint(self.basis.partition("; ")[0].split(", "))


class PendingJob(View, frozen=True, kw_only=True):
    """A job that waits: its place in line, the gate that stops it, and what is short."""

    metadata: Annotated[
        ObjectMeta, doc("The name is that of the Job, or of a PodGroup that no Job owns.")
    ]
    owner: Owner
    pod_group: GroupName = ""
    queue: QueueName
    position: Annotated[int, doc("Place in its queue's line, from 1; 0 while not ranked.")] = 0
    priority: Priority = 0
    gate: Annotated[
        str, doc("The first gate that stops it: enqueue, queue, quota, gang, predicate, …")
    ] = ""
    message: Words = ""
    shortages: Annotated[
        tuple[ResourceShortage, ...], doc("Resources that are short at that gate.")
    ] = ()
    waiting_since: Annotated[Timestamp | None, doc("Since when it waits.")] = None
    decided_at: Annotated[
        Timestamp | None,
        doc("When the leading scheduler decided so; empty: the gate is that of a session here."),
    ] = None
    expected_start: Annotated[
        ExpectedStart | None, doc("When it is expected to start; empty: not known yet.")
    ] = None


class Finding(View, frozen=True, kw_only=True):
    """A session on the state of a moment that finds another gate than the leader has published."""

    at: Annotated[Timestamp, doc("Time of the state that it goes by.")]
    gate: Annotated[str, doc("Empty: nothing stops the job any longer.")] = ""
    message: Words = ""


class Gate(View, frozen=True, kw_only=True):
    """One gate on the way of a job to its nodes."""

    name: Annotated[str, doc("Name of the gate, as in docs/observing.md.")]
    state: Annotated[str, doc("Passed, Failed or NotReached.")]
    message: Words = ""


class Explanation(View, frozen=True, kw_only=True):
    """The whole answer for one job: each gate, nodes by reason, holders, and what would help."""

    metadata: ObjectMeta
    about: Annotated[ObjectRef, doc("The Job, PodGroup or pod that was asked about.")]
    owner: Owner | None = None
    pod_group: GroupName = ""
    queue: QueueName = ""
    phase: Annotated[str, doc("Phase of the PodGroup, or of the pod.")] = ""
    position: Annotated[int, doc("Place in its queue's line, from 1; 0 while not ranked.")] = 0
    gates: Annotated[tuple[Gate, ...], doc("Gates in the order in which a job meets them.")] = ()
    nodes: Annotated[int, doc("Nodes that were looked at.")] = 0
    reasons: Annotated[
        tuple[NodesReason, ...], doc("Why nodes take none of its pods, with their number.")
    ] = ()
    shortages: Annotated[
        tuple[ResourceShortage, ...], doc("Resources that are short at the gate that stops it.")
    ] = ()
    holders: Annotated[
        tuple[Holder, ...], doc("Jobs that hold what is short, those that hold most first.")
    ] = ()
    hidden_holders: Annotated[int, doc("Holders in namespaces that the asker may not see.")] = 0
    remaining_holders: Annotated[int, doc("Holders beyond those that hold most, not named.")] = 0
    would_help: Annotated[
        tuple[str, ...], doc("Changes with each of which the job starts now, as tried.")
    ] = ()
    next_event: Annotated[str, doc("The next expected event that could change the answer.")] = ""
    decided_at: Annotated[
        Timestamp | None,
        doc(
            "When the leading scheduler decided so: gates, reasons and amounts are its own. "
            "Empty: it has said nothing, and they are those of a session here."
        ),
    ] = None
    latest: Annotated[
        Finding | None,
        doc(
            "What a session here finds since, if that is another gate; holders and help follow it."
        ),
    ] = None
    expected_start: Annotated[
        ExpectedStart | None, doc("When it is expected to start; empty: not known yet.")
    ] = None


class QueueResource(View, frozen=True, kw_only=True):
    """One resource of a queue; an empty amount means that none is set."""

    resource: Annotated[str, doc("Name of the resource.")]
    deserved: Annotated[str, doc("What the plugin that shares the cluster gives it.")] = ""
    guarantee: Annotated[str, doc("What is kept for it.")] = ""
    capability: Annotated[str, doc("What it never exceeds.")] = ""
    allocated: Annotated[str, doc("What its pods on nodes hold.")] = "0"
    inqueue: Annotated[str, doc("Asked for by admitted jobs whose pods are not all placed.")] = "0"
    pending: Annotated[str, doc("Asked for by jobs that are not admitted.")] = "0"
    total: Annotated[str, doc("What all nodes of the cluster have.")] = ""
    overused: Annotated[bool, doc("Whether it holds more than it deserves.")] = False


class QueueTree(View, frozen=True, kw_only=True):
    """One queue of the tree; a list holds each queue behind its parent."""

    metadata: ObjectMeta
    parent: Annotated[str, doc("Name of the queue above it; empty at the root.")] = ""
    depth: Annotated[int, doc("Queues above it.")] = 0
    children: Annotated[tuple[str, ...], doc("Names of the queues right below it.")] = ()
    state: Annotated[str, doc("Open, Closed, Closing or Unknown.")] = ""
    weight: Annotated[int, doc("Its share beside the queues of the same parent.")] = 1
    running_jobs: Annotated[int, doc("Jobs with pods on nodes, with those of queues below.")] = 0
    inqueue_jobs: Annotated[int, doc("Jobs that are admitted and have not started.")] = 0
    pending_jobs: Annotated[int, doc("Jobs that are not admitted.")] = 0
    resources: Annotated[tuple[QueueResource, ...], doc("Its amounts of each resource.")] = ()


class TaskPlacement(View, frozen=True, kw_only=True):
    """Pods of one task of the imagined job on one node."""

    task: Annotated[str, doc("Name of the task in the Job.")]
    node: Annotated[str, doc("Name of the node.")]
    pods: Annotated[int, doc("How many of its pods go there.")]


class EvictedPod(View, frozen=True, kw_only=True):
    """A pod that would have to go."""

    namespace: Annotated[str, doc("Namespace of the pod.")]
    name: Annotated[str, doc("Name of the pod.")]
    job: Annotated[str, doc("Name of its Job, or of its PodGroup without one.")] = ""
    queue: QueueName = ""


class MovedPod(View, frozen=True, kw_only=True):
    """A pod that would leave its node so that a job starts, and run on another one."""

    namespace: Annotated[str, doc("Namespace of the pod.")]
    name: Annotated[str, doc("Name of the pod.")]
    uid: Annotated[str, doc("Uid of the pod.")] = ""
    job: Annotated[str, doc("Name of its Job, or of its PodGroup without one.")] = ""
    queue: QueueName = ""
    cost: Annotated[int, doc("What its eviction costs, as it or its PodGroup states.")] = 0
    node: Annotated[str, doc("Name of its node.")] = ""
    to: Annotated[str, doc("Name of the node that the pod in its place fits on.")] = ""
    starts: Annotated[
        ObjectRef | None, doc("The job that it makes room for; empty if you may not see that.")
    ] = None


class Delay(View, frozen=True, kw_only=True):
    """A waiting job that would start later."""

    job: Annotated[ObjectRef, doc("The job that starts later.")]
    queue: QueueName = ""
    seconds: Annotated[
        float | None, doc("By how much, in half of the forecasts; empty if that is not known.")
    ] = None


class LosingJob(View, frozen=True, kw_only=True):
    """A job with pods on drained nodes for which there is no place elsewhere."""

    job: Annotated[ObjectRef, doc("The job that loses pods.")]
    queue: QueueName = ""
    pods: Annotated[int, doc("How many of its pods have no place.")] = 0
    stops: Annotated[bool, doc("Whether fewer are left than it needs at least.")] = False


class NeededNodes(View, frozen=True, kw_only=True):
    """Nodes of one shape that a job needs."""

    shape: Annotated[str, doc("Name of the shape.")]
    count: Annotated[int, doc("How many nodes.")]


class WhatIfStatus(View, frozen=True, kw_only=True):
    """The decision of the engine on a copy of the cluster with the change."""

    starts_now: Annotated[bool, doc("Whether the job starts in the next cycle.")]
    gate: Annotated[str, doc("The first gate that stops the job; empty if it starts.")] = ""
    message: Words = ""
    shortages: Annotated[
        tuple[ResourceShortage, ...], doc("Resources that are short at that gate.")
    ] = ()
    needed_nodes: Annotated[
        tuple[NeededNodes, ...],
        doc("Fewest nodes of the shapes with which the job starts; the rest is decided with them."),
    ] = ()
    placements: Annotated[tuple[TaskPlacement, ...], doc("Where its pods go.")] = ()
    evictions: Annotated[tuple[EvictedPod, ...], doc("Pods that have to go.")] = ()
    moves: Annotated[tuple[MovedPod, ...], doc("Pods that move for jobs that wait.")] = ()
    makes_moves: Annotated[
        bool, doc("Whether the scheduler's configuration has the action defrag.")
    ] = False
    starting: Annotated[
        tuple[ObjectRef, ...], doc("Waiting jobs that would start with the change.")
    ] = ()
    delays: Annotated[
        tuple[Delay, ...], doc("Jobs that would start now, and do not with the change.")
    ] = ()
    drained_pods: Annotated[
        int, doc("Pods of jobs on the drained nodes: they are among the evictions.")
    ] = 0
    unplaced_pods: Annotated[int, doc("How many of these find no place on other nodes now.")] = 0
    losing: Annotated[
        tuple[LosingJob, ...], doc("Jobs with pods on drained nodes without a place elsewhere.")
    ] = ()
    hidden: Annotated[
        int, doc("Evictions, jobs and delays in namespaces that the asker may not see.")
    ] = 0
    remaining: Annotated[
        dict[str, int], doc("List of this answer → how many more it has than it names.")
    ] = field(default_factory=dict)
    expected_start: Annotated[
        ExpectedStart | None, doc("When the job starts that does not start now.")
    ] = None
    decided_in_ms: Annotated[float, doc("How long the decision took, in milliseconds.")] = 0.0


class TimelineEntry(View, frozen=True, kw_only=True):
    """One thing that happened to a job, or one span of waiting or running."""

    at: Annotated[Timestamp, doc("When it happened, or began.")]
    seconds: Annotated[
        float | None, doc("How long it lasted; empty for a moment, and for what goes on.")
    ] = None
    goes_on: Annotated[bool, doc("Whether it is a wait that has no end yet.")] = False
    approximate: Annotated[bool, doc("Whether the time is known to the second only.")] = False
    what: Annotated[
        str,
        doc("Created, Admitted, Waits, Placed, Bound, Running, Evicted, Phase, Ended."),
    ]
    about: Annotated[ObjectRef, doc("The job, or one of its pods.")]
    message: Annotated[str, doc("Why, or what became of it, for a person.")] = ""


class Timeline(View, frozen=True, kw_only=True):
    """A job's life so far, for as long as its events are kept."""

    metadata: ObjectMeta
    owner: Owner | None = None
    queue: QueueName = ""
    phase: Annotated[str, doc("Phase of the Job, the last one that is known.")] = ""
    gone: Annotated[
        bool, doc("Whether the job was deleted in that phase; what is told is from its events.")
    ] = False
    entries: Annotated[tuple[TimelineEntry, ...], doc("What happened, the oldest first.")] = ()
    hidden_pods: Annotated[int, doc("Pods that are left out of a long answer.")] = 0


class RunningJob(View, frozen=True, kw_only=True):
    """A job that has pods on nodes: how many, what they hold, and until when."""

    metadata: Annotated[
        ObjectMeta, doc("The name is that of the Job, or of a PodGroup that no Job owns.")
    ]
    owner: Owner
    pod_group: GroupName = ""
    queue: QueueName
    priority: Priority = 0
    pods: Annotated[int, doc("Pods that hold a place on a node.")] = 0
    min_available: Annotated[int, doc("Pods that it needs at least.")] = 0
    nodes: Annotated[int, doc("Nodes on which these pods are.")] = 0
    allocated: Annotated[dict[str, str], doc("Resource name → quantity.")] = field(
        default_factory=dict
    )
    running_since: Annotated[Timestamp | None, doc("Since when pods of it run.")] = None
    expected_end: Annotated[
        Timestamp | None, doc("When it is expected to end; empty: not known.")
    ] = None


class NodeUse(View, frozen=True, kw_only=True):
    """How full one node is, as the scheduler counts it."""

    metadata: ObjectMeta
    ready: Annotated[bool, doc("Whether the node is ready.")] = True
    unschedulable: Annotated[bool, doc("Whether it takes no more pods.")] = False
    pods: Annotated[int, doc("Pods that hold a place on it.")] = 0
    allocatable: Annotated[dict[str, str], doc("Resource name → quantity.")] = field(
        default_factory=dict
    )
    allocated: Annotated[dict[str, str], doc("Resource name → quantity.")] = field(
        default_factory=dict
    )


class UsagePoint(View, frozen=True, kw_only=True):
    """The cluster at the end of one step of a UsageHistory."""

    at: Annotated[Timestamp, doc("End of the step.")]
    waiting: Annotated[int, doc("Jobs that had been created and not placed.")] = 0
    started: Annotated[int, doc("Jobs that were placed for the first time in this step.")] = 0
    waited_p50_seconds: Annotated[
        float | None, doc("Median wait of these jobs, in seconds; empty if none started.")
    ] = None
    waited_p90_seconds: Annotated[
        float | None, doc("Nine of ten of these jobs waited at most so many seconds.")
    ] = None
    in_use: Annotated[dict[str, str], doc("Resource name → quantity that jobs held.")] = field(
        default_factory=dict
    )


class UsageHistory(View, frozen=True, kw_only=True):
    """How many jobs waited, how long, and what was in use, over the last hours."""

    metadata: ObjectMeta
    step_seconds: Annotated[int, doc("Length of a step.")] = 0
    total: Annotated[dict[str, str], doc("Resource name → quantity that all nodes have now.")] = (
        field(default_factory=dict)
    )
    points: Annotated[tuple[UsagePoint, ...], doc("Steps, the oldest first.")] = ()
    is_partial: Annotated[
        bool, doc("Whether older events were dropped, so that early steps show too little.")
    ] = False


class Change(View, frozen=True, kw_only=True):
    """One message of the stream `changes`: lists to ask for again, or a thing that happened."""

    resources: Annotated[
        tuple[str, ...], doc("pendingjobs, runningjobs, queuetrees or nodeuses.")
    ] = ()
    entry: Annotated[TimelineEntry | None, doc("What happened.")] = None
