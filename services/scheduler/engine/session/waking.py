"""Which parked jobs a session visits after all, and which jobs may be parked after it.

A parked job has no turn. That changes no decision as long as its turn would end as the last one
did, with a refusal: a refusal leaves everything as it was. So at the beginning of a session the
rules are asked about each group of parked jobs, and those that are no longer refused come back.
Within a session amounts only become scarcer until something is evicted, so that a job that is
refused at the beginning is refused when its turn comes. `policy.parking_policy` says for which
configurations that holds. Where actions evict, they ask whether a parked job might gain something
(`policy.prospects`), and a cycle in which one might, or in which pods are evicted, is run again
with all of them.

Of jobs before the gate of a queue only the first of each group comes back; it brings the next one
when it has entered (`next_in_line`).
"""

from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from pumice.plugins import Condition, Vote
from pumice.plugins.combining import OrderKey
from services.scheduler.engine.jobs.parking import Asking, Demand, Group, Needs, Wants
from services.scheduler.engine.jobs.records import Job, Queue
from services.scheduler.engine.plan import Explanation, Plan
from services.scheduler.engine.session.session import Session
from services.scheduler.engine.tasks.task import TaskClass
from shared.model.status import TaskStatus

_STAGE = "wake"
_key = attrgetter("key")
_NO_PLACE = frozenset({"predicate", "quota", "queue"})


class Parkable(NamedTuple):
    """A job that may be parked."""

    job: Job
    order: OrderKey
    demand: Demand


def wake(session: Session, *, again: bool = False) -> None:
    """Wake the parked jobs that this session may not refuse; before its first action.

    `again` tells that the cycle is run once more: those parked for long have been looked at.
    """
    parking = session.cluster_state.jobs.parking
    if not len(parking):
        return
    for job in () if again else parking.refresh(session.now):
        _wake(session, job)
    for group in list(_admissible_groups(session)):
        _wake(session, group.first, group)
    for group in list(_placeable_groups(session)):
        for _, job in list(group.members):
            _wake(session, job)


def next_in_line(session: Session, job: Job) -> Job | None:
    """Wake the parked job that comes after one that has entered its queue, if any does."""
    line = session.lines.get(job.key)
    if line is None or not line.members:
        return None
    following = line.first
    _wake(session, following, line)
    return following


def _wake(session: Session, job: Job, line: Group | None = None) -> None:
    session.cluster_state.jobs.wake(job)
    insort(session.jobs, job, key=_key)
    if line is not None:
        session.lines[job.key] = line


def _admissible_groups(session: Session) -> Iterator[Group]:
    lot = session.cluster_state.jobs.parking.entering
    for queue in lot.queues():
        if not all(_is_refused(session, group) for group in lot.least(queue)):
            # Only if none of the least demands is let in, no larger one is.
            yield from (g for g in lot.groups(queue) if not _is_refused(session, g))


def _is_refused(session: Session, group: Group) -> bool:
    job = group.first
    with session.isolate(_STAGE, job):
        return session.hooks.job_enqueueable(job).vote is Vote.REJECT
    return False


def _placeable_groups(session: Session) -> Iterator[Group]:
    lot = session.cluster_state.jobs.parking.placing
    slots = session.cluster_state.nodes.slots
    if not len(lot):
        slots.forget()
        return
    slots.update()
    for name in lot.queues():
        queue = session.queue(name)
        for group in lot.groups(name):
            if queue is None or not _is_unplaceable(session, queue, group):
                yield group


def _is_unplaceable(session: Session, queue: Queue, group: Group) -> bool:
    """Tell whether nodes, or the queue's share, are certainly too little for a gang."""
    needs = group.demand
    if not isinstance(needs, Needs):
        return False
    if lacks_nodes(session, needs):
        return True
    with session.isolate(_STAGE, group.first):
        return session.hooks.overused(queue) or lacks_share(session, queue, needs)
    return False


def lacks_nodes(session: Session, needs: Needs) -> bool:
    """Tell whether nodes are certainly too little for a gang; once `wake` has begun."""
    return sum(_places(session, needs)) < needs.missing


def lacks_share(session: Session, queue: Queue, needs: Needs) -> bool:
    """Tell whether a queue's share is too little for a gang on the nodes that it might find."""
    allowed = (
        session.hooks.allocatable(queue, task_class, most)
        for most, (task_class, _) in zip(_places(session, needs), needs.classes, strict=True)
    )
    return sum(allowed) < needs.missing


def _places(session: Session, needs: Needs) -> list[int]:
    return [min(count, _slots(session, task_class)) for task_class, count in needs.classes]


def _slots(session: Session, task_class: TaskClass) -> int:
    nodes = session.cluster_state.nodes
    return nodes.slots.total(
        task_class, nodes.attributes.generation, lambda: session.candidates(task_class).open
    )


def parkable(
    session: Session,
    plan: Plan,
    is_reported: Callable[[str], bool],
    *,
    entering: bool,
    placing: bool,
) -> list[Parkable]:
    """Return the waiting jobs whose status and wait are reported; the session's actions have run.

    A change of nothing but a condition's message can wait: messages name nodes and amounts, and
    change with every pod that comes or goes.

    `is_reported` tells by the key of a job whether subscribers know of its wait. `entering` and
    `placing` tell whether jobs may be parked before the gate of their queue, and behind it.
    """
    jobs = session.cluster_state.jobs
    if not (entering or placing):
        return []
    changed = _changed_jobs(session, plan)
    found = []
    for why in plan.explanations:
        if why.job in changed or not is_reported(why.job):
            continue
        job = jobs.get(why.job)
        if job is None or session.exclusions.has(job):
            continue
        demand = _demand(session, job, why)
        if demand is not None and (entering if isinstance(demand, Wants) else placing):
            found.append(Parkable(job, session.hooks.job_order(job), demand))
    return found


def refused(session: Session, *, entering: bool, placing: bool) -> list[Parkable]:
    """Return the jobs that may be parked, reported or not; the session's actions have run."""
    found = []
    for why in session.explanations.values():
        job = session.cluster_state.jobs.get(why.job)
        demand = None if job is None else _demand(session, job, why)
        if job is None or demand is None:
            continue
        if entering if isinstance(demand, Wants) else placing:
            found.append(Parkable(job, session.hooks.job_order(job), demand))
    return found


def _changed_jobs(session: Session, plan: Plan) -> set[str]:
    """Return the keys of jobs whose status changes in more than its messages."""
    jobs, cluster_state = session.cluster_state.jobs, session.cluster_state
    found = set()
    for group in plan.podgroups:
        job = jobs.get(group.key)
        wanted = (group.phase, (group.running, group.succeeded, group.failed))
        if job is None or not _is_same_status(job, wanted, group.conditions):
            found.add(group.key)
    for pod in plan.pods:
        task = cluster_state.task(pod.uid)
        if task is None:
            continue
        shown = task.last_condition
        if shown is None or shown[:-1] != pod.condition[:-1]:
            found.add(task.job_key)
    return found


def _is_same_status(job: Job, wanted: tuple[object, ...], conditions: Sequence[Condition]) -> bool:
    shown = job.last_status
    return shown[:2] == wanted and _without_messages(shown.conditions) == _without_messages(
        conditions
    )


def _without_messages(conditions: Sequence[Condition]) -> list[tuple[str, ...]]:
    """Return conditions without their messages."""
    return [condition[:-1] for condition in conditions]


def _demand(session: Session, job: Job, why: Explanation) -> Demand | None:
    """Return what a job waits for, None when that is more than amounts."""
    if job.division is not None or job.gated or job.reservation_expired:
        return None
    if session.hooks.job_watched(job):
        return None
    if not job.tasks:
        if job.min_resources is None or not job.is_pending or why.gate != "enqueue":
            return None
        return Wants(job.min_resources)
    pending = job.by_status[TaskStatus.PENDING]
    if job.is_pending or len(pending) < len(job.tasks) or why.gate not in _NO_PLACE:
        return None
    counts: Counter[int] = Counter()
    classes = {}
    for task in pending.values():
        if task.held or task.nominated or not task.ours or task.task_class.best_effort:
            return None
        classes[task.task_class.id] = task.task_class
        counts[task.task_class.id] += 1
    missing = session.hooks.job_ready(job)
    if missing < 1:
        return None
    by_class = tuple((classes[number], counts[number]) for number in sorted(counts))
    asking = Asking.of({task.preempts for task in pending.values()})
    return Needs(missing, by_class, job.priority, asking)
