"""Messages between the services.

Facts state what the API server has (`Fact`), commands are in the imperative (`BindGang`, `Evict`),
desires name what scheduling wants (`DesiredPodGroup`, …) and outcomes tell how a command ended. A
message holds its version `v`; facts tolerate unknown fields, commands and desires refuse them in
all their parts: a field that is ignored there is an order that is ignored.
"""

import enum
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from shared.contracts.versions import CURRENT

Key = Annotated[str, Meta(description="namespace/name, or name for a cluster-scoped object")]
Uid = Annotated[str, Meta(description="metadata.uid of the object that was decided on")]
Version = Annotated[
    str, Meta(description="metadata.resourceVersion that was decided on; empty: not known")
]


class Op(enum.Enum):
    """Kind of change of an object."""

    PUT = "put"
    DELETE = "delete"
    OVERSIZED = "oversized"
    """The object is there, but its body is beyond the payload limit and was left out."""


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """The last observed state of one object (stream STATE)."""

    v: int = CURRENT
    kind: str
    """Token of the kind, see `shared.api.kinds.KINDS`."""
    key: Key
    uid: Uid
    rv: str
    """metadata.resourceVersion; compared as a number."""
    op: Op = Op.PUT
    body: msgspec.Raw = msgspec.Raw(b"null")
    """The projected object (the fields of its view type) when `op` is put, otherwise `null`.

    The tombstone of a job's pod that had succeeded before its deletion was asked for holds what the
    job has to know of it: owner, task, index, version and phase (ADR 10).
    """


class ClusterLeaseStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State of a Lease in the API server, as the cache's leader knows it.

    Three cases: it is ours for `left_s`; another holds it (`holder`); or this is unknown, for
    `reason`. In the last case the former status counts until it expires.
    """

    lease: Key
    term: str = ""
    """Name of this leadership term; another one after another holder in between."""
    left_s: float = 0.0
    """Seconds for which it is valid, from the time of this marker."""
    holder: str = ""
    """The other holder."""
    reason: str = ""
    """One line for a person."""


SCHEDULING: Final = "scheduling"
"""Key among the Leases of a marker: the right to decide and bind."""
CONTROL: Final = "control"
"""Likewise: the right to make and keep what jobs, queues and PodGroups need."""


class Marker(msgspec.Struct, frozen=True, kw_only=True):
    """The cache's statement that everything up to here is published (stream STATE)."""

    v: int = CURRENT
    complete: tuple[str, ...]
    """Kinds whose objects are all published, sorted."""
    bookmarks: dict[str, str]
    """Last resourceVersion seen per kind."""
    time: float
    """Unix seconds at the cache when it was written."""
    instance: str
    leases: dict[str, ClusterLeaseStatus] | msgspec.UnsetType = msgspec.UNSET
    """Leases in the cluster by purpose; unset: the installation uses none."""
    digests: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    """Digest (`digests`) of what STATE holds of each kind of which no facts are on their way."""


class LeaderRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The start of a leader's term; its sequence on STATE or COMMAND is the fencing token."""

    v: int = CURRENT
    service: str
    instance: str
    time: float


class ClaimUse(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A claim that gets its volume after the node of its pod is chosen (CA11)."""

    claim: Key
    uid: Uid
    volume: str = ""
    """The volume to bind; empty: provision one for the node."""
    volume_uid: Uid = Uid("")


class DeviceUse(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A ResourceClaim of a pod; its status is updated before the pod is bound."""

    claim: Key
    uid: Uid
    allocation: msgspec.Raw
    """The claim's `status.allocation`: as it was decided, or as it was when the bind was."""
    allocated: bool = False
    """Whether the claim was allocated already: then only the pod is added to its users."""
    to_prepare: bool = False
    """Whether devices have binding conditions: the pod is bound when their driver has met them."""
    group: str = ""
    """Native PodGroup that the claim is reserved for in place of the pod; empty: none."""
    group_uid: Uid = ""
    requests: tuple[tuple[str, str, int], ...] = ()
    """(name, device class, devices) of a claim that the binder makes for the pod's extended
    resources; empty for a claim that exists. Its `uid` is empty."""
    mappings: tuple[tuple[str, str, str], ...] = ()
    """(container, resource, request): which request of that claim serves a container."""


class Bind(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """One pod of a gang and its node."""

    pod: Key
    uid: Uid
    node: str
    owner_job: Key = ""
    """Key of the Job that made the pod, for subscribers; a binder that does not know it omits it.

    Of the pod, not of the gang: a group may hold pods of several owners.
    """
    annotations: dict[str, str] = {}
    """Merged into the pod by the binding (CA06)."""
    claims: tuple[ClaimUse, ...] = ()
    """Claims whose volumes must be bound before the pod is bound."""
    devices: tuple[DeviceUse, ...] = ()
    """Claims that must have their devices, and be reserved for the pod, before it is bound."""


class BindGang(msgspec.Struct, frozen=True, kw_only=True, tag="bind", forbid_unknown_fields=True):
    """Bind these pods, which were decided together."""

    v: int = CURRENT
    id: str
    """Unique per decision: `<leader token>-<cycle>-<index>`; only a re-send uses one again."""
    cycle: int
    job: Key
    """Key of the PodGroup."""
    job_uid: Uid
    queue: str = ""
    """The PodGroup's queue, for subscribers."""
    binds: tuple[Bind, ...]
    needed: int | msgspec.UnsetType = msgspec.UNSET
    """Where devices have to be prepared: no pod is bound unless this many can be (ADR 36)."""


class Victim(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """One pod to evict."""

    pod: Key
    uid: Uid
    job: Key = ""
    """Key of the PodGroup."""
    owner_job: Key = ""
    """Key of the Job that made the pod, for subscribers."""
    queue: str = ""
    """The PodGroup's queue, likewise."""
    node: str = ""


class Preemptor(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The pod that an eviction makes room for, and the node that it is nominated to."""

    pod: Key
    uid: Uid
    node: str
    queue: str = ""
    """Its queue and the priority of its job, for users who must not see its name."""
    priority: int = 0


class Evict(msgspec.Struct, frozen=True, kw_only=True, tag="evict", forbid_unknown_fields=True):
    """Nominate the preemptor (if there is one), then evict the victims in order."""

    v: int = CURRENT
    id: str
    cycle: int
    reason: str
    """The action that decided it: `preempt`, `reclaim`, `shuffle`, …"""
    preemptor: Preemptor | None = None
    victims: tuple[Victim, ...]


Command = BindGang | Evict


class DesiredCondition(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename="camel",
    forbid_unknown_fields=True,
):
    """A condition of a pod or PodGroup.

    The binder adds time and transition id unless they are given, which they are for a condition
    that the object shows already.
    """

    type: str
    status: str
    reason: str = ""
    message: str = ""
    transition_id: str = ""
    last_transition_time: str = ""


class DesiredPodGroup(
    msgspec.Struct, frozen=True, kw_only=True, tag="podgroup", forbid_unknown_fields=True
):
    """Desired phase, counts and conditions of a PodGroup (SS04, D01)."""

    v: int = CURRENT
    key: Key
    uid: Uid
    phase: str
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    conditions: tuple[DesiredCondition, ...] = ()
    cycle: int = 0
    rv: Version = ""


class _DesiredConditions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    v: int = CURRENT
    key: Key
    uid: Uid
    conditions: tuple[DesiredCondition, ...] = ()
    cycle: int = 0
    rv: Version = ""


class DesiredNativePodGroup(_DesiredConditions, frozen=True, kw_only=True, tag="nativepodgroup"):
    """Conditions to set on a native PodGroup, which keeps those of other types."""


class DesiredPod(_DesiredConditions, frozen=True, kw_only=True, tag="pod"):
    """Why a pod is not scheduled: its PodScheduled condition (D02)."""


class DesiredUngated(
    msgspec.Struct, frozen=True, kw_only=True, tag="ungated", forbid_unknown_fields=True
):
    """A pod that its queue has admitted: the queue's scheduling gate is removed (CA14)."""

    v: int = CURRENT
    key: Key
    uid: Uid
    cycle: int = 0
    rv: Version = ""


class DesiredQueue(
    msgspec.Struct, frozen=True, kw_only=True, tag="queue", forbid_unknown_fields=True
):
    """Desired status of a queue: allocated resources (SS03) and number of pending PodGroups."""

    v: int = CURRENT
    key: Key
    uid: Uid
    allocated: dict[str, str]
    """As Kubernetes quantities."""
    pending: int = 0
    cycle: int = 0
    rv: Version = ""
    released: tuple[str, ...] = ()
    """Resources in the queue's status that its jobs no longer use."""


class DesiredNodeShard(
    msgspec.Struct, frozen=True, kw_only=True, tag="nodeshard", forbid_unknown_fields=True
):
    """Nodes that a scheduler uses, will use, and will release (CA12)."""

    v: int = CURRENT
    key: Key
    uid: Uid
    in_use: tuple[str, ...] = ()
    to_add: tuple[str, ...] = ()
    to_remove: tuple[str, ...] = ()
    leadership_term: str | msgspec.UnsetType = msgspec.UNSET
    """In which the scheduler claims nodes, "" for none, if the object names another."""
    cycle: int = 0
    rv: Version = ""


Desired = (
    DesiredPodGroup
    | DesiredNativePodGroup
    | DesiredPod
    | DesiredUngated
    | DesiredQueue
    | DesiredNodeShard
)


class Result(enum.Enum):
    """How one item of a command ended."""

    BOUND = "bound"
    EVICTED = "evicted"
    CONFLICT = "conflict"
    """The pod is bound to another node; `node` says which."""
    GONE = "gone"
    """No object with that uid exists any more."""
    SPARED = "spared"
    """A victim that was not evicted because its preemptor is gone."""
    FAILED = "failed"


class Retry(enum.Enum):
    """Whether a failed item may be tried again."""

    NEVER = "never"
    """The API server refused it: the same again would be refused again."""
    LATER = "later"
    """The API server could not be reached or was too busy for too long."""


class ItemOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one pod of a command ended."""

    pod: Key
    uid: Uid
    result: Result
    node: str = ""
    rv: str = ""
    retry: Retry | None = None
    message: str = ""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended; every command has exactly one (stream OUTCOME)."""

    v: int = CURRENT
    intent: str
    job: Key = ""
    items: tuple[ItemOutcome, ...]
    instance: str
    time: float


class Poison(msgspec.Struct, frozen=True, kw_only=True):
    """A command that could not be read and was quarantined with its reason."""

    v: int = CURRENT
    subject: str
    sequence: int
    reason: str
    payload: bytes
    time: float


class Short(msgspec.Struct, frozen=True, kw_only=True):
    """A shortage of one resource, in its canonical unit."""

    resource: str
    requested: int
    largest_free: int
    """The amount that is left: on the node with most, in queue, cluster or quota."""


class WaitExplained(msgspec.Struct, frozen=True, kw_only=True):
    """Why a gang waits, as the leading scheduler has decided (stream WAITING).

    The last one per PodGroup counts. An empty gate means that the gang no longer waits.
    """

    v: int = CURRENT
    gang: Key
    """Key of the PodGroup."""
    uid: Uid
    term: int
    """Number of the leader's term."""
    cycle: int
    time: float
    """Unix seconds that the cycle went by which decided so."""
    gate: str = ""
    message: str = ""
    details: str = ""
    """Missing amounts and position in the queue; appended to the message."""
    position: int = 0
    nodes: int = 0
    reasons: dict[str, int] = {}
    """Reason → number of nodes."""
    shortages: tuple[Short, ...] = ()
