"""Statuses of a task and the groups that scheduling rules speak of (T01, T02)."""

from typing import Final

from pumice.plugins.status import TaskStatus as TaskStatus  # noqa: PLC0414 - reexported


def _lookup(*members: TaskStatus) -> tuple[bool, ...]:
    return tuple(status in members for status in TaskStatus)


HOLDS_RESOURCES: Final = _lookup(
    TaskStatus.ALLOCATED, TaskStatus.BINDING, TaskStatus.BOUND, TaskStatus.RUNNING
)
"""Indexed by status: counts as allocated to its job and queue (T02)."""

READY: Final = (
    TaskStatus.BOUND,
    TaskStatus.BINDING,
    TaskStatus.RUNNING,
    TaskStatus.ALLOCATED,
    TaskStatus.SUCCEEDED,
)
"""Statuses that a gang counts towards its minimum (T02); failed tasks do not."""

VALID: Final = (*READY, TaskStatus.PIPELINED, TaskStatus.PENDING)
"""Statuses that may still become part of a gang: the tasks of `valid` in T02."""

SCHEDULED: Final = (
    TaskStatus.RUNNING,
    TaskStatus.BOUND,
    TaskStatus.FAILED,
    TaskStatus.SUCCEEDED,
)
"""Statuses that the phase of a PodGroup counts (SS04); a binding task is not there yet."""

PREEMPTABLE: Final = _lookup(TaskStatus.BOUND, TaskStatus.RUNNING)
"""Indexed by status: may be a victim (T02)."""

TERMINAL: Final = _lookup(TaskStatus.SUCCEEDED, TaskStatus.FAILED)
"""Indexed by status: over, holds nothing on its node."""


def from_pod(phase: str, *, deleting: bool, has_node: bool) -> TaskStatus:
    """Return the status that a pod's own state implies (T01)."""
    if phase == "Pending":
        if deleting:
            return TaskStatus.RELEASING
        return TaskStatus.BOUND if has_node else TaskStatus.PENDING
    if phase == "Running":
        return TaskStatus.RELEASING if deleting else TaskStatus.RUNNING
    if phase == "Succeeded":
        return TaskStatus.SUCCEEDED
    if phase == "Failed":
        return TaskStatus.FAILED
    return TaskStatus.UNKNOWN
