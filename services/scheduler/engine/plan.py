"""The plan: the changes that one cycle decides, as values. An adapter publishes it.

Binds and victims are also the message types. Desired statuses are not the messages `Desired…`: two
of them are equal if they mean the same, independent of the object's resourceVersion.

The texts of conditions are of bounded length, so that the status of an object fits into one message
(of NATS, 1 MiB by default). Most words come from elsewhere: names of resources and nodes, reasons
of plugins, conditions that another author wrote into an object. They are shortened where they enter
the cluster state or a plan, so that what is desired and what the object shows afterwards compare as
equal.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from pumice.plugins import Condition
from shared.contracts.messages import Bind, Preemptor, Victim

MESSAGE_LETTERS: Final = 2_000
"""Longest message of a condition or of an explanation."""
NAME_LETTERS: Final = 320
"""Longest type, status or reason; a key of two names of Kubernetes has at most 317 letters."""
_REST: Final = "..."


def shortened(text: str, most: int = MESSAGE_LETTERS) -> str:
    """Return a text of at most `most` letters; what was cut off is marked by three dots."""
    return text if len(text) <= most else text[: most - len(_REST)] + _REST


def bounded(condition: Condition) -> Condition:
    """Return a condition whose texts are of bounded length; the same one if they are already."""
    texts = (
        shortened(condition.type, NAME_LETTERS),
        shortened(condition.status, NAME_LETTERS),
        shortened(condition.reason, NAME_LETTERS),
        shortened(condition.message),
    )
    return condition if texts == tuple(condition) else Condition(*texts)


class GangBinds(Struct, frozen=True, kw_only=True):
    """Pods of one job that were placed together."""

    job: str
    """Key of the PodGroup."""
    job_uid: str
    queue: str
    owner_job: str = ""
    """Key of the Job that made the PodGroup; empty if none did."""
    binds: tuple[Bind, ...]
    needed: int = 0
    """Number of binds that must succeed while devices are prepared, 0 where none are."""


class Eviction(Victim, frozen=True, kw_only=True):
    """Eviction of one pod: reason, and the pod that it makes room for."""

    reason: str
    """The action that decided it."""
    preemptor: str = ""
    """Key of the pod that it makes room for."""
    preemptor_uid: str = ""


class DesiredPodGroupStatus(Struct, frozen=True, kw_only=True):
    """Desired phase, counts and conditions of a PodGroup; sent only when they change."""

    key: str
    uid: str
    queue: str = ""
    owner_job: str = ""
    """Key of the Job that made the PodGroup; empty if none did."""
    phase: str
    was: str = ""
    """The previous phase; empty for a new PodGroup."""
    running: int
    succeeded: int
    failed: int
    conditions: tuple[Condition, ...]


class DesiredPodCondition(Struct, frozen=True, kw_only=True):
    """Desired PodScheduled condition of a pod (D02)."""

    key: str
    uid: str
    condition: Condition


class GateLifted(Struct, frozen=True, kw_only=True):
    """A pod that its queue has admitted, so that its scheduling gate is removed (CA14)."""

    key: str
    uid: str


class QueueAllocated(Struct, frozen=True, kw_only=True):
    """Desired status of a queue: allocated amounts (SS03) and number of pending PodGroups."""

    name: str
    uid: str
    allocated: Mapping[str, str]
    pending: int = 0
    """PodGroups that have not been admitted."""


class Shortage(Struct, frozen=True, kw_only=True):
    """A shortage of one resource at a gate, for one more task or for a job's minimum."""

    resource: str
    requested: int
    """Bytes of memory, counts of pods, thousandths of anything else."""
    largest_free: int
    """The amount that is left: on the node with most, or in queue, cluster or quota."""

    @classmethod
    def of(cls, resource: str, requested: int, largest_free: int) -> "Shortage":
        """Return a shortage."""
        return cls(resource=resource, requested=requested, largest_free=largest_free)


class JobExplanation(Struct, frozen=True, kw_only=True):
    """Why a job is not, or not completely, placed: the first gate that stopped it."""

    job: str
    job_uid: str = ""
    queue: str
    owner_job: str = ""
    """Key of the Job that made the PodGroup; empty if none did."""
    gate: str
    """`queue`, `enqueue`, `quota`, `gang`, `predicate`, `topology`, `order`."""
    message: str
    details: str = ""
    """Missing amounts and place in line; goes behind the message and changes often."""
    position: int = 0
    """Position among the jobs of its queue in this cycle, from 1; 0 if it was not visited."""
    nodes: int = 0
    """Number of nodes that were checked."""
    reasons: Mapping[str, int] = {}
    """Reason → number of nodes."""
    shortages: tuple[Shortage, ...] = ()
    budget: str = ""
    """The budget of which `shortages` say what is left: `120 % of the cluster`; "" for room."""


class Plan(Struct, frozen=True, kw_only=True):
    """Everything that a cycle decided. Objects that are as they should be do not appear."""

    cycle: int
    binds: tuple[GangBinds, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    nominations: tuple[Preemptor, ...] = ()
    """Pipelined pods that wait for evictions on a node (SS11 ⚠: without evictions none is
    nominated).
    """
    podgroups: tuple[DesiredPodGroupStatus, ...] = ()
    pods: tuple[DesiredPodCondition, ...] = ()
    queues: tuple[QueueAllocated, ...] = ()
    lifted: tuple[GateLifted, ...] = ()
    explanations: tuple[JobExplanation, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing has to be published."""
        statuses = self.podgroups or self.pods or self.queues
        return not (self.binds or self.evictions or statuses or self.lifted)
