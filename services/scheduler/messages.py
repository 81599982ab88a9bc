"""Turns plans into messages. Pure; `adapters.publish` sends them.

Intent ids are `<leader>-<cycle>-<index>`: unique over all leaders and cycles. A message that is
sent again keeps its id.

An intent is split by number of pods and by bytes (`COMMAND_BYTES`), so that it and its outcome fit
into one message each. Only an intent for a single pod can be larger; NATS refuses it.
"""

from collections.abc import Iterable, Iterator
from itertools import count, groupby
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from pumice.events.types import GangAdmitted
from pumice.plugins import Condition
from services.scheduler.desired import DesiredStatus
from services.scheduler.engine.jobs.records import Job, LastSeen, Stamp
from services.scheduler.engine.plan import (
    DesiredPodCondition,
    DesiredPodGroupStatus,
    Eviction,
    GangBinds,
    GateLifted,
    Plan,
    QueueAllocated,
)
from services.scheduler.engine.state.cluster_state import ClusterState
from shared.api import kinds
from shared.contracts import messages as m
from shared.contracts.streams import COMMAND_BYTES
from shared.jobs.expected_durations import of_gang, template_of
from shared.jobs.native_groups import desired_conditions
from shared.model.status import TaskStatus

ADMISSION_DEFERRAL_S: Final = 1
"""Seconds for a gang's pods to be created and placed; its PodGroup shows `Pending` until then.

The binder does not defer such a short time any further.
"""
PLACEMENT_DEFERRAL_S: Final = 6
"""Seconds for its pods to run, and for counts, which wait for up to five seconds under load."""
RUNNING_DEFERRAL_S: Final = 2
"""Seconds for more pods to start or end; pods of short jobs end soon after they start."""
END_DEFERRAL_S: Final = 10
END_TTL_S: Final = 6
"""Seconds for the controller to delete the PodGroup of a Job that has ended.

The status replaces older ones on the stream and expires before it is written. It is published again
if the PodGroup still exists later (`Reminders`).
"""
_NOT_ADMITTED: Final = ("", "Pending")
_INQUEUE: Final = "Inqueue"
_RUNNING: Final = "Running"
_STARTING: Final = (TaskStatus.ALLOCATED, TaskStatus.BINDING, TaskStatus.BOUND)
_Item = TypeVar("_Item", m.Bind, m.Victim)
_encoder = msgspec.json.Encoder()


def commands(
    plan: Plan,
    *,
    token: int,
    gang_message: int,
    role: str = "",
) -> list[m.Command]:
    """Return the intents of a plan in order: binds gang by gang, then evictions.

    Args:
        plan: What the cycle decided.
        token: The leader's fencing token; part of each id.
        gang_message: Most pods per message. Larger gangs are split, and so are the evictions for
            one preemptor; each part names the preemptor.
        role: Role of the scheduler; leaders of different roles may have equal tokens.
    """
    leader = f"{role}-{token}" if role else str(token)
    ids = (f"{leader}-{plan.cycle}-{index}" for index in count())
    result: list[m.Command] = [
        m.BindGang(
            id=next(ids),
            cycle=plan.cycle,
            job=gang.job,
            job_uid=gang.job_uid,
            queue=gang.queue,
            binds=binds,
            needed=_needed(gang, len(binds)),
        )
        for gang in plan.binds
        for binds in _pieces(gang.binds, gang_message)
    ]
    nominated = {n.uid: n for n in plan.nominations}
    for (reason, uid), victims in groupby(plan.evictions, key=_cause):
        result += [
            m.Evict(
                id=next(ids),
                cycle=plan.cycle,
                reason=reason,
                preemptor=nominated.get(uid),
                victims=piece,
            )
            for piece in _pieces(map(_victim, victims), gang_message)
        ]
    return result


def _needed(gang: GangBinds, count: int) -> int | msgspec.UnsetType:
    """Return how many pods of a piece are needed; pieces do not wait for each other."""
    spare = len(gang.binds) - gang.needed
    return max(0, count - spare) if gang.needed else msgspec.UNSET


def _victim(eviction: Eviction) -> m.Victim:
    return m.Victim(**{name: getattr(eviction, name) for name in m.Victim.__struct_fields__})


def _pieces(items: Iterable[_Item], most: int) -> Iterator[tuple[_Item, ...]]:
    """Yield items in their order, at most `most` and, as JSON, `COMMAND_BYTES` at once.

    An item that is larger by itself is a piece of its own.
    """
    piece: list[_Item] = []
    used = 0
    for item in items:
        size = len(_encoder.encode(item)) + 1
        if piece and (len(piece) == most or used + size > COMMAND_BYTES):
            yield tuple(piece)
            piece, used = [], 0
        piece.append(item)
        used += size
    if piece:
        yield tuple(piece)


def _cause(eviction: Eviction) -> tuple[str, str]:
    return eviction.reason, eviction.preemptor_uid


def key_of(command: m.Command) -> str:
    """Return the key whose hash is the partition of a command: its job, or its first victim."""
    return command.job if isinstance(command, m.BindGang) else command.victims[0].pod


def desires(plan: Plan, cluster_state: ClusterState) -> list[DesiredStatus]:
    """Return the desired status of every object whose status should change.

    Each carries the version of the object that the scheduler has seen, and what of its status
    stays, so that the binder can write without reading.
    """
    cycle = plan.cycle
    result = [_of_podgroup(group, cluster_state, cycle) for group in plan.podgroups]
    of_pods: list[m.Desired] = [_of_pod(pod, cluster_state, cycle) for pod in plan.pods]
    of_pods += [_of_gate(lifted, cluster_state, cycle) for lifted in plan.lifted]
    of_queues = [_of_queue(queue, cluster_state, cycle) for queue in plan.queues]
    result += [DesiredStatus(kind=kinds.POD.token, message=each) for each in of_pods]
    result += [DesiredStatus(kind=kinds.QUEUE.token, message=each) for each in of_queues]
    return result


def admissions(plan: Plan, cluster_state: ClusterState) -> list[GangAdmitted]:
    """Return the events on gangs that a plan lets into their queues.

    Each says what the gang needs, too: forecasts imagine jobs to come by those that came, and
    read them from the events after a restart.
    """
    return [
        _admission(group, cluster_state)
        for group in plan.podgroups
        if group.phase == _INQUEUE and group.was != _INQUEUE
    ]


def _admission(group: DesiredPodGroupStatus, cluster_state: ClusterState) -> GangAdmitted:
    event = GangAdmitted(gang=group.key, uid=group.uid, queue=group.queue, job=group.owner_job)
    job = cluster_state.jobs.get(group.key)
    if job is None or job.uid != group.uid:
        return event
    minimum, dimensions = job.min_resources, cluster_state.dimensions
    return replace(
        event,
        resource_version=job.last_seen.rv,
        created=job.created,
        min_member=job.min_available,
        min_resources={} if minimum is None else dimensions.listed(minimum),
        priority_class=job.priority_class,
        priority=job.priority,
        owner_kind=job.controller.kind if job.controller else "",
        template=template_of(job.owner_job or job.key, job.annotations),
        seconds_stated=stated.seconds
        if (stated := of_gang(job.annotations, limit_s=job.limit_s))
        else 0.0,
    )


def _of_podgroup(
    group: DesiredPodGroupStatus, cluster_state: ClusterState, cycle: int
) -> DesiredStatus:
    kind, result = _of_group(group, cluster_state, cycle)
    if group.owner_job and group.phase == "Completed":
        return DesiredStatus(kind=kind, message=result, ttl_s=END_TTL_S, deferral_s=END_DEFERRAL_S)
    return DesiredStatus(kind=kind, message=result, deferral_s=_deferral_s(group, cluster_state))


def _deferral_s(group: DesiredPodGroupStatus, cluster_state: ClusterState) -> int:
    """Return how long a status may wait to be one write with the next one (ADR 35).

    Only the status of a Job's or a single pod's PodGroup may wait: the pods of a Job are made on
    the event of the admission, and a single pod is there. Other controllers read the phase of their
    PodGroups from the API server. A condition that says why a gang waits is withdrawn at once.
    """
    job = cluster_state.jobs.get(group.key)
    if job is None or not (group.owner_job or _is_of_pod(job)):
        return 0
    if (
        group.phase == group.was == _RUNNING
        and set(group.conditions) == job.last_seen.stamps.keys()
    ):
        return RUNNING_DEFERRAL_S
    if job.last_seen.stamps:
        return 0
    if group.phase == _INQUEUE and group.was in _NOT_ADMITTED:
        return ADMISSION_DEFERRAL_S
    if job.last_seen.status.phase in _NOT_ADMITTED:  # its admission has not been written yet
        return 0 if group.owner_job else ADMISSION_DEFERRAL_S
    if group.phase != _RUNNING or group.was == "Unknown":
        return 0
    starting = any(job.by_status[status] for status in _STARTING)
    return PLACEMENT_DEFERRAL_S if starting else RUNNING_DEFERRAL_S


def _is_of_pod(job: Job) -> bool:
    return job.controller is not None and job.controller.kind == kinds.POD.kind


def _of_group(
    group: DesiredPodGroupStatus, cluster_state: ClusterState, cycle: int
) -> tuple[str, m.DesiredPodGroup | m.DesiredNativePodGroup]:
    """Return the kind of a group, and its desired status in the form of that kind."""
    job = cluster_state.jobs.get(group.key)
    if job is None or job.uid != group.uid:
        job = None
    last_seen = job.last_seen if job is not None else LastSeen()
    conditions = [_stamped(c, last_seen.stamps.get(c)) for c in group.conditions]
    if job is not None and job.native is not None:
        found = desired_conditions(group.phase, conditions, job.native.conditions)
        return kinds.NATIVEPODGROUP.token, m.DesiredNativePodGroup(
            key=group.key, uid=group.uid, conditions=found, cycle=cycle, rv=last_seen.rv
        )
    return kinds.PODGROUP.token, m.DesiredPodGroup(
        key=group.key,
        uid=group.uid,
        phase=group.phase,
        running=group.running,
        succeeded=group.succeeded,
        failed=group.failed,
        conditions=tuple(conditions),
        cycle=cycle,
        rv=last_seen.rv,
    )


def _of_pod(pod: DesiredPodCondition, cluster_state: ClusterState, cycle: int) -> m.DesiredPod:
    task = cluster_state.task(pod.uid)
    same = task is not None and task.shown and task.shown.status == pod.condition.status
    stamp = Stamp("", task.shown_since) if task is not None and same else None
    return m.DesiredPod(
        key=pod.key,
        uid=pod.uid,
        conditions=(_stamped(pod.condition, stamp),),
        cycle=cycle,
        rv=task.rv if task is not None else "",
    )


def _of_gate(lifted: GateLifted, cluster_state: ClusterState, cycle: int) -> m.DesiredUngated:
    task = cluster_state.task(lifted.uid)
    rv = task.rv if task is not None else ""
    return m.DesiredUngated(key=lifted.key, uid=lifted.uid, cycle=cycle, rv=rv)


def _of_queue(queue: QueueAllocated, cluster_state: ClusterState, cycle: int) -> m.DesiredQueue:
    known = cluster_state.jobs.queues.get(queue.name)
    last_seen = known is not None and known.uid == queue.uid
    shown = known.shown_allocated if known is not None and last_seen else {}
    return m.DesiredQueue(
        key=queue.name,
        uid=queue.uid,
        allocated=dict(queue.allocated),
        pending=queue.pending,
        cycle=cycle,
        rv=known.rv if known is not None and last_seen else "",
        released=tuple(sorted(shown.keys() - queue.allocated.keys())),
    )


def _stamped(condition: Condition, stamp: Stamp | None) -> m.DesiredCondition:
    transition_id, time = stamp or ("", "")
    return m.DesiredCondition(
        **condition._asdict(), transition_id=transition_id, last_transition_time=time
    )
