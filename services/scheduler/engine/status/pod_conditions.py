"""PodScheduled conditions of pods that wait, at the end of a cycle (D02).

Autoscalers add nodes for pods whose condition has the reason `Unschedulable`. Volcano gives that
reason to the pods of a gang one by one: not to those that would fit if the others did, but to those
that their queue refuses. A plugin changes both for its jobs (`Hooks.waiting_reason`).
"""

from collections.abc import Iterator
from typing import Final

from pumice.plugins import Condition
from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.plan import NAME_LETTERS, DesiredPodCondition, bounded, shortened
from services.scheduler.engine.session.session import Session
from services.scheduler.engine.status.messages import Wording, no_queue, same
from services.scheduler.engine.tasks.task import Task
from shared.model.status import TaskStatus

_NO_NODE = "all nodes are unavailable"
NOT_FOR_NODES: Final = "NotWaitingForNodes"
"""Reason of a pod for which more nodes would change nothing."""


def pod_conditions(session: Session, wording: Wording, job: Job) -> list[DesiredPodCondition]:
    """Return the PodScheduled conditions of tasks that could not be bound, where they change.

    Sorted by task, because the tasks of a job may be in any order.
    """
    if not job.tasks:
        return []
    changes: list[tuple[Task, Condition]] = []
    explanation = session.explanations.get(job.key)
    general = _NO_NODE
    if explanation is not None:
        general = explanation.message + wording.details(explanation, 0)
    for_nodes = session.hooks.waiting_reason(job)
    waiting = {t.uid for t in session.waiting_for_nodes(job)} if for_nodes is not None else ()
    for status in (TaskStatus.ALLOCATED, TaskStatus.PENDING, TaskStatus.PIPELINED):
        for task in job.by_status[status].values():
            if task.gated or not task.ours:
                continue  # the API server itself says SchedulingGated
            reason, message = _pod_reason(session, wording, job, task, general)
            if for_nodes is not None:
                reason = for_nodes if task.uid in waiting else NOT_FOR_NODES
            condition = bounded(Condition("PodScheduled", "False", reason, message))
            if task.last_condition is None or not same((task.last_condition,), (condition,)):
                changes.append((task, condition))
    return [
        DesiredPodCondition(key=task.key, uid=task.uid, condition=condition)
        for task, condition in sorted(changes, key=lambda change: change[0].order())
    ]


def _pod_reason(
    session: Session, wording: Wording, job: Job, task: Task, general: str
) -> tuple[str, str]:
    if task.backoff_reason and task.status is TaskStatus.PENDING:
        return "Unschedulable", task.backoff_reason
    failures = session.failures(job)
    if (no_room := failures.no_room.get(task.uid)) is not None:
        return "Schedulable", no_room
    attempt = failures.undone_placements.get(task.uid)
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
    if (over_quota := failures.over_quota.get(task.uid)) is not None:
        return "Unschedulable", over_quota.text(task.name) + wording.beyond_share(over_quota)
    failure = failures.by_task.get(task.uid)
    if failure is None:
        return "Unschedulable", general
    return "Unschedulable", failure.text() + wording.lacks(failure.shortages)


def stray_pod_conditions(session: Session) -> Iterator[DesiredPodCondition]:
    """Return the conditions of pods whose PodGroup, or its queue, does not exist."""
    for job in session.cluster_state.jobs.stray():
        missing = f"there is no PodGroup {shortened(job.name, NAME_LETTERS)!r}"
        message = no_queue(job.queue) if job.has_group else missing
        condition = bounded(Condition("PodScheduled", "False", "Unschedulable", message))
        for task in sorted(job.by_status[TaskStatus.PENDING].values(), key=Task.order):
            if task.ours and not task.gated and task.last_condition != condition:
                yield DesiredPodCondition(key=task.key, uid=task.uid, condition=condition)
