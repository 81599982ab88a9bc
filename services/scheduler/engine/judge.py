"""The end of a round: what PodGroups, pods and queues should show (SS03, SS04, D01, D02).

Computed for the jobs that a session visited only, and wanted only where it differs from what was
said before: a status is written on change of meaning, never to refresh a time.
"""

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from pumice.plugins import Condition, IntArray
from services.scheduler.engine.dimensions import CPU_DIM, MEMORY_DIM, PODS_DIM
from services.scheduler.engine.plan import (
    Explanation,
    PodConditionWanted,
    PodGroupStatusWanted,
    QueueAllocated,
)
from services.scheduler.engine.records import GroupStatus, Job, Queue
from services.scheduler.engine.rollup import held
from services.scheduler.engine.session import Session
from services.scheduler.engine.tasks import Task
from shared.model.quantity import format_bytes, format_milli
from shared.model.resources import parse_list
from shared.model.status import SCHEDULED, TaskStatus

_ROOT = "root"
_NO_NODE = "all nodes are unavailable"
_ORIGIN = "Origin reason is"
_LAPSED = "its pods have not come for so long that it no longer reserves resources"


def judge_group(session: Session, job: Job) -> PodGroupStatusWanted | None:
    """Return the status that a PodGroup should show, None when it shows it already."""
    raised = [
        _with_origin(session, job, condition)
        for fn in session.hooks.judged.all()
        if (condition := fn(job)) is not None
    ]
    if not job.tasks:
        if (waiting := _kept_out(session, job)) is not None:
            raised.append(waiting)
        if not raised and _shows_that_it_waits(job):
            return None
    conditions = _merged(job.conditions, raised)
    unschedulable = any(c.type == "Unschedulable" and c.status == "True" for c in raised)
    wanted = GroupStatus(
        phase=phase_of(job, unschedulable=unschedulable),
        counters=(
            len(job.by_status[TaskStatus.RUNNING]),
            len(job.by_status[TaskStatus.SUCCEEDED]),
            len(job.by_status[TaskStatus.FAILED]),
        ),
        conditions=conditions,
    )
    if wanted == job.said:
        return None
    running, succeeded, failed = wanted.counters
    return PodGroupStatusWanted(
        key=job.key,
        uid=job.uid,
        phase=wanted.phase,
        running=running,
        succeeded=succeeded,
        failed=failed,
        conditions=conditions,
    )


def _shows_that_it_waits(job: Job) -> bool:
    """Tell at a glance of a group without pods, and without a condition, that it shows its state.

    Most of what a long queue holds is of this kind, and is judged in every cycle.
    """
    shown = job.said
    return (
        job.phase in {"Inqueue", "Pending"}
        and shown.phase == job.phase
        and shown.counters == (0, 0, 0)
        and job.min_available > 0
    )


def _with_origin(session: Session, job: Job, condition: Condition) -> Condition:
    """Add the gate's message to a condition that speaks of numbers only.

    Volcano names an origin where nodes refused a task; where a queue, a quota or a network did,
    its condition says that tasks are unschedulable and not why.
    """
    explanation = session.explanations.get(job.key)
    if condition.type != "Unschedulable" or explanation is None or _ORIGIN in condition.message:
        return condition
    return condition._replace(message=f"{condition.message}. {_ORIGIN} {explanation.message}")


def _kept_out(session: Session, job: Job) -> Condition | None:
    """Return why a group without pods may not enter its queue, or holds nothing in it any more.

    Volcano tells the first in an event only. ⚠ Only groups without pods: of all others the gang
    itself speaks.
    """
    if job.lapsed:
        return Condition("Unschedulable", "True", "NotEnoughTasks", f"no pods: {_LAPSED}")
    explanation = session.explanations.get(job.key)
    if explanation is None or explanation.gate != "enqueue":
        return None
    return Condition("Unschedulable", "True", "NotEnoughResources", explanation.message)


def phase_of(job: Job, *, unschedulable: bool) -> str:
    """Return the phase of a PodGroup (SS04 ⚠).

    A binding task does not count as scheduled yet, so that a group stays Inqueue in the round that
    places it; a leaving one still does. Below its minimum a group is Pending again unless Inqueue.
    """
    if job.by_status[TaskStatus.RUNNING] and unschedulable:
        return "Unknown"
    scheduled = sum(len(job.by_status[status]) for status in SCHEDULED)
    completed = len(job.by_status[TaskStatus.SUCCEEDED]) + len(job.by_status[TaskStatus.FAILED])
    scheduled += sum(bool(task.node) for task in job.by_status[TaskStatus.RELEASING].values())
    if scheduled >= job.min_available:
        return "Completed" if scheduled == completed else "Running"
    return "Inqueue" if job.phase == "Inqueue" else "Pending"


def _merged(shown: tuple[Condition, ...], raised: list[Condition]) -> tuple[Condition, ...]:
    by_type = {condition.type: condition for condition in shown}
    by_type.update((condition.type, condition) for condition in raised)
    return tuple(by_type.values())


def judge_pods(session: Session, job: Job) -> list[PodConditionWanted]:
    """Return the PodScheduled conditions of tasks that could not be bound, where they change.

    In the order of the tasks: what a job has gone through leaves its tasks in any order.
    """
    if not job.tasks:
        return []
    changes: list[tuple[Task, Condition]] = []
    explanation = session.explanations.get(job.key)
    general = explanation.message if explanation else _NO_NODE
    for status in (TaskStatus.ALLOCATED, TaskStatus.PENDING, TaskStatus.PIPELINED):
        for task in job.by_status[status].values():
            if task.gated or not task.ours:
                continue  # the API server itself says SchedulingGated
            reason, message = _pod_reason(session, job, task, general)
            condition = Condition("PodScheduled", "False", reason, message)
            if task.said != condition:
                changes.append((task, condition))
    return [
        PodConditionWanted(key=task.key, uid=task.uid, condition=condition)
        for task, condition in sorted(changes, key=lambda change: change[0].order())
    ]


def _pod_reason(session: Session, job: Job, task: Task, general: str) -> tuple[str, str]:
    failures = session.failures(job)
    attempt = failures.attempts.get(task.uid)
    status = attempt.status if attempt else task.status
    node = attempt.node if attempt else task.node
    if status is TaskStatus.ALLOCATED:
        return "Schedulable", (
            f"Pod {task.key} can possibly be assigned to {node}, once minAvailable is satisfied"
        )
    if status is TaskStatus.PIPELINED:
        return "Unschedulable", (
            f"Pod {task.key} can possibly be assigned to {node}, "
            "once resource is released and minAvailable is satisfied"
        )
    failure = failures.by_task.get(task.uid)
    return "Unschedulable", failure.text() if failure else general


def judge_queues(session: Session) -> Iterator[QueueAllocated]:
    """Return what queues hold, parents including their children, where it changed (SS03)."""
    queues = session.replica.jobs.queues
    sums = session.rollup(held).sums()
    totals = {name: np.zeros_like(session.total) for name in queues}
    for name, amounts in sums.items():
        for holder in _lineage(queues, name):
            totals[holder] += amounts
    for name, queue in sorted(queues.items()):
        if not _same(session, queue, totals[name]):
            yield QueueAllocated(
                name=name, uid=queue.uid, allocated=_quantities(session, totals[name])
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
    said = parse_list(queue.said_allocated)
    held = {name: int(amounts[dim]) for dim, name in enumerate(session.resources)}
    return all(said.get(name) == amount for name, amount in held.items()) and all(
        name in held for name, _ in said.items()
    )


def _quantities(session: Session, amounts: IntArray) -> dict[str, str]:
    result = {}
    for dim, name in enumerate(session.resources):
        amount = int(amounts[dim])
        if dim == MEMORY_DIM:
            result[name] = format_bytes(amount)
        elif dim == PODS_DIM:
            result[name] = str(amount)
        elif amount or dim == CPU_DIM:
            result[name] = format_milli(amount)
    return result


def judge_reason(session: Session, job: Job) -> Explanation | None:
    """Return why a job is not wholly placed, with a gate even when no action named one."""
    if job.is_ready and not job.by_status[TaskStatus.PENDING]:
        return None
    if job.key not in session.explanations:
        invalid = session.hooks.invalidity(job)
        if invalid is not None:
            session.explain(job, "gang", invalid.message)
        elif job.waiting_count:
            session.explain(job, "gang", "waits for resources that are being released")
        else:
            return None
    explanation = session.explanations[job.key]
    message = explanation.message
    if job.lapsed:
        message += f"; {_LAPSED}"
    return replace(explanation, message=message, position=session.place_in_order(job))


def judge_stray_pods(session: Session) -> Iterator[PodConditionWanted]:
    """Return the conditions of pods whose group's queue is unknown."""
    for job in session.replica.jobs.stray():
        condition = Condition("PodScheduled", "False", "Unschedulable", _no_queue(job))
        for task in sorted(job.by_status[TaskStatus.PENDING].values(), key=Task.order):
            if task.ours and not task.gated and task.said != condition:
                yield PodConditionWanted(key=task.key, uid=task.uid, condition=condition)


def _no_queue(job: Job) -> str:
    return f"spec.queue: there is no queue {job.queue!r}"


def judge_strays(session: Session) -> Iterator[tuple[Explanation, PodGroupStatusWanted | None]]:
    """Return what to say of jobs whose queue is unknown; upstream leaves them without a word."""
    for job in session.replica.jobs.stray():
        message = _no_queue(job)
        condition = Condition("Unschedulable", "True", "QueueNotFound", message)
        running, succeeded, failed = job.said.counters
        wanted = PodGroupStatusWanted(
            key=job.key,
            uid=job.uid,
            phase=job.phase or "Pending",
            running=running,
            succeeded=succeeded,
            failed=failed,
            conditions=_merged(job.conditions, [condition]),
        )
        news = wanted.conditions != job.said.conditions
        explanation = Explanation(job=job.key, queue=job.queue, gate="queue", message=message)
        yield explanation, wanted if news else None
