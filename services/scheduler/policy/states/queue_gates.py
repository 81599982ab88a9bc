"""Pods that are scheduling-gated until their queue has admitted them (CA14, PL06).

A pod requests it by an annotation, admission adds the gate (W31), and allocate removes it when the
queue's share has room for the pod. From then on the pod reserves that room until it is allocated,
so an autoscaler only sees pods that fit their queue. All of it is off without the feature gate
`SchedulingGatesQueueAdmission`.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from typing_extensions import override

from pumice import plugins
from pumice.plugins import IntArray, PolicyState
from services.scheduler.engine.narrowing import engine_record
from services.scheduler.engine.tasks.task import Task
from shared.api import keys
from shared.api.core import Pod
from shared.model.status import TaskStatus

_ASKS: Final = "true"
_OPEN: Final = "open"
_GATED: Final = "gated"


class QueueGates(PolicyState):
    """The pods that request such a gate."""

    def __init__(self, *, on: bool = False) -> None:
        self._on = on
        self._tasks: dict[str, Task] = {}
        self._reserved: dict[str, IntArray] = {}
        """Queue → amounts that its admitted pods are still to hold, in this session."""
        self.lifted: dict[str, Task] = {}
        """Tasks whose gates are to be lifted, as this session decided, by uid."""

    @override
    def demand(self, pod: Pod) -> str | None:
        """Return whether a pod that requests the gate has a scheduling gate."""
        if not self._on or pod.metadata.annotations.get(keys.QUEUE_GATE) != _ASKS:
            return None
        return _GATED if pod.spec.scheduling_gates else _OPEN

    @override
    def join(self, task: plugins.Task, pod: Pod) -> None:
        """Add a task."""
        self._tasks[task.uid] = engine_record(task, Task)

    @override
    def leave(self, task: plugins.Task, *, gone: bool) -> None:
        """Remove a task."""
        self._tasks.pop(task.uid, None)

    @override
    def begin(self, journal: plugins.Journal) -> None:
        """Begin a session."""
        super().begin(journal)
        self._reserved = {}
        self.lifted = {}

    # --- gates -------------------------------------------------------------------------------

    def may_lift(self, task: Task) -> bool:
        """Tell whether a task waits only for its queue, and its gate is not being removed yet."""
        return task.queue_gated and not task.lifting and self in task.task_class.demands

    def lift(self, queue: str, tasks: Sequence[Task]) -> None:
        """Remove the gates of tasks of one class; they reserve room of their queue."""
        self.lifted.update((task.uid, task) for task in tasks)
        if tasks:
            self.reserve(queue, len(tasks) * tasks[0].task_class.request)

    # --- reservations ------------------------------------------------------------------------

    def reserving(self) -> Iterator[Task]:
        """Return the tasks that are admitted and wait for nodes, when a session begins."""
        for task in self._tasks.values():
            if task.status is TaskStatus.PENDING and (task.lifting or not task.gated):
                yield task

    def reserve(self, queue: str, amounts: IntArray) -> None:
        """Reserve amounts of a queue's share; negative ones are held by now."""
        before = self._reserved.get(queue)
        self._reserved[queue] = amounts if before is None else before + amounts

    def total(self, queue: str) -> IntArray | int:
        """Return what a queue has reserved for all of its admitted pods."""
        return self._reserved.get(queue, 0)

    def reserved(self, queue: str, task_class: plugins.TaskClass) -> IntArray | int:
        """Return what a queue has reserved that tasks of a class must leave.

        Admitted tasks do not reserve against each other: they all have room, unless the queue
        shrank or some bypassed admission, and then none would start.
        """
        return 0 if self.reserves(task_class) else self.total(queue)

    def reserves(self, task_class: plugins.TaskClass) -> bool:
        """Tell whether tasks of a class have reserved what they ask for."""
        return task_class.demands.get(self) == _OPEN
