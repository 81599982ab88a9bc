"""Results for the live page: running jobs, use of nodes, and events as entries of the feed.

Of a job that has pods on nodes: what it holds, since when, and until when as is expected. Of a
node: the ledger of the scheduler's engine, in quantities.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from pumice.events.types import (
    Event,
    GangAdmitted,
    GangPlaced,
    GangUnschedulable,
    JobPhaseChanged,
    PodBound,
    PodEvicted,
    QueueStateChanged,
)
from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.resources.dimensions import PODS_DIM, quantity
from services.scheduler.engine.state.cluster_state import ClusterState
from services.scheduler.engine.tasks.task import Task
from services.visibility.forecast.ends import stated_end
from services.visibility.queries.wording import controller_of, meta_of, ref_of
from shared.api.kinds import JOB, POD, QUEUE
from shared.api.meta import ObjectMeta
from shared.api.selectors import Taint
from shared.api.time import format_seconds
from shared.api.visibility import NodeUse, ObjectRef, RunningJob, TimelineEntry
from shared.model.resources import PODS
from shared.model.status import HOLDS_RESOURCES

EndOf = Callable[[Job], float | None]
"""Returns when a running job is expected to end, in Unix seconds; None where that is not known."""


def running_jobs(state: ClusterState, ends: EndOf = stated_end) -> tuple[RunningJob, ...]:
    """Return jobs that hold places on nodes, by namespace and name."""
    found = (
        _running(job, list(_allocated_by(job)), state, ends)
        for job in state.jobs.all()
        if job.has_group
    )
    running = [job for job in found if job.pods]
    return tuple(sorted(running, key=lambda job: (job.metadata.namespace, job.metadata.name)))


def _allocated_by(job: Job) -> Iterator[Task]:
    for tasks, holds in zip(job.by_status, HOLDS_RESOURCES, strict=True):
        if holds:
            yield from tasks.values()


def _running(job: Job, running_tasks: list[Task], state: ClusterState, ends: EndOf) -> RunningJob:
    started = min((task.started for task in running_tasks), default=math.inf)
    is_known = math.isfinite(started)
    expected = ends(job) if running_tasks else None
    return RunningJob(
        metadata=meta_of(job),
        owner=controller_of(job),
        pod_group=job.name,
        queue=job.queue,
        priority=job.priority,
        pods=len(running_tasks),
        min_available=job.min_available,
        nodes=len({task.node for task in running_tasks}),
        allocated=_holds(job, state),
        running_since=format_seconds(started) if is_known else None,
        expected_end=format_seconds(expected) if expected is not None else None,
    )


def _holds(job: Job, state: ClusterState) -> dict[str, str]:
    amounts = zip(state.dimensions.names, job.allocated.tolist(), strict=False)
    return {name: quantity(name, amount) for name, amount in amounts if amount > 0 and name != PODS}


_AWAY: Final = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
"""Taints that a node has while it is not ready; the engine reads taints, not conditions."""


def node_uses(state: ClusterState) -> tuple[NodeUse, ...]:
    """Return how full each node is, by name."""
    nodes, names = state.nodes, state.dimensions.names
    ledger, attributes = nodes.ledger, nodes.attributes
    count = len(names)
    cordoned, away = attributes.unschedulable().tolist(), attributes.taints(_is_away).tolist()
    found = []
    for column in ledger.alive[: ledger.size].nonzero()[0].tolist():
        has = ledger.allocatable[:count, column].tolist()
        used = ledger.used[:count, column].tolist()
        dims = [at for at in range(count) if has[at] > 0]
        found.append(
            NodeUse(
                metadata=ObjectMeta(name=attributes.names[column]),
                ready=not away[column],
                unschedulable=cordoned[column],
                pods=used[PODS_DIM],
                allocatable={names[at]: quantity(names[at], has[at]) for at in dims},
                allocated={names[at]: quantity(names[at], used[at]) for at in dims if used[at]},
            )
        )
    return tuple(sorted(found, key=lambda node: node.metadata.name))


def total_of(state: ClusterState) -> dict[str, str]:
    """Return what all nodes have together: resource name → quantity."""
    names, ledger = state.dimensions.names, state.nodes.ledger
    alive = ledger.alive[: ledger.size]
    sums = ledger.allocatable[: len(names), : ledger.size][:, alive].sum(axis=1).tolist()
    return {name: quantity(name, has) for name, has in zip(names, sums, strict=True) if has > 0}


def _is_away(taints: Sequence[Taint]) -> int:
    return int(any(taint.key in _AWAY for taint in taints))


def without_hidden_preemptor(event: PodEvicted) -> PodEvicted:
    """Return an eviction without the name of a preemptor that readers of the pod may not see.

    Binders of former releases named each.
    """
    preemptor = event.preemptor
    if not preemptor or preemptor.partition("/")[0] == event.pod.partition("/")[0]:
        return event
    reason = event.reason.replace(preemptor, "a pod of another namespace")
    return replace(event, preemptor="", reason=reason)


def _for_whom(event: PodEvicted) -> str:
    if event.preemptor:
        return f" for {event.preemptor}"
    if not event.preemptor_queue:
        return ""
    return f" for a pod of queue {event.preemptor_queue} with priority {event.preemptor_priority}"


_NODES_MAX: Final = 5


def entry_of(event: Event, at: str) -> TimelineEntry | None:
    """Return an event as an entry of the feed, None for one of another kind."""
    match event:
        case JobPhaseChanged():
            change = f"{event.previous or 'new'} → {event.phase}"
            message = f"{change}: {event.message}" if event.message else change
            return _entry(at, "Phase", _ref(JOB.kind, event.job), message)
        case GangAdmitted():
            return _entry(at, "Admitted", ref_of(event.gang, event.job), f"to queue {event.queue}")
        case GangPlaced():
            message = f"{event.pods} pods on {_listed(event.nodes)}"
            return _entry(at, "Placed", ref_of(event.gang, event.job), message)
        case GangUnschedulable():
            message = f"{event.gate}: {event.message}"
            return _entry(at, "Waits", ref_of(event.gang, event.job), message)
        case PodBound():
            return _entry(at, "Bound", _ref(POD.kind, event.pod), f"to {event.node}")
        case PodEvicted():
            message = f"from {event.node} by {event.by}{_for_whom(without_hidden_preemptor(event))}"
            return _entry(at, "Evicted", _ref(POD.kind, event.pod), message)
        case QueueStateChanged():
            change = f"{event.previous or 'new'} → {event.state}"
            return _entry(at, "Phase", _ref(QUEUE.kind, event.queue), change)
        case _:
            return None


def _entry(at: str, what: str, about: ObjectRef, message: str) -> TimelineEntry:
    return TimelineEntry(at=at, what=what, about=about, message=message)


def _ref(kind: str, key: str) -> ObjectRef:
    namespace, _, name = key.rpartition("/")
    return ObjectRef(kind=kind, namespace=namespace, name=name)


def _listed(nodes: tuple[str, ...]) -> str:
    shown = ", ".join(nodes[:_NODES_MAX])
    more = len(nodes) - _NODES_MAX
    return f"{shown} and {more} more nodes" if more > 0 else shown
