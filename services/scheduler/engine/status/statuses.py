"""Desired statuses of PodGroups and queues at the end of a cycle (SS03, SS04, D01).

Computed only for the jobs that a session visited, and returned only if it differs from the last
one: a status is written when its meaning changes, never to refresh a time.
"""

from collections import Counter
from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from pumice.plugins import NODE_MAX, Condition, IntArray
from services.scheduler.engine.jobs.records import GroupStatus, Job, Queue
from services.scheduler.engine.jobs.rollups import allocated_of
from services.scheduler.engine.plan import (
    DesiredPodGroupStatus,
    JobExplanation,
    QueueAllocated,
    bounded,
    shortened,
)
from services.scheduler.engine.resources.amounts import AMOUNT_MAX
from services.scheduler.engine.resources.dimensions import (
    CPU_DIM,
    MEMORY_DIM,
    PODS_DIM,
    counted,
    quantity,
)
from services.scheduler.engine.session.session import Session
from services.scheduler.engine.status.messages import Wording, no_queue, same
from shared.model.quantity import BadQuantity
from shared.model.resources import parse_list
from shared.model.status import SCHEDULED, TaskStatus

_BEYOND = " is beyond the bound of "
_ROOT = "root"
_NATIVE = (CPU_DIM, MEMORY_DIM, PODS_DIM)
_ORIGIN = "Origin reason is"
_REASONS_MAX = 50
"""Most reasons in an event: those of the most nodes."""
_LAPSED = "its pods have not come for so long that it no longer reserves resources"


def group_status(session: Session, wording: Wording, job: Job) -> DesiredPodGroupStatus | None:
    """Return the desired status of a PodGroup, None if the PodGroup shows it already."""
    raised = [_with_origin(session, job, condition) for condition in session.hooks.conditions(job)]
    if not job.tasks:
        if (waiting := _kept_out(session, job)) is not None:
            raised.append(waiting)
        if not raised and _shows_that_it_waits(job):
            return None
    elif (last := _unplaced_last_ones(session, job)) is not None:
        raised.append(last)
    if raised:
        raised = _with_details(session, wording, job, raised)
    conditions = _merged(job.conditions, raised)
    unschedulable = any(c.type == "Unschedulable" and c.status == "True" for c in raised)
    desired = GroupStatus(
        phase=phase_of(job, unschedulable=unschedulable),
        counters=job.counters,
        conditions=conditions,
    )
    if desired == job.last_status or (
        desired[:2] == job.last_status[:2] and same(desired.conditions, job.last_status.conditions)
    ):
        return None
    running, succeeded, failed = desired.counters
    return DesiredPodGroupStatus(
        key=job.key,
        uid=job.uid,
        queue=job.queue,
        owner_job=job.owner_job,
        phase=desired.phase,
        was=job.last_status.phase,
        running=running,
        succeeded=succeeded,
        failed=failed,
        conditions=conditions,
    )


def _shows_that_it_waits(job: Job) -> bool:
    """Tell cheaply whether a group without pods and conditions already shows its state.

    Most groups of a long queue are of this kind, so this check saves time in every cycle.
    """
    shown = job.last_status
    return (
        job.phase in {"Inqueue", "Pending"}
        and shown.phase == job.phase
        and shown.counters == (0, 0, 0)
        and job.min_available > 0
    )


def _with_origin(session: Session, job: Job, condition: Condition) -> Condition:
    """Add the gate's message to a condition that has numbers only.

    Volcano names an origin where nodes refused a task; where a queue, a quota or a network did,
    its condition says that tasks are unschedulable and not why.
    """
    explanation = session.explanations.get(job.key)
    if condition.type != "Unschedulable":
        return condition
    message = condition.message
    if explanation is not None and _ORIGIN not in message:
        message = f"{message}. {_ORIGIN} {explanation.message}"
    return condition._replace(message=message + _beyond(job) + _below_minimum(job))


def _below_minimum(job: Job) -> str:
    """Add to the condition of a gang that lost pods that the others keep running."""
    running = len(job.by_status[TaskStatus.RUNNING])
    if not 0 < running < job.min_available:
        return ""
    runs = "1 pod runs" if running == 1 else f"{running} pods run"
    return f". {runs} below the minimum of {job.min_available}"


def _beyond(job: Job) -> str:
    """Return the amounts that are too large to be counted; such a task fits no node."""
    requested = {
        name
        for task in job.by_status[TaskStatus.PENDING].values()
        for name in task.task_class.beyond
    }
    texts = [f". Task: {name}{_BEYOND}{quantity(name, NODE_MAX)}" for name in sorted(requested)]
    texts += [f". minResources: {name}{_BEYOND}{quantity(name, AMOUNT_MAX)}" for name in job.beyond]
    return "".join(texts)


def _with_details(
    session: Session, wording: Wording, job: Job, raised: list[Condition]
) -> list[Condition]:
    """Add the missing amounts and the position in the queue to the reason of a wait."""
    explanation = session.explanations.get(job.key)
    if explanation is None:
        return raised
    details = wording.details(explanation, session.places.of(job))
    return [
        condition._replace(message=condition.message + details)
        if condition.type == "Unschedulable" and condition.status == "True"
        else condition
        for condition in raised
    ]


def _kept_out(session: Session, job: Job) -> Condition | None:
    """Return why a group without pods may not enter its queue, or why its reservation expired.

    Volcano reports the first in an event only. ⚠ Only groups without pods: of all others the gang
    itself speaks.
    """
    if job.reservation_expired:
        return Condition("Unschedulable", "True", "NotEnoughTasks", f"no pods: {_LAPSED}")
    explanation = session.explanations.get(job.key)
    if explanation is None or explanation.gate != "enqueue":
        return None
    message = explanation.message + _beyond(job)
    return Condition("Unschedulable", "True", "NotEnoughResources", message)


def _unplaced_last_ones(session: Session, job: Job) -> Condition | None:
    """Return why surplus pods wait of a group that has its minimum, while none runs."""
    explanation = session.explanations.get(job.key)
    if explanation is None or not (job.is_ready and _only_waits(job)):
        return None
    pending = len(job.by_status[TaskStatus.PENDING])
    message = f"{pending}/{job.task_count} tasks unschedulable: {explanation.message}"
    return Condition("Unschedulable", "True", "NotEnoughResources", message)


def phase_of(job: Job, *, unschedulable: bool) -> str:
    """Return the phase of a PodGroup (SS04).

    A binding task does not count as scheduled yet, so that a group stays Inqueue in the round that
    places it; a leaving one still does. ⚠ A Running group that falls below its minimum is Pending
    again, and has to enter its queue again before its pods are made again.
    """
    if job.by_status[TaskStatus.RUNNING] and unschedulable:
        return "Unknown"
    scheduled = sum(len(job.by_status[status]) for status in SCHEDULED)
    completed = len(job.by_status[TaskStatus.SUCCEEDED]) + len(job.by_status[TaskStatus.FAILED])
    scheduled += sum(bool(task.node) for task in job.by_status[TaskStatus.RELEASING].values())
    if scheduled >= job.min_available:
        if _only_waits(job):
            return "Pending" if job.phase == "Pending" else "Inqueue"
        return "Completed" if scheduled == completed else "Running"
    return "Inqueue" if job.phase == "Inqueue" else "Pending"


def _only_waits(job: Job) -> bool:
    """Tell whether some pods have ended and all others wait, so that the group is not Completed.

    Volcano calls such a group Completed: one whose pods come one by one (volcano#5871).
    """
    ended = len(job.by_status[TaskStatus.SUCCEEDED]) + len(job.by_status[TaskStatus.FAILED])
    pending = len(job.by_status[TaskStatus.PENDING])
    return ended > 0 and pending > 0 and pending + ended == len(job.tasks)


def _merged(shown: tuple[Condition, ...], raised: list[Condition]) -> tuple[Condition, ...]:
    """Return the conditions of a group: the new ones, and others as the object shows them.

    Volcano leaves Unschedulable with its message on a group that is scheduled by now; here it is
    False and silent then, so that nobody reads why a group waits that runs.
    """
    by_type = {condition.type: condition for condition in shown}
    by_type.update((condition.type, condition) for condition in map(bounded, raised))
    types = {condition.type for condition in raised}
    before = by_type.get("Unschedulable")
    if before is not None and "Scheduled" in types and "Unschedulable" not in types:
        by_type["Unschedulable"] = Condition("Unschedulable", "False", "", "")
    return tuple(by_type.values())


def with_exclusions(
    session: Session, desired: list[DesiredPodGroupStatus]
) -> list[DesiredPodGroupStatus]:
    """Return the desired statuses with a condition for each excluded job."""
    by_key = {group.key: group for group in desired}
    for kind, key in sorted(session.exclusions.found):
        job = session.cluster_state.jobs.get(key) if kind == "podgroups" else None
        exclusion = session.exclusions.job(job) if job is not None else None
        if job is None or exclusion is None:
            continue
        condition = Condition("Unschedulable", "True", "Quarantined", exclusion.reason)
        group = by_key.get(key) or _as_last(job)
        conditions = _merged(group.conditions, [condition])
        if key in by_key or conditions != job.last_status.conditions:
            by_key[key] = replace(group, conditions=conditions)
    return list(by_key.values())


def _as_last(job: Job) -> DesiredPodGroupStatus:
    running, succeeded, failed = job.last_status.counters
    return DesiredPodGroupStatus(
        key=job.key,
        uid=job.uid,
        queue=job.queue,
        owner_job=job.owner_job,
        phase=job.last_status.phase or "Pending",
        was=job.last_status.phase,
        running=running,
        succeeded=succeeded,
        failed=failed,
        conditions=job.last_status.conditions,
    )


def queue_statuses(session: Session) -> Iterator[QueueAllocated]:
    """Return the allocated amounts of queues where they changed, with children (SS03).

    With it goes how many PodGroups each itself has pending.
    """
    queues = session.cluster_state.jobs.queues
    sums = session.rollup(allocated_of).sums()
    waiting = Counter(job.queue for job in session.jobs if job.is_pending)
    refused = session.cluster_state.jobs.unschedulable.at_enqueue
    totals = {name: np.zeros_like(session.total) for name in queues}
    for name, amounts in sums.items():
        for holder in _lineage(queues, name):
            np.minimum(totals[holder] + amounts, AMOUNT_MAX, out=totals[holder])
    for name, queue in sorted(queues.items()):
        count = waiting[name] + refused.count(name)
        with session.isolate("status", queue):
            if count != queue.last_pending or not _same(session, queue, totals[name]):
                yield QueueAllocated(
                    name=name,
                    uid=queue.uid,
                    allocated=_quantities(session, totals[name]),
                    pending=count,
                )


def _lineage(queues: dict[str, Queue], name: str) -> list[str]:
    """Return a queue and its ancestors; a parent that is unknown or in a cycle ends the line."""
    line = [name]
    while line[-1] != _ROOT:
        parent = queues[line[-1]].parent or _ROOT
        if parent not in queues or parent in line:
            break
        line.append(parent)
    return line


def _same(session: Session, queue: Queue, amounts: IntArray) -> bool:
    found = amounts.tobytes()
    text, compared = queue.compared
    if text is queue.last_allocated and compared == found:
        return True  # a cycle with a small change leaves most queues as they are
    if not _says(session, queue, amounts):
        return False
    queue.compared = (queue.last_allocated, found)
    return True


def _says(session: Session, queue: Queue, amounts: IntArray) -> bool:
    try:
        reported = parse_list(queue.last_allocated)
    except BadQuantity:
        return False  # another writer has changed it
    allocated = {name: int(amounts[dim]) for dim, name in enumerate(session.resources)}
    return all(
        counted(name, reported.get(name)) == amount for name, amount in allocated.items()
    ) and all(name in allocated for name, _ in reported.items())


def _quantities(session: Session, amounts: IntArray) -> dict[str, str]:
    result = {}
    for dim, name in enumerate(session.resources):
        amount = int(amounts[dim])
        if amount or dim in _NATIVE:
            result[name] = quantity(name, amount)
    return result


def explanation_of(session: Session, wording: Wording, job: Job) -> JobExplanation | None:
    """Return why a job is not completely placed, with a gate even when no action named one."""
    unplaced = job.by_status[TaskStatus.PENDING] or session.failures(job).no_room
    if job.is_ready and not unplaced:
        return None
    if job.key not in session.explanations:
        invalid = session.hooks.job_valid(job)
        if invalid is not None:
            session.explain(job, "gang", invalid.message)
        elif job.waiting_count:
            session.explain(job, "gang", "waits for resources that are being released")
        else:
            return None
    explanation = session.explanations[job.key]
    message = shortened(explanation.message)
    if job.reservation_expired:
        message += f"; {_LAPSED}"
    place = session.places.of(job)
    details = shortened(wording.details(explanation, place))
    reasons = explanation.reasons
    if len(reasons) > _REASONS_MAX:
        reasons = dict(sorted(reasons.items(), key=lambda reported: -reported[1])[:_REASONS_MAX])
    return replace(explanation, message=message, details=details, position=place, reasons=reasons)


def stray_group_statuses(
    session: Session,
) -> Iterator[tuple[JobExplanation, DesiredPodGroupStatus | None]]:
    """Return the statuses of jobs whose queue does not exist; Volcano gives them none."""
    for job in session.cluster_state.jobs.stray():
        if not job.has_group:
            continue
        message = no_queue(job.queue)
        condition = Condition("Unschedulable", "True", "QueueNotFound", message)
        running, succeeded, failed = job.last_status.counters
        desired = DesiredPodGroupStatus(
            key=job.key,
            uid=job.uid,
            queue=job.queue,
            owner_job=job.owner_job,
            phase=job.phase or "Pending",
            was=job.last_status.phase,
            running=running,
            succeeded=succeeded,
            failed=failed,
            conditions=_merged(job.conditions, [condition]),
        )
        is_changed = desired.conditions != job.last_status.conditions
        explanation = JobExplanation(
            job=job.key,
            job_uid=job.uid,
            queue=job.queue,
            owner_job=job.owner_job,
            gate="queue",
            message=message,
        )
        yield explanation, desired if is_changed else None
