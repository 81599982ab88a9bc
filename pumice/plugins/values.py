"""Values of the plugin interface: the answers of plugins, and the types of arrays.

Amounts are integers: `cpu` in thousandths, `memory`, `ephemeral-storage` and huge pages in bytes,
`pods` as a number, all other resources in thousandths. They are never negative and at most 2⁶⁰, so
that a few of them can be added; what a node has is at most 2⁵⁰. An *amounts array* has one entry
per resource in the order of `Cluster.resources`.
"""

import enum
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
CodeArray = NDArray[np.uint8]
Arguments = Mapping[str, Any]
"""A plugin's `arguments` from the configuration file, as written there."""
NODE_MAX: Final = 1 << 50
"""Most that a node has of one resource, in the unit of its dimension: 1 PiB of bytes."""
POD_MAX: Final = NODE_MAX + 1
"""The request of a pod that asks for more than any node can have."""


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
    """Resources that there is too little of: name, amount requested, amount left."""
    budget: str = ""
    """The budget of which the amounts are left, as a person reads it; "" where they are free."""


PERMIT = Opinion(Vote.PERMIT)
ABSTAIN = Opinion(Vote.ABSTAIN)


class StartBlock(NamedTuple):
    """Why a job may not start now although there may be room for it, as a person reads it."""

    gate: str
    """The gate that it waits at, one word as in docs/observing.md."""
    message: str
    elsewhere: BoolArray | None = None
    """Nodes on which it might still start, where it is tried again; None: on none."""


class Condition(NamedTuple):
    """A condition of an object; its writer adds times and ids (D01, D02)."""

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


class NodeGroups(NamedTuple):
    """Groups of nodes that a queue names (`spec.affinity`); of preferred ones the order counts."""

    required: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    rather_not: tuple[str, ...] = ()


class ClaimUse(Struct, frozen=True, kw_only=True):
    """A claim of a pod that has no volume yet: which one it is to get (CA11)."""

    claim: str
    uid: str
    volume: str = ""
    """Name of the volume; empty: one is to be made for the pod's node."""
    volume_uid: str = ""


class DeviceUse(Struct, frozen=True, kw_only=True):
    """A claim for devices of a pod that is placed: the devices that it has, or is to get."""

    claim: str
    uid: str
    allocation: bytes
    """The claim's `status.allocation` as JSON."""
    allocated: bool
    """Whether its status has it already."""
    to_prepare: bool = False
    """Whether the bind waits until its driver has prepared the devices."""
    requests: tuple[tuple[str, str, int], ...] = ()
    """(name, device class, devices) of a claim that is made for the pod's extended resources."""
    mappings: tuple[tuple[str, str, str], ...] = ()
    """(container, resource, request): which request of that claim serves a container."""


Amounts = IntArray | FloatArray
"""One entry per resource."""


class QueueFigures(Struct, frozen=True, kw_only=True):
    """The figures of one queue at the end of a cycle, for metrics and its status."""

    name: str
    allocated: Amounts
    request: Amounts
    inqueue: Amounts
    deserved: Amounts
    share: float
    """The largest allocated/deserved."""
    overused: bool
    weight: int | None = None
    """None if the plugin does not share by weights."""
    capacity: Amounts | None = None
    """The queue's `capability`, infinite for resources that it does not name; None without one."""
    real_capacity: Amounts | None = None
    """The most that the queue can have; None if the plugin does not compute it."""


class EvictionKind(enum.IntEnum):
    """The action that asks `evictable`: it evicts for whole gangs, in a queue or across queues.

    The action defrag asks which pods may move to other nodes; all plugins have to agree.
    """

    GANG_PREEMPT = 1
    GANG_RECLAIM = 2
    DEFRAGMENT = 3


class CrossNodeVerdict(NamedTuple):
    """Which nodes take a task of some class, where one node's answer depends on other nodes."""

    codes: Callable[[], CodeArray]
    """Gives each node of the cluster 0 (fits) or n, the n-th reason; asked after placements."""
    steady: bool = False
    """Whether tasks of the class itself, being placed, leave the answer as it is."""
    one_by_one: bool = False
    """Whether the result depends on calls of `Hooks.moved`, so that it cannot be foreseen."""
    reasons: Callable[[], tuple[Reason, ...]] | None = None
    """Reasons in the words of this class, in the place of those that the predicate came with.

    Of plugins that come with Pumice, as the next field; others have them checked beforehand.
    """
    later: Callable[[], CodeArray] | None = None
    """Gives the codes for tasks that wait for pods to terminate, where they are others."""


CrossNodeScore = Callable[[BoolArray], FloatArray]
"""Scores each node 0…100, given which ones are candidates."""
