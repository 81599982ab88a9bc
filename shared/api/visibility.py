"""The API group `visibility.pumice.dev`: answers of Pumice to users who ask through the API server.

The service `visibility` makes these objects when they are asked for; the API server stores none of
them. `pumice` and the live page read the same types. Amounts are quantities as text, so that a
reader needs no table of units per resource.
"""

from typing import Annotated, Final

from msgspec import field

from shared.api.base import Timestamp, View, doc
from shared.api.batch import Job
from shared.api.core import Node
from shared.api.meta import ObjectMeta
from shared.api.scheduling import Queue

GROUP: Final = "visibility.pumice.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"


class ObjectRef(View, frozen=True, kw_only=True):
    """Kind and name of an object that an answer speaks of."""

    kind: Annotated[str, doc("Job, PodGroup, Pod, Queue, Node or the kind of another owner.")]
    namespace: str = ""
    name: str


class ResourceShortage(View, frozen=True, kw_only=True):
    """A resource that is short, and by how much."""

    resource: str
    requested: Annotated[str, doc("What the gate looked for: one pod, or a job's minimum.")]
    free: Annotated[str, doc("What is left: on the node with most, in queue, cluster or quota.")]


class NodesReason(View, frozen=True, kw_only=True):
    """A reason why nodes do not take a pod, and how many nodes have it."""

    reason: str
    nodes: int


class Holder(View, frozen=True, kw_only=True):
    """A job that holds some of what another one waits for."""

    job: ObjectRef
    queue: str = ""
    holds: Annotated[dict[str, str], doc("Resource name → quantity, of the short resources.")]
    expected_end: Timestamp | None = None


class ExpectedStart(View, frozen=True, kw_only=True):
    """When a job is expected to start, from several plays of the engine with drawn durations."""

    median: Annotated[Timestamp | None, doc("Half of the draws start the job by then.")] = None
    latest: Annotated[Timestamp | None, doc("Nine of ten draws start the job by then.")] = None
    basis: Annotated[
        str, doc("Where durations come from: annotation, deadline, history, default.")
    ] = ""
    unknown: Annotated[
        str, doc("Why there is no time: not within 7 days, and because of what.")
    ] = ""


class PendingJob(View, frozen=True, kw_only=True):
    """A job that waits: its place in line, the gate that stops it, and what is short."""

    metadata: Annotated[
        ObjectMeta, doc("The name is that of the Job, or of a PodGroup that no Job owns.")
    ]
    owner: ObjectRef
    pod_group: str = ""
    queue: str
    position: Annotated[int, doc("Place in its queue's line, from 1; 0 while not ranked.")] = 0
    priority: int = 0
    gate: Annotated[
        str, doc("The first gate that stops it: enqueue, queue, quota, gang, predicate, …")
    ] = ""
    message: str = ""
    shortages: tuple[ResourceShortage, ...] = ()
    waiting_since: Timestamp | None = None
    decided_at: Annotated[
        Timestamp | None,
        doc("When the leading scheduler decided so; empty: the gate is that of a session here."),
    ] = None
    expected_start: ExpectedStart | None = None


class Finding(View, frozen=True, kw_only=True):
    """A session on the state of a moment that finds another gate than the leader has said."""

    at: Timestamp
    gate: Annotated[str, doc("Empty: nothing stops the job any longer.")] = ""
    message: str = ""


class Gate(View, frozen=True, kw_only=True):
    """One gate on the way of a job to its nodes."""

    name: str
    state: Annotated[str, doc("Passed, Failed or NotReached.")]
    message: str = ""


class Explanation(View, frozen=True, kw_only=True):
    """The whole answer for one job: each gate, nodes by reason, holders, and what would help."""

    metadata: ObjectMeta
    about: ObjectRef
    pod_group: str = ""
    queue: str = ""
    phase: Annotated[str, doc("Phase of the PodGroup, or of the pod.")] = ""
    position: int = 0
    gates: tuple[Gate, ...] = ()
    nodes: Annotated[int, doc("Nodes that were looked at.")] = 0
    reasons: tuple[NodesReason, ...] = ()
    shortages: tuple[ResourceShortage, ...] = ()
    holders: tuple[Holder, ...] = ()
    hidden_holders: Annotated[int, doc("Holders in namespaces that the asker may not see.")] = 0
    remaining_holders: Annotated[int, doc("Holders beyond those that hold most, not named.")] = 0
    would_help: Annotated[tuple[str, ...], doc("Changes of which each would open the gate.")] = ()
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
    expected_start: ExpectedStart | None = None


class QueueResource(View, frozen=True, kw_only=True):
    """One resource of a queue; an empty amount means that none is set."""

    resource: str
    deserved: str = ""
    guarantee: str = ""
    capability: str = ""
    allocated: str = "0"
    inqueue: Annotated[str, doc("Asked for by admitted jobs whose pods are not all placed.")] = "0"
    pending: Annotated[str, doc("Asked for by jobs that are not admitted.")] = "0"
    overused: bool = False


class QueueTree(View, frozen=True, kw_only=True):
    """One queue of the tree; a list holds each queue behind its parent."""

    metadata: ObjectMeta
    parent: str = ""
    depth: int = 0
    children: tuple[str, ...] = ()
    state: str = ""
    weight: int = 1
    running_jobs: int = 0
    inqueue_jobs: int = 0
    pending_jobs: int = 0
    resources: tuple[QueueResource, ...] = ()


class AddedNodes(View, frozen=True, kw_only=True):
    """Nodes to imagine: like one that is there, or of a form of their own."""

    count: int = 1
    like: Annotated[str, doc("Name of a node that is there.")] = ""
    template: Node | None = None


class WhatIfSpec(View, frozen=True, kw_only=True):
    """A change to imagine: a job, a queue as it would be, nodes that come or go."""

    job: Job | None = None
    queue: Queue | None = None
    add_nodes: tuple[AddedNodes, ...] = ()
    drain_nodes: tuple[str, ...] = ()


class TaskPlacement(View, frozen=True, kw_only=True):
    """Pods of one task of the imagined job on one node."""

    task: str
    node: str
    pods: int


class EvictedPod(View, frozen=True, kw_only=True):
    """A pod that would have to go."""

    namespace: str
    name: str
    job: str = ""
    queue: str = ""


class Delay(View, frozen=True, kw_only=True):
    """A waiting job that would start later."""

    job: ObjectRef
    queue: str = ""
    seconds: Annotated[
        float | None, doc("By how much, in half of the forecasts; empty if that is not known.")
    ] = None


class LosingJob(View, frozen=True, kw_only=True):
    """A job with pods on drained nodes for which there is no place elsewhere."""

    job: ObjectRef
    queue: str = ""
    pods: Annotated[int, doc("How many of its pods have no place.")] = 0
    stops: Annotated[bool, doc("Whether fewer are left than it needs at least.")] = False


class WhatIfStatus(View, frozen=True, kw_only=True):
    """The decision of the engine on a copy of the cluster with the change."""

    starts_now: bool
    gate: Annotated[str, doc("The first gate that stops the job; empty if it starts.")] = ""
    message: str = ""
    shortages: tuple[ResourceShortage, ...] = ()
    placements: tuple[TaskPlacement, ...] = ()
    evictions: tuple[EvictedPod, ...] = ()
    starting: Annotated[
        tuple[ObjectRef, ...], doc("Waiting jobs that would start with the changed queue or nodes.")
    ] = ()
    delays: tuple[Delay, ...] = ()
    drained_pods: Annotated[
        int, doc("Pods of jobs on the drained nodes: they are among the evictions.")
    ] = 0
    unplaced_pods: Annotated[int, doc("How many of these find no place on other nodes now.")] = 0
    losing: tuple[LosingJob, ...] = ()
    hidden: Annotated[
        int, doc("Evictions, jobs and delays in namespaces that the asker may not see.")
    ] = 0
    remaining: Annotated[
        dict[str, int], doc("List of this answer → how many more it has than it names.")
    ] = field(default_factory=dict)
    expected_start: ExpectedStart | None = None
    decided_in_ms: float = 0.0


class WhatIf(View, frozen=True, kw_only=True):
    """A question (`spec`) and its answer (`status`); create only, like a SubjectAccessReview."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: WhatIfSpec
    status: WhatIfStatus | None = None


class TimelineEntry(View, frozen=True, kw_only=True):
    """One thing that happened to a job, or one span of waiting or running."""

    at: Timestamp
    seconds: Annotated[
        float | None, doc("How long it lasted; empty for a moment, and for what goes on.")
    ] = None
    approximate: Annotated[bool, doc("Whether the time is known to the second only.")] = False
    what: Annotated[
        str,
        doc("Created, Admitted, Waits, Placed, Bound, Running, Evicted, Phase, Ended."),
    ]
    about: ObjectRef
    message: str = ""


class Timeline(View, frozen=True, kw_only=True):
    """A job's life so far, for as long as its events are kept."""

    metadata: ObjectMeta
    queue: str = ""
    phase: str = ""
    gone: Annotated[
        bool, doc("Whether the job was deleted in that phase; what is told is from its events.")
    ] = False
    entries: tuple[TimelineEntry, ...] = ()
    hidden_pods: Annotated[int, doc("Pods that are left out of a long answer.")] = 0


class RunningJob(View, frozen=True, kw_only=True):
    """A job that has pods on nodes: how many, what they hold, and until when."""

    metadata: Annotated[
        ObjectMeta, doc("The name is that of the Job, or of a PodGroup that no Job owns.")
    ]
    owner: ObjectRef
    pod_group: str = ""
    queue: str
    priority: int = 0
    pods: Annotated[int, doc("Pods that hold a place on a node.")] = 0
    min_available: int = 0
    nodes: Annotated[int, doc("Nodes on which these pods are.")] = 0
    allocated: Annotated[dict[str, str], doc("Resource name → quantity.")] = field(
        default_factory=dict
    )
    running_since: Timestamp | None = None
    expected_end: Timestamp | None = None


class NodeUse(View, frozen=True, kw_only=True):
    """How full one node is, as the scheduler counts it."""

    metadata: ObjectMeta
    ready: bool = True
    unschedulable: bool = False
    pods: int = 0
    allocatable: Annotated[dict[str, str], doc("Resource name → quantity.")] = field(
        default_factory=dict
    )
    allocated: Annotated[dict[str, str], doc("Resource name → quantity.")] = field(
        default_factory=dict
    )


class Change(View, frozen=True, kw_only=True):
    """One message of the stream `changes`: lists to ask for again, or a thing that happened."""

    resources: Annotated[
        tuple[str, ...], doc("pendingjobs, runningjobs, queuetrees or nodeuses.")
    ] = ()
    entry: TimelineEntry | None = None
