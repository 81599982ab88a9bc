"""The ledger: allocatable and used amounts as integer arrays with one column per node.

Arrays are resource-major (a row per resource), so that a test over all nodes reads only the rows
of the resources that are asked for. Columns belong to nodes by index; a removed node's column is
emptied and reused. The ledger knows amounts, not pods: `nodes.nodes` derives usage from the pods
of a node, and `ClusterState.audit` compares the two.
"""

from typing import Final

import numpy as np

from pumice.plugins import BoolArray, IntArray
from services.scheduler.engine.resources.amounts import stretched, total_of_columns
from services.scheduler.engine.resources.dimensions import PODS_DIM
from services.scheduler.engine.tasks.task import TaskClass

_FIRST_COLUMNS: Final = 64


class Ledger:
    """Amounts per resource and node. `used` includes what is being released (T08)."""

    def __init__(self, capacity: int) -> None:
        self.size = 0
        """Columns in use, removed nodes included."""
        self.allocatable = self._zeros(capacity)
        self.used = self._zeros(capacity)
        self.releasing = self._zeros(capacity)
        self.pipelined = self._zeros(capacity)
        self.evicted = self._zeros(capacity)
        """Amounts that this session's evictions will free: still used, no longer requested."""
        self.largest: IntArray = np.zeros(capacity, dtype=np.int64)
        """The most of each resource that any node has."""
        self.scoring = np.zeros((2, _FIRST_COLUMNS), dtype=np.int64)
        """Milli-CPU and bytes requested as scorers count them, pipelined included."""
        self.alive: BoolArray = np.zeros(_FIRST_COLUMNS, dtype=np.bool_)
        self._in_motion = 0
        """Number of tasks that are being released or wait for a release."""
        self.tick = 0
        """Number of decisions so far."""
        self.version = 0
        """Number of the present state; a decision that is taken back brings the old one back."""
        self.stamps: IntArray = np.zeros(_FIRST_COLUMNS, dtype=np.int64)
        """The tick at which a decision last changed a column; readers compare with theirs."""
        self._changed_by_facts: set[int] = set()
        """Columns that facts have changed since `take_changed_by_facts`."""

    @staticmethod
    def _zeros(capacity: int) -> IntArray:
        return np.zeros((capacity, _FIRST_COLUMNS), dtype=np.int64)

    # --- shape -------------------------------------------------------------------------------

    def add_column(self) -> int:
        """Return the index of a new, empty column."""
        column = self.size
        if column == self.alive.shape[0]:
            self._resize(columns=column * 2)
        self.size += 1
        return column

    def grow_rows(self, capacity: int) -> None:
        """Make room for more resources."""
        self._resize(rows=capacity)

    def _resize(self, *, rows: int = 0, columns: int = 0) -> None:
        for name in ("allocatable", "used", "releasing", "pipelined", "evicted"):
            setattr(self, name, _padded(getattr(self, name), rows, columns))
        self.scoring = _padded(self.scoring, 2, columns)
        self.largest = stretched(self.largest, rows)
        if columns:
            self.alive = np.pad(self.alive, (0, columns - self.alive.shape[0]))
            self.stamps = np.pad(self.stamps, (0, columns - self.stamps.shape[0]))

    # --- nodes -------------------------------------------------------------------------------

    def set_node(self, column: int, allocatable: IntArray) -> None:
        """Set the allocatable amounts of a node."""
        before = self.allocatable[:, column].copy()
        self.alive[column] = True
        self.allocatable[:, column] = allocatable
        self._changed_by_facts.add(column)
        self._measure(before, allocatable)

    def _measure(self, before: IntArray, after: IntArray) -> None:
        """Update `largest` after a node changed from `before` to `after`."""
        if ((after < before) & (before == self.largest)).any():
            self.largest = self.allocatable[:, : self.size].max(axis=1)
        elif (after > self.largest).any():
            self.largest = np.maximum(self.largest, after)

    def clear(self, column: int) -> None:
        """Empty a column: the node is gone."""
        self.alive[column] = False
        self._changed_by_facts.add(column)
        self._in_motion -= int(self.releasing[PODS_DIM, column])
        before = self.allocatable[:, column].copy()
        for array in (self.allocatable, self.used, self.releasing, self.pipelined, self.evicted):
            array[:, column] = 0
        self.scoring[:, column] = 0
        self._measure(before, np.zeros_like(before))

    # --- usage -------------------------------------------------------------------------------

    def hold(self, column: int, task_class: TaskClass, count: int, *, releasing: bool) -> None:
        """Add `count` tasks of a class to a node by fact; a negative count removes them."""
        self._changed_by_facts.add(column)
        self.used[:, column] += count * task_class.request
        cpu, memory = task_class.scoring_request
        self.scoring[0, column] += count * cpu
        self.scoring[1, column] += count * memory
        if releasing:
            self.releasing[:, column] += count * task_class.request
            self._in_motion += count

    def show(self, column: int, used: IntArray, releasing: IntArray, scoring: IntArray) -> None:
        """Set the shown usage of a column whose tasks exceed int64 (see `nodes`)."""
        self._changed_by_facts.add(column)
        self.used[: len(used), column] = used
        self.scoring[:, column] = scoring
        self._in_motion += int(releasing[PODS_DIM] - self.releasing[PODS_DIM, column])
        self.releasing[: len(releasing), column] = releasing

    def repair(self, used: IntArray, releasing: IntArray, scoring: IntArray) -> None:
        """Set usage that was recomputed from the pods."""
        self._changed_by_facts.update(range(self.size))
        self.used[:, : self.size] = used
        self.releasing[:, : self.size] = releasing
        self.scoring[:, : self.size] = scoring
        self._in_motion = int(releasing[PODS_DIM].sum() + self.pipelined[PODS_DIM].sum())

    def place(
        self, columns: IntArray, counts: IntArray, task_class: TaskClass, *, waiting: bool
    ) -> None:
        """Add tasks to distinct nodes by decision; negative counts undo it.

        `waiting` tasks (Pipelined) use nothing yet, but reserve what is being released.
        """
        target = self.pipelined if waiting else self.used
        if waiting:
            self._in_motion += int(counts.sum())
        for dim in task_class.dims:
            amount = int(task_class.request[dim])
            if amount:
                target[dim, columns] += counts * amount
        self._score(columns, counts, task_class)

    def evict(self, columns: IntArray, counts: IntArray, task_class: TaskClass) -> None:
        """Count tasks as Releasing by decision; negative counts undo it."""
        self._in_motion += int(counts.sum())
        for dim in task_class.dims:
            amount = int(task_class.request[dim])
            if amount:
                self.releasing[dim, columns] += counts * amount
                self.evicted[dim, columns] += counts * amount
        self._score(columns, -counts, task_class)

    def _score(self, columns: IntArray, counts: IntArray, task_class: TaskClass) -> None:
        cpu, memory = task_class.scoring_request
        self.scoring[0, columns] += counts * cpu
        self.scoring[1, columns] += counts * memory
        self.tick += 1
        self.version = self.tick
        self.stamps[columns] = self.tick

    @property
    def at_rest(self) -> bool:
        """Whether nothing is being released and no task waits for a release."""
        return not self._in_motion

    def changed_since(self, tick: int) -> IntArray:
        """Return the columns that decisions changed after version `tick`."""
        return np.flatnonzero(self.stamps[: self.size] > tick)

    def take_changed_by_facts(self) -> IntArray:
        """Return the columns that facts have changed since the last call."""
        changed, self._changed_by_facts = self._changed_by_facts, set()
        return np.array(sorted(changed), dtype=np.int64)

    # --- queries -----------------------------------------------------------------------------

    def idle(self, dim: int) -> IntArray:
        """Return the idle amounts, shape (resources, nodes)."""
        return self.allocatable[dim, : self.size] - self.used[dim, : self.size]

    def future_idle(self, dim: int) -> IntArray:
        """Return the idle amounts after all releases, less what Pipelined tasks reserve (T08)."""
        upto = self.size
        return (
            self.allocatable[dim, :upto]
            - self.used[dim, :upto]
            + self.releasing[dim, :upto]
            - self.pipelined[dim, :upto]
        )

    def emptied(self, dim: int) -> IntArray:
        """Return the idle amounts if all pods left, less those reserved by Pipelined tasks."""
        return self.allocatable[dim, : self.size] - self.pipelined[dim, : self.size]

    def total(self) -> IntArray:
        """Return the allocatable amounts of all nodes together."""
        return total_of_columns(self.allocatable[:, : self.size])

    def total_used(self) -> IntArray:
        """Return the used amounts of all nodes, each node at most its allocatable amount."""
        used = np.minimum(self.used[:, : self.size], self.allocatable[:, : self.size])
        return total_of_columns(used)

    def pods(self, column: int) -> int:
        """Return the number of pods that a node holds."""
        return int(self.used[PODS_DIM, column])


def _padded(array: IntArray, rows: int, columns: int) -> IntArray:
    more_rows = max(0, rows - array.shape[0])
    more_columns = max(0, columns - array.shape[1])
    return np.pad(array, ((0, more_rows), (0, more_columns)))
