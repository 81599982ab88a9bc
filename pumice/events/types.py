"""The types of events, named in the past tense.

This is the catalogue: JSON Schemas, the AsyncAPI document and the command line are made from these
classes. A field may be added with a default; nothing else about a published type changes.
"""

from typing import Annotated, ClassVar, Final

import msgspec
from msgspec import Meta
from typing_extensions import override

Key = Annotated[str, Meta(description="namespace/name; only the name if it is cluster-scoped")]
Uid = Annotated[str, Meta(description="metadata.uid")]
OwnerJob = Annotated[str, Meta(description="key of the Job behind it; empty if there is none")]
QueueName = Annotated[str, Meta(description="name of the queue")]


class Event(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A fact about one object."""

    topic: ClassVar[str]
    """Two tokens of the NATS subject, and the end of the CloudEvent type."""

    @property
    def key(self) -> str:
        """Return the key of the object."""
        raise NotImplementedError

    @property
    def about_job(self) -> str:
        """Return the key of the Job that the event concerns, or ""."""
        return ""


class JobPhaseChanged(Event, frozen=True, kw_only=True, rename="camel"):
    """A Job has entered another phase."""

    topic: ClassVar[str] = "job.phase"

    job: Key
    uid: Uid
    phase: Annotated[str, Meta(description="the phase that it is in now, for example Running")]
    previous: Annotated[str, Meta(description="the phase before; empty for a new Job")] = ""
    queue: QueueName = ""
    reason: Annotated[str, Meta(description="why, in one word")] = ""
    message: Annotated[str, Meta(description="why, for a person")] = ""
    version: Annotated[int, Meta(description="status.version: grows with each restart")] = 0
    retry_count: Annotated[int, Meta(description="restarts that counted as retries")] = 0
    template: Annotated[
        str, Meta(description="name that jobs made alike share: a JobTemplate, or namespace/stem")
    ] = ""
    min_resources: Annotated[
        dict[str, str], Meta(description="minResources of its PodGroup; empty while it has none")
    ] = {}
    seconds_running: Annotated[
        float, Meta(description="seconds in the phase Running, when it has just left it; else 0")
    ] = 0.0
    seconds_stated: Annotated[
        float, Meta(description="seconds that it had stated for that run; 0 if none")
    ] = 0.0
    stated_by: Annotated[
        str, Meta(description="where secondsStated comes from: annotation or deadline")
    ] = ""

    @property
    @override
    def key(self) -> str:
        """Return the Job's key."""
        return self.job

    @property
    @override
    def about_job(self) -> str:
        """Return the Job's key."""
        return self.job


class _AboutGang(Event, frozen=True, kw_only=True, rename="camel"):
    gang: Annotated[str, Meta(description="key of the PodGroup")]
    uid: Uid = ""
    queue: QueueName = ""
    job: OwnerJob = ""

    @property
    @override
    def key(self) -> str:
        """Return the PodGroup's key."""
        return self.gang

    @property
    @override
    def about_job(self) -> str:
        """Return the Job's key, or ""."""
        return self.job


class GangAdmitted(_AboutGang, frozen=True, kw_only=True, rename="camel"):
    """A gang was admitted to its queue: its pods may be created and placed."""

    topic: ClassVar[str] = "gang.admitted"

    resource_version: Annotated[
        str, Meta(description="version of the PodGroup that was decided on; its status follows")
    ] = ""
    created: Annotated[str, Meta(description="creationTimestamp of the PodGroup")] = ""
    min_member: Annotated[int, Meta(description="pods without which it does not start")] = 0
    min_resources: Annotated[
        dict[str, str], Meta(description="what these pods need; empty if the PodGroup states none")
    ] = {}
    priority_class: Annotated[str, Meta(description="name of its PriorityClass")] = ""
    priority: Annotated[int, Meta(description="value of its PriorityClass")] = 0
    owner_kind: Annotated[
        str, Meta(description="kind of the object that made it; empty if none did")
    ] = ""
    template: Annotated[
        str, Meta(description="name that jobs made alike share, as in job.phase")
    ] = ""
    seconds_stated: Annotated[
        float, Meta(description="seconds that its annotation says it will run; 0 if none")
    ] = 0.0


class GangPlaced(_AboutGang, frozen=True, kw_only=True, rename="camel"):
    """A gang, or more of its pods, was given nodes; the bindings follow."""

    topic: ClassVar[str] = "gang.placed"

    pods: Annotated[int, Meta(description="how many pods were placed together")] = 0
    nodes: Annotated[tuple[str, ...], Meta(description="their nodes, sorted")] = ()


class GangUnschedulable(_AboutGang, frozen=True, kw_only=True, rename="camel"):
    """A gang has waited for a while for what only the cluster can give; once per cause."""

    topic: ClassVar[str] = "gang.unschedulable"

    gate: Annotated[str, Meta(description="the first gate that stops it, for example quota")] = ""
    message: Annotated[str, Meta(description="why, for a person")] = ""
    reasons: Annotated[dict[str, int], Meta(description="number of nodes per reason")] = {}
    position: Annotated[int, Meta(description="place in its queue's order; 0: not its turn")] = 0


class _AboutPod(Event, frozen=True, kw_only=True, rename="camel"):
    pod: Key
    uid: Uid
    node: Annotated[str, Meta(description="the pod's node")] = ""
    gang: Annotated[str, Meta(description="key of the pod's PodGroup")] = ""
    queue: QueueName = ""
    job: OwnerJob = ""

    @property
    @override
    def key(self) -> str:
        """Return the pod's key."""
        return self.pod

    @property
    @override
    def about_job(self) -> str:
        """Return the Job's key, or ""."""
        return self.job


class PodBound(_AboutPod, frozen=True, kw_only=True, rename="camel"):
    """A pod was bound to its node at the API server."""

    topic: ClassVar[str] = "pod.bound"


class PodEvicted(_AboutPod, frozen=True, kw_only=True, rename="camel"):
    """A pod was evicted for the sake of another."""

    topic: ClassVar[str] = "pod.evicted"

    by: Annotated[str, Meta(description="the action that wanted it, for example preempt")] = ""
    preemptor: Annotated[
        str, Meta(description="key of the pod that it made room for, if of the same namespace")
    ] = ""
    preemptor_queue: Annotated[str, Meta(description="queue of that pod, of any namespace")] = ""
    preemptor_priority: Annotated[int, Meta(description="priority of that pod's job")] = 0
    reason: Annotated[str, Meta(description="why, for a person")] = ""


class QueueStateChanged(Event, frozen=True, kw_only=True, rename="camel"):
    """A queue was opened or closed."""

    topic: ClassVar[str] = "queue.state"

    queue: QueueName
    uid: Uid = ""
    state: Annotated[str, Meta(description="Open, Closed, Closing or Unknown")]
    previous: Annotated[str, Meta(description="the state before; empty for a new queue")] = ""

    @property
    @override
    def key(self) -> str:
        """Return the queue's name."""
        return self.queue


class BudgetReached(Event, frozen=True, kw_only=True, rename="camel"):
    """Four fifths, or all, of a budget are used; once per period."""

    topic: ClassVar[str] = "budget.reached"

    queue: QueueName
    budget: Annotated[str, Meta(description="name of the budget")]
    user: Annotated[str, Meta(description="the user that it holds for by itself, if any")] = ""
    namespace: Annotated[
        str, Meta(description="the namespace that it holds for by itself, if any")
    ] = ""
    resource: Annotated[str, Meta(description="for example nvidia.com/gpu")] = ""
    percent: Annotated[int, Meta(description="80: it warns; 100: it is used up")] = 0
    used_hours: Annotated[float, Meta(description="amount times hours that are used")] = 0.0
    amount_hours: Annotated[float, Meta(description="amount times hours of the budget")] = 0.0
    begin: Annotated[str, Meta(description="begin of the period")] = ""
    end: Annotated[str, Meta(description="end of the period")] = ""
    used_up: Annotated[
        str, Meta(description="when it is used up at the present rate; empty: not in the period")
    ] = ""
    message: Annotated[str, Meta(description="all of this, for a person")] = ""

    @property
    @override
    def key(self) -> str:
        """Return the queue's name."""
        return self.queue


class LeaderChanged(Event, frozen=True, kw_only=True, rename="camel"):
    """A service has another leader."""

    topic: ClassVar[str] = "leader.changed"

    service: Annotated[str, Meta(description="for example scheduler")]
    instance: Annotated[str, Meta(description="name of the process that leads now")]
    previous: Annotated[
        str, Meta(description="name of the process that led before; empty when not known")
    ] = ""
    term: Annotated[int, Meta(description="number of its term; grows")] = 0

    @property
    @override
    def key(self) -> str:
        """Return the service's name."""
        return self.service


class ConfigurationRefused(Event, frozen=True, kw_only=True, rename="camel"):
    """A changed configuration file cannot be used; the one before it stays in force."""

    topic: ClassVar[str] = "configuration.refused"

    service: Annotated[str, Meta(description="for example scheduler")]
    instance: Annotated[str, Meta(description="name of the process")] = ""
    file: Annotated[str, Meta(description="path of the file, as the process sees it")] = ""
    reason: Annotated[str, Meta(description="the place in the file, and what is wrong")] = ""

    @property
    @override
    def key(self) -> str:
        """Return the service's name."""
        return self.service


CATALOGUE: Final[tuple[type[Event], ...]] = (
    JobPhaseChanged,
    GangAdmitted,
    GangPlaced,
    GangUnschedulable,
    PodBound,
    PodEvicted,
    QueueStateChanged,
    BudgetReached,
    LeaderChanged,
    ConfigurationRefused,
)
"""All types of events, in the order of a job's life."""
