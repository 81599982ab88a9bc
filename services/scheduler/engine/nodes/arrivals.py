"""Pods that came to their nodes lately, which measurements of load do not show yet (PL21).

Kept only once a plugin has asked: most configurations never do. Few pods are young, so that a
cycle looks at those that changed and at those that were young before, not at all that there are.
"""

from collections.abc import Callable, Iterable
from typing import Final

from services.scheduler.engine.tasks.task import Task
from shared.model.status import TaskStatus

_ON_THE_WAY: Final = frozenset({TaskStatus.ALLOCATED, TaskStatus.BINDING, TaskStatus.BOUND})


class TaskArrivals:
    """Tasks on nodes, less those that were found to be old."""

    def __init__(self, held: Callable[[], Iterable[Task]]) -> None:
        """Take how to enumerate all tasks that nodes hold."""
        self._held = held
        self._young: dict[str, Task] | None = None
        self._forgotten = 0.0
        """Tasks that started at this time or before are not kept."""

    def come(self, task: Task) -> None:
        """Note a task that a node holds from now on."""
        if self._young is not None:
            self._young[task.uid] = task

    def go(self, task: Task) -> None:
        """Forget a task that its node no longer holds."""
        if self._young is not None:
            self._young.pop(task.uid, None)

    def since(self, start: float) -> list[Task]:
        """Return tasks on their way to a node, and running ones that started after `start`.

        A running pod that does not say when it started counts as young. Of equal nodes the order
        is that in which tasks came.
        """
        if self._young is None or start < self._forgotten:
            self._young = {task.uid: task for task in self._held()}
        self._forgotten = start
        self._young = {uid: task for uid, task in self._young.items() if _is_young(task, start)}
        return list(self._young.values())


def _is_young(task: Task, start: float) -> bool:
    if task.status == TaskStatus.RUNNING:
        return task.started > start
    return task.status in _ON_THE_WAY
