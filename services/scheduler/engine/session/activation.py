"""Moves jobs between the active jobs and the unschedulable pool, once per session (ADR 22).

`activate` moves jobs out of the pool before the first action, like the queueing hints of
kube-scheduler. `unschedulable_jobs` finds the jobs that may enter it after the last one.

An unschedulable job is not visited. That changes no decision as long as the visit would end with a
refusal again: a refusal changes nothing. So a session first asks the rules about each group of
unschedulable jobs, and activates the groups that are no longer refused. Within a session resources
only become scarcer until something is evicted, so that a job that is refused at the beginning would
be refused later, too. `policy.unschedulable_policy` says for which configurations that holds.
Actions that evict ask whether an eviction might make room for a unschedulable group
(`policy.eviction_hints`). A cycle in which it might, or in which pods are evicted, is run again
with all jobs active.

Of a group that waits for the action enqueue only the first job is activated; the next one
is activated when that has become Inqueue (`activate_next`).
"""

from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from pumice.plugins import Condition, Vote
from pumice.plugins.combining import OrderKey
from services.scheduler.engine.jobs.records import Job, Queue
from services.scheduler.engine.jobs.unschedulable import (
    AllocateDemand,
    Demand,
    DemandGroup,
    EnqueueDemand,
    Preempting,
)
from services.scheduler.engine.plan import JobExplanation, Plan
from services.scheduler.engine.session.session import Session
from services.scheduler.engine.tasks.task import TaskClass
from shared.model.status import TaskStatus

_STAGE = "activate"
_key = attrgetter("key")
_NO_PLACE = frozenset({"predicate", "quota", "queue", "limits"})


class UnschedulableJob(NamedTuple):
    """A job that may enter the unschedulable pool."""

    job: Job
    order: OrderKey
    demand: Demand


def activate(session: Session, *, again: bool = False) -> None:
    """Activate the jobs of the pool that the rules may no longer refuse; before the first action.

    `again`: the cycle is run a second time, and the oldest jobs of the pool were visited in the
    first.
    """
    pool = session.cluster_state.jobs.unschedulable
    if not len(pool):
        return
    for job in () if again else pool.refresh(session.now):
        _activate(session, job)
    for group in list(_admissible_groups(session)):
        _activate(session, group.first, group)
    for group in list(_placeable_groups(session)):
        for _, job in list(group.members):
            _activate(session, job)


def activate_next(session: Session, job: Job) -> Job | None:
    """Activate the next job of the group after one that became Inqueue; None if none is left."""
    group = session.activated_groups.get(job.key)
    if group is None or not group.members:
        return None
    following = group.first
    _activate(session, following, group)
    return following


def _activate(session: Session, job: Job, group: DemandGroup | None = None) -> None:
    session.cluster_state.jobs.activate(job)
    insort(session.jobs, job, key=_key)
    if group is not None:
        session.activated_groups[job.key] = group


def _admissible_groups(session: Session) -> Iterator[DemandGroup]:
    refused = session.cluster_state.jobs.unschedulable.at_enqueue
    for queue in refused.queues():
        if not all(_is_refused(session, group) for group in refused.smallest(queue)):
            # Where all the smallest demands are refused, so are the larger ones.
            yield from (g for g in refused.groups(queue) if not _is_refused(session, g))


def _is_refused(session: Session, group: DemandGroup) -> bool:
    job = group.first
    with session.isolate(_STAGE, job):
        return session.hooks.job_enqueueable(job).vote is Vote.REJECT
    return False


def _placeable_groups(session: Session) -> Iterator[DemandGroup]:
    refused = session.cluster_state.jobs.unschedulable.at_allocate
    slots = session.cluster_state.nodes.slots
    if not len(refused):
        slots.forget()
        return
    slots.update()
    for name in refused.queues():
        queue = session.queue(name)
        for group in refused.groups(name):
            if queue is None or not _is_unplaceable(session, queue, group):
                yield group


def _is_unplaceable(session: Session, queue: Queue, group: DemandGroup) -> bool:
    """Tell whether a gang certainly lacks nodes, or its queue's share."""
    needs = group.demand
    if not isinstance(needs, AllocateDemand):
        return False
    if lacks_nodes(session, needs):
        return True
    with session.isolate(_STAGE, group.first):
        return session.hooks.overused(queue) or lacks_share(session, queue, needs)
    return False


def lacks_nodes(session: Session, needs: AllocateDemand) -> bool:
    """Tell whether free nodes are certainly too few for a gang; valid once `activate` has begun."""
    return sum(_places(session, needs)) < needs.missing


def lacks_share(session: Session, queue: Queue, needs: AllocateDemand) -> bool:
    """Tell whether a queue's share is too small for a gang, on the nodes that might take it."""
    allowed = (
        session.hooks.allocatable(queue, task_class, most)
        for most, (task_class, _) in zip(_places(session, needs), needs.classes, strict=True)
    )
    return sum(allowed) < needs.missing


def _places(session: Session, needs: AllocateDemand) -> list[int]:
    return [min(count, _slots(session, task_class)) for task_class, count in needs.classes]


def _slots(session: Session, task_class: TaskClass) -> int:
    """Return for how many pods of a class there is room at most."""
    if any(state.bars(task_class) for state in task_class.demands):
        return 0
    nodes = session.cluster_state.nodes
    return nodes.slots.total(
        task_class, nodes.attributes.generation, lambda: session.candidates(task_class).open
    )


def unschedulable_jobs(
    session: Session,
    plan: Plan,
    is_reported: Callable[[str], bool],
    *,
    at_enqueue: bool,
    at_allocate: bool,
) -> list[UnschedulableJob]:
    """Return the waiting jobs whose status and wait are reported; the session's actions have run.

    A change of nothing but a condition's message can wait: messages name nodes and amounts, and
    change with every pod that comes or goes.

    `is_reported` returns, by the key of a job, whether an event has reported its wait. `at_enqueue`
    and `at_allocate` tell whether jobs that these actions refused may enter the pool.
    """
    if not (at_enqueue or at_allocate):
        return []
    changed = _changed_jobs(session, plan)
    whys = (w for w in plan.explanations if w.job not in changed and is_reported(w.job))
    found = _unschedulable_jobs(session, whys, at_enqueue=at_enqueue, at_allocate=at_allocate)
    return [each for each in found if not session.exclusions.has(each.job)]


def refused_jobs(
    session: Session, *, at_enqueue: bool, at_allocate: bool
) -> list[UnschedulableJob]:
    """Return the jobs that may enter the pool, reported or not; after the actions have run."""
    whys = session.explanations.values()
    return list(_unschedulable_jobs(session, whys, at_enqueue=at_enqueue, at_allocate=at_allocate))


def _unschedulable_jobs(
    session: Session, explanations: Iterable[JobExplanation], *, at_enqueue: bool, at_allocate: bool
) -> Iterator[UnschedulableJob]:
    for why in explanations:
        job = session.cluster_state.jobs.get(why.job)
        demand = None if job is None else _demand(session, job, why)
        if job is None or demand is None:
            continue
        if at_enqueue if isinstance(demand, EnqueueDemand) else at_allocate:
            yield UnschedulableJob(job, session.hooks.job_order(job), demand)


def _changed_jobs(session: Session, plan: Plan) -> set[str]:
    """Return the keys of jobs whose status changes in more than its messages."""
    jobs, cluster_state = session.cluster_state.jobs, session.cluster_state
    found = set()
    for group in plan.podgroups:
        job = jobs.get(group.key)
        desired = (group.phase, (group.running, group.succeeded, group.failed))
        if job is None or not _is_same_status(job, desired, group.conditions):
            found.add(group.key)
    for pod in plan.pods:
        task = cluster_state.task(pod.uid)
        if task is None:
            continue
        shown = task.last_condition
        if shown is None or shown[:-1] != pod.condition[:-1]:
            found.add(task.job_key)
    return found


def _is_same_status(job: Job, desired: tuple[object, ...], conditions: Sequence[Condition]) -> bool:
    shown = job.last_status
    return shown[:2] == desired and _without_messages(shown.conditions) == _without_messages(
        conditions
    )


def _without_messages(conditions: Sequence[Condition]) -> list[tuple[str, ...]]:
    """Return conditions without their messages."""
    return [condition[:-1] for condition in conditions]


def _demand(session: Session, job: Job, why: JobExplanation) -> Demand | None:
    """Return a job's demand; None where it waits for more than amounts of resources."""
    if job.sub_jobs is not None or job.gated:
        return None
    if job.reservation_expired and job.task_count < job.min_available:
        return None
    if session.hooks.job_watched(job):
        return None
    if not job.tasks:
        if job.min_resources is None or not job.is_pending or why.gate != "enqueue":
            return None
        return EnqueueDemand(job.min_resources)
    pending = job.by_status[TaskStatus.PENDING]
    if job.is_pending or len(pending) < len(job.tasks) or why.gate not in _NO_PLACE:
        return None
    counts: Counter[int] = Counter()
    classes = {}
    for task in pending.values():
        if task.backoff_reason or task.nominated or not task.ours or task.task_class.best_effort:
            return None
        classes[task.task_class.id] = task.task_class
        counts[task.task_class.id] += 1
    missing = session.hooks.job_ready(job)
    if missing < 1:
        return None
    by_class = tuple((classes[number], counts[number]) for number in sorted(counts))
    preempting = Preempting.of({task.preempts for task in pending.values()})
    return AllocateDemand(missing, by_class, job.priority, preempting)
