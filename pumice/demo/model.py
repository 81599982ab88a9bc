"""Folds watch events into a `Scene`, and returns the moments (changes) of each event.

Called by `pumice.demo.story` for each event; read by the view. Pure: `at_s` is the time at which
an event was received, in seconds since the demo began, because times of objects are in whole
seconds only.

The watches of the four kinds are independent, so a pod may come before its job: a `GangRow` begins
with whatever comes first.
"""

import enum
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from shared.api import keys
from shared.api.batch import ENDED, Job, JobPhase
from shared.api.core import Node, Pod, PodPhase
from shared.api.meta import ObjectMeta
from shared.api.scheduling import PodGroup, PodGroupConditionType, PodGroupPhase
from shared.model.requests import pod_request
from shared.model.resources import parse_list

Seen = Job | PodGroup | Pod | Node


class WatchOp(enum.StrEnum):
    """The kind of a watch event: the object exists, or it is gone."""

    SEEN = "seen"
    GONE = "gone"


class WatchChange(Struct, frozen=True, kw_only=True):
    """One watch event: an object as it is now, or as it was when it went."""

    op: WatchOp
    obj: Seen


class Stage(enum.StrEnum):
    """The stages of a pod's life, in their order."""

    WAITING = "waiting"
    BOUND = "bound"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REMOVED = "removed"
    """Deleted before it ended by itself, as a completed job does with the rest of its pods."""


ON_NODE: Final = (Stage.BOUND, Stage.RUNNING)
"""Stages in which a pod holds resources of its node."""
OVER: Final = (Stage.SUCCEEDED, Stage.FAILED, Stage.REMOVED)
_NOT_ADMITTED: Final = (None, PodGroupPhase.PENDING)
"""Phases of a group in which its queue keeps it out; absent counts as Pending (J23)."""
PATIENCE_S: Final = 0.6
"""Seconds for which a reason must hold before it is shown."""


class MomentKind(enum.StrEnum):
    """The kinds of moments."""

    NODE_READY = "node ready"
    NODE_LOST = "node lost"
    JOB_CREATED = "job created"
    JOB_PHASE = "job phase"
    GANG_ADMITTED = "gang admitted"
    GANG_WAITS = "gang waits"
    POD_CREATED = "pod created"
    POD_BOUND = "pod bound"
    POD_RUNNING = "pod running"
    POD_SUCCEEDED = "pod succeeded"
    POD_FAILED = "pod failed"
    POD_REMOVED = "pod removed"


_OF_STAGE: Final = {
    Stage.RUNNING: MomentKind.POD_RUNNING,
    Stage.SUCCEEDED: MomentKind.POD_SUCCEEDED,
    Stage.FAILED: MomentKind.POD_FAILED,
    Stage.REMOVED: MomentKind.POD_REMOVED,
}


class Moment(Struct, frozen=True, kw_only=True):
    """Something that has just become true."""

    kind: MomentKind
    at_s: float
    gang: str = ""
    """Key of the gang, "" for nodes."""
    subject: str = ""
    """Name of the pod or node."""
    detail: str = ""
    """The node of a binding, the new phase of a job, the reason of a wait."""


class GangPod(Struct, frozen=True, kw_only=True):
    """One pod of a gang."""

    name: str
    uid: str
    node: str
    stage: Stage
    cpu_milli: int
    memory_bytes: int
    bound_s: float | None = None
    """When the first event with a node was received."""


class Milestones(Struct, frozen=True, kw_only=True):
    """When a gang got how far; None: not yet, or never."""

    created_s: float | None = None
    admitted_s: float | None = None
    first_bound_s: float | None = None
    last_bound_s: float | None = None
    running_s: float | None = None
    ended_s: float | None = None


class GangRow(Struct, frozen=True, kw_only=True):
    """A job with its PodGroup and its pods: one row of the view."""

    key: str
    """`namespace/name` of the job."""
    phase: JobPhase | None = None
    queue: str = ""
    minimum: int = 0
    """`minAvailable`: pods that are placed together or not at all."""
    replicas: int = 0
    group_phase: PodGroupPhase | None = None
    why: str = ""
    """The last reason why the group waits, "" when it does not wait."""
    why_since_s: float = 0.0
    why_settled: str = ""
    """The last reason that was stable for `PATIENCE_S`; this one is shown."""
    members: Mapping[str, GangPod] = {}
    """By pod name."""
    milestones: Milestones = Milestones()

    @property
    def name(self) -> str:
        """Name of the job, without its namespace."""
        return self.key.rpartition("/")[2]

    def count(self, *stages: Stage) -> int:
        """Return how many pods are in one of `stages`."""
        return sum(member.stage in stages for member in self.members.values())

    @property
    def placed(self) -> int:
        """Pods that have, or had, a node."""
        return sum(bool(member.node) for member in self.members.values())

    @property
    def is_waiting(self) -> bool:
        """Return whether fewer pods than its minimum are placed."""
        return self.phase not in ENDED and self.placed < self.minimum

    @property
    def waits_for(self) -> str:
        """Why its minimum has no place yet, "" when it has one or the reason is not known."""
        return self.why_settled if self.is_waiting else ""


class Machine(Struct, frozen=True, kw_only=True):
    """A node, as far as the view shows it."""

    name: str
    ready: bool
    cpu_milli: int
    memory_bytes: int


class Load(Struct, frozen=True, kw_only=True):
    """The resources that the pods on one node hold."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    pods: int = 0
    cpu_milli_by_gang: Mapping[str, int] = {}


class Scene:
    """The state after all events so far: gangs by key of the job, nodes by name."""

    def __init__(self) -> None:
        self.gangs: dict[str, GangRow] = {}
        self.nodes: dict[str, Machine] = {}

    def fold(self, change: WatchChange, at_s: float) -> list[Moment]:
        """Take in one event and return its moments, oldest first."""
        gone = change.op is WatchOp.GONE
        match change.obj:
            case Job() as job:
                return [] if gone else list(self._job(job, at_s))
            case PodGroup() as group:
                return list(self._group(group, at_s, gone=gone))
            case Pod() as pod:
                return list(self._pod(pod, at_s, gone=gone))
            case Node() as node:
                return list(self._node(node, at_s, gone=gone))

    def settle(self, at_s: float) -> list[Moment]:
        """Return the waits whose reason was stable for `PATIENCE_S`; to be called regularly.

        While the pods of a gang are made and bound one by one, scheduling may find for a moment
        that some are missing, which no user needs to know.
        """
        moments = []
        for gang in self.in_order():
            if not gang.is_waiting or gang.why == gang.why_settled:
                continue
            if gang.why and at_s - gang.why_since_s < PATIENCE_S:
                continue
            self.gangs[gang.key] = replace(gang, why_settled=gang.why)
            if gang.why:
                moments.append(
                    Moment(kind=MomentKind.GANG_WAITS, at_s=at_s, gang=gang.key, detail=gang.why)
                )
        return moments

    def in_order(self) -> list[GangRow]:
        """Return the gangs by age, then key."""
        return sorted(
            self.gangs.values(),
            key=lambda gang: (gang.milestones.created_s or 0.0, gang.key),
        )

    def unfinished(self, names: Iterable[str]) -> list[str]:
        """Return those of the jobs `names` (keys) that have not ended."""
        return [
            name for name in names if self.gangs.get(name, GangRow(key=name)).phase not in ENDED
        ]

    def load(self, node: str) -> Load:
        """Return the resources that the pods on `node` hold, derived from the pods alone."""
        members = [
            (gang.key, member)
            for gang in self.in_order()
            for member in gang.members.values()
            if member.node == node and member.stage in ON_NODE
        ]
        by_gang: dict[str, int] = {}
        for key, member in members:
            by_gang[key] = by_gang.get(key, 0) + member.cpu_milli
        return Load(
            cpu_milli=sum(by_gang.values()),
            memory_bytes=sum(member.memory_bytes for _, member in members),
            pods=len(members),
            cpu_milli_by_gang=by_gang,
        )

    def _job(self, job: Job, at_s: float) -> Iterator[Moment]:
        key = job.metadata.key
        gang = self.gangs.get(key, GangRow(key=key))
        phase = job.status.state.phase
        milestones = gang.milestones
        if milestones.created_s is None:
            milestones = replace(milestones, created_s=at_s)
            yield Moment(kind=MomentKind.JOB_CREATED, at_s=at_s, gang=key)
        if phase is not gang.phase and phase is not None:
            yield Moment(kind=MomentKind.JOB_PHASE, at_s=at_s, gang=key, detail=phase.value)
            if phase is JobPhase.RUNNING and milestones.running_s is None:
                milestones = replace(milestones, running_s=at_s)
            milestones = replace(milestones, ended_s=at_s if phase in ENDED else None)
        self.gangs[key] = replace(
            gang,
            phase=phase,
            queue=job.spec.queue,
            minimum=job.spec.min_available,
            replicas=sum(task.replicas for task in job.spec.tasks),
            milestones=milestones,
        )

    def _group(self, group: PodGroup, at_s: float, *, gone: bool) -> Iterator[Moment]:
        owner = group.metadata.controller
        if owner is None or owner.kind != "Job":
            return
        key = f"{group.metadata.namespace}/{owner.name}"
        gang = self.gangs.get(key, GangRow(key=key))
        if gone:  # it goes with its job's pods (J21), or a new one follows
            self.gangs[key] = replace(gang, group_phase=None, why="", why_settled="")
            return
        phase = group.status.phase
        milestones = gang.milestones
        if milestones.admitted_s is None and phase not in _NOT_ADMITTED:
            milestones = replace(milestones, admitted_s=at_s)
            yield Moment(
                kind=MomentKind.GANG_ADMITTED, at_s=at_s, gang=key, detail=group.spec.queue
            )
        why = _why(group)
        self.gangs[key] = replace(
            gang,
            group_phase=phase,
            why=why,
            why_since_s=at_s if why != gang.why else gang.why_since_s,
            milestones=milestones,
        )

    def _pod(self, pod: Pod, at_s: float, *, gone: bool) -> Iterator[Moment]:
        job = _mark(pod.metadata, keys.JOB_NAME)
        if not job:
            return
        key, name = f"{pod.metadata.namespace}/{job}", pod.metadata.name
        gang = self.gangs.get(key, GangRow(key=key))
        before = gang.members.get(name)
        if before is not None and before.uid != pod.metadata.uid:
            if gone:  # the event of its successor came first
                return
            before = None
        after = replace(_member(pod), bound_s=before.bound_s if before else None)
        if gone and after.stage not in OVER:
            after = replace(after, stage=Stage.REMOVED)
        milestones = gang.milestones
        if milestones.admitted_s is None and gang.queue:
            # Pods of a job are made once its gang is admitted (J23); the PodGroup shows it later.
            milestones = replace(milestones, admitted_s=at_s)
            yield Moment(kind=MomentKind.GANG_ADMITTED, at_s=at_s, gang=key, detail=gang.queue)
        if before is None and not gone:
            yield Moment(kind=MomentKind.POD_CREATED, at_s=at_s, gang=key, subject=name)
        if after.node and (before is None or not before.node):
            first = at_s if milestones.first_bound_s is None else milestones.first_bound_s
            milestones = replace(milestones, first_bound_s=first, last_bound_s=at_s)
            after = replace(after, bound_s=at_s)
            yield Moment(
                kind=MomentKind.POD_BOUND, at_s=at_s, gang=key, subject=name, detail=after.node
            )
        if after.stage in _OF_STAGE and (before is None or before.stage is not after.stage):
            yield Moment(kind=_OF_STAGE[after.stage], at_s=at_s, gang=key, subject=name)
        members = {**gang.members, name: after}
        self.gangs[key] = replace(gang, members=members, milestones=milestones)

    def _node(self, node: Node, at_s: float, *, gone: bool) -> Iterator[Moment]:
        name = node.metadata.name
        before = self.nodes.get(name)
        was_ready = before is not None and before.ready
        if gone:
            self.nodes.pop(name, None)
            ready = False
        else:
            ready = any(c.type == "Ready" and c.status == "True" for c in node.status.conditions)
            allocatable = parse_list(node.status.allocatable)
            self.nodes[name] = Machine(
                name=name,
                ready=ready,
                cpu_milli=int(allocatable.cpu_milli),
                memory_bytes=int(allocatable.memory_bytes),
            )
        if ready != was_ready:
            kind = MomentKind.NODE_READY if ready else MomentKind.NODE_LOST
            yield Moment(kind=kind, at_s=at_s, subject=name)


def _member(pod: Pod) -> GangPod:
    request = pod_request(pod)
    return GangPod(
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        node=pod.spec.node_name,
        stage=_stage(pod),
        cpu_milli=int(request.cpu_milli),
        memory_bytes=int(request.memory_bytes),
    )


def _stage(pod: Pod) -> Stage:
    match pod.status.phase:
        case PodPhase.SUCCEEDED:
            return Stage.SUCCEEDED
        case PodPhase.FAILED:
            return Stage.FAILED
        case PodPhase.RUNNING:
            return Stage.RUNNING
        case _:
            return Stage.BOUND if pod.spec.node_name else Stage.WAITING


def _mark(metadata: ObjectMeta, key: str) -> str:
    """Return the job that a pod names: the controller writes label and annotation (J31)."""
    return metadata.annotations.get(key, "") or metadata.labels.get(key, "")


def _why(group: PodGroup) -> str:
    """Return the message of the Unschedulable condition, unless Scheduled is the later one.

    A group without conditions has at least a phase.
    """
    latest = ""
    newest = ""
    for condition in group.status.conditions:
        if condition.status != "True":
            continue
        time = condition.last_transition_time or ""
        if time < newest:
            continue
        newest = time
        is_no = condition.type == PodGroupConditionType.UNSCHEDULABLE
        latest = (condition.message or condition.reason) if is_no else ""
    if not latest and group.status.phase in _NOT_ADMITTED:
        return f"not admitted by queue {group.spec.queue} yet"
    return latest
