"""Plans to messages: what the shell publishes of a plan, without any I/O.

Intent ids are `<leader>-<cycle>-<index>`: unique over all leaders and cycles, and the same
again only when the same message is sent again.

An intent is split by the number of its pods and by bytes (`COMMAND_BYTES`), so that it and its
outcome fit into a message each. Only one that is about a single pod can be larger: the bus refuses
it, and nothing else.
"""

from collections.abc import Iterable, Iterator
from itertools import count, groupby
from typing import TypeVar

import msgspec

from pumice.plugins import Condition
from services.scheduler.engine.jobs.records import Seen, Stamp
from services.scheduler.engine.plan import (
    Eviction,
    GateLifted,
    Plan,
    PodConditionWanted,
    PodGroupStatusWanted,
    QueueAllocated,
)
from services.scheduler.engine.state.cluster_state import ClusterState
from shared.api import kinds
from shared.contracts import messages as m
from shared.contracts.streams import COMMAND_BYTES

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

    Leaders of another `role` may have the same token.

    One message has at most `gang_message` pods: a larger gang is split, and so are the evictions
    for one preemptor, which travel together otherwise. Each part names the preemptor.
    """
    leader = f"{role}-{token}" if role else str(token)
    ids = (f"{leader}-{plan.cycle}-{index}" for index in count())
    wanted: list[m.Command] = [
        m.BindGang(
            id=next(ids),
            cycle=plan.cycle,
            job=gang.job,
            job_uid=gang.job_uid,
            queue=gang.queue,
            binds=binds,
        )
        for gang in plan.binds
        for binds in _pieces(gang.binds, gang_message)
    ]
    nominated = {n.uid: n for n in plan.nominations}
    for (reason, uid), victims in groupby(plan.evictions, key=_cause):
        wanted += [
            m.Evict(
                id=next(ids),
                cycle=plan.cycle,
                reason=reason,
                preemptor=nominated.get(uid),
                victims=piece,
            )
            for piece in _pieces(map(_victim, victims), gang_message)
        ]
    return wanted


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
    """Return the key by which a command finds its partition: its job, or its first victim."""
    return command.job if isinstance(command, m.BindGang) else command.victims[0].pod


def desires(plan: Plan, cluster_state: ClusterState) -> list[tuple[str, m.Desired]]:
    """Return (kind token, wanted status) for every object whose status should change.

    Each carries the version of the object that the scheduler has seen, and what of its status
    stays, so that the binder can write without reading.
    """
    wanted: list[tuple[str, m.Desired]] = [
        (kinds.PODGROUP.token, _of_group(group, cluster_state, plan.cycle))
        for group in plan.podgroups
    ]
    wanted += [(kinds.POD.token, _of_pod(pod, cluster_state, plan.cycle)) for pod in plan.pods]
    wanted += [
        (kinds.POD.token, _of_gate(lifted, cluster_state, plan.cycle)) for lifted in plan.lifted
    ]
    wanted += [
        (kinds.QUEUE.token, _of_queue(queue, cluster_state, plan.cycle)) for queue in plan.queues
    ]
    return wanted


def _of_group(
    group: PodGroupStatusWanted, cluster_state: ClusterState, cycle: int
) -> m.DesiredPodGroup:
    job = cluster_state.jobs.get(group.key)
    seen = job.seen if job is not None and job.uid == group.uid else Seen()
    return m.DesiredPodGroup(
        key=group.key,
        uid=group.uid,
        phase=group.phase,
        running=group.running,
        succeeded=group.succeeded,
        failed=group.failed,
        conditions=tuple(_stamped(c, seen.stamps.get(c)) for c in group.conditions),
        cycle=cycle,
        rv=seen.rv,
    )


def _of_pod(pod: PodConditionWanted, cluster_state: ClusterState, cycle: int) -> m.DesiredPod:
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
    seen = known is not None and known.uid == queue.uid
    shown = known.shown_allocated if known is not None and seen else {}
    return m.DesiredQueue(
        key=queue.name,
        uid=queue.uid,
        allocated=dict(queue.allocated),
        pending=queue.pending,
        cycle=cycle,
        rv=known.rv if known is not None and seen else "",
        released=tuple(sorted(shown.keys() - queue.allocated.keys())),
    )


def _stamped(condition: Condition, stamp: Stamp | None) -> m.DesiredCondition:
    transition_id, time = stamp or ("", "")
    return m.DesiredCondition(
        **condition._asdict(), transition_id=transition_id, last_transition_time=time
    )
