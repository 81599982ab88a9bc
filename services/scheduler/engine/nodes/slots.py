"""Upper bound of how many tasks of a class fit on the nodes, updated with each fact.

The bound is cheap: it counts only amounts and static properties of nodes, and each class as if no
other were placed. An unschedulable gang stays in the pool while the bound is too small for it
(`session.activation`). Updated between sessions, when nothing is placed by decision.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from pumice.plugins import BoolArray, IntArray
from services.scheduler.engine.nodes.ledger import Ledger
from services.scheduler.engine.tasks.task import TaskClass

_MAX: Final = 1 << 20
"""Maximum of tasks of one class per node; a best-effort task always fits."""


class _Counted:
    """The slots of one class per node."""

    __slots__ = ("generation", "open", "slots", "task_class", "total")

    def __init__(self, task_class: TaskClass, generation: object, open_: BoolArray) -> None:
        self.task_class = task_class
        self.generation = generation
        self.open = open_
        self.slots: IntArray = np.zeros(len(open_), dtype=np.int64)
        self.total = 0


class Slots:
    """Slots of the classes that were queried."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._by_class: dict[int, _Counted] = {}
        self._asked: set[int] = set()
        """Ids of the classes that were used since the last update."""

    def update(self) -> None:
        """Update after facts, before a session places anything.

        Classes that were not queried since the last call are dropped.
        """
        self._by_class = {k: each for k, each in self._by_class.items() if k in self._asked}
        self._asked.clear()
        columns = self._ledger.take_changed_by_facts()
        if len(columns):
            for counted in self._by_class.values():
                self._count(counted, columns[columns < len(counted.slots)])

    def total(
        self, task_class: TaskClass, generation: object, open_: Callable[[], BoolArray]
    ) -> int:
        """Return an upper bound of the tasks of a class that fit.

        `open_` returns the mask of nodes that may take such tasks; it is called once per
        `generation` while the class is queried in each session.
        """
        self._asked.add(task_class.id)
        counted = self._by_class.get(task_class.id)
        if counted is None or counted.generation != generation:
            counted = _Counted(task_class, generation, open_())
            self._by_class[task_class.id] = counted
            self._count(counted, np.arange(len(counted.slots)))
        return counted.total

    def forget(self) -> None:
        """Drop all classes, because no gang is in the pool."""
        self._by_class.clear()
        self._asked.clear()
        self._ledger.take_changed_by_facts()

    def _count(self, counted: _Counted, columns: IntArray) -> None:
        ledger, task_class = self._ledger, counted.task_class
        slots = np.where(counted.open[columns], _MAX, 0)
        for dim in task_class.dims:
            room = ledger.allocatable[dim, columns] - ledger.used[dim, columns]
            room += ledger.releasing[dim, columns]
            request = int(task_class.request[dim])
            most = np.maximum(room, 0) // request if request > 0 else (room >= 0) * _MAX
            np.minimum(slots, most, out=slots)
        counted.total += int(slots.sum() - counted.slots[columns].sum())
        counted.slots[columns] = slots
