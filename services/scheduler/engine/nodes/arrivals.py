"""Pods that started recently: measurements of node load do not include them yet (PL21).

Tracked only after a plugin has asked, because most configurations never do. A cycle looks at pods
that changed and at pods that were young before, not at all pods.
"""

from collections.abc import Callable, Iterable
from typing import Final

from services.scheduler.engine.tasks.task import Task
from shared.model.status import TaskStatus

_ON_THE_WAY: Final = frozenset({TaskStatus.ALLOCATED, TaskStatus.BINDING, TaskStatus.BOUND})


class TaskArrivals:
    """Tasks on nodes, without those that were found to be old."""

    def __init__(self, tasks_on_nodes: Callable[[], Iterable[Task]]) -> None:
        """`tasks_on_nodes` enumerates all tasks on nodes."""
        self._tasks_on_nodes = tasks_on_nodes
        self._young: dict[str, Task] | None = None
        self._forgotten = 0.0
        """Tasks that started at this time or before are not kept."""

    def come(self, task: Task) -> None:
        """Add a task that was put on a node."""
        if self._young is not None:
            self._young[task.uid] = task

    def go(self, task: Task) -> None:
        """Remove a task that left its node."""
        if self._young is not None:
            self._young.pop(task.uid, None)

    def since(self, start: float) -> list[Task]:
        """Return tasks that are bound and not running, or started after `start` (Unix seconds).

        A running pod without a start time counts as young. Tasks of one node are in the order of
        their arrival.
        """
        if self._young is None or start < self._forgotten:
            self._young = {task.uid: task for task in self._tasks_on_nodes()}
        self._forgotten = start
        self._young = {uid: task for uid, task in self._young.items() if _is_young(task, start)}
        return list(self._young.values())


def _is_young(task: Task, start: float) -> bool:
    if task.status == TaskStatus.RUNNING:
        return task.started > start
    return task.status in _ON_THE_WAY
