"""Sums over pods per node and per topology domain, updated one pod at a time.

Between cycles the sums are sparse (nodes with a value). The dense arrays per domain that predicates
read are built on first use in a session and updated until it ends.
"""

from collections.abc import Callable, Hashable

import numpy as np

from pumice.plugins import BoolArray, IntArray
from services.scheduler.engine.nodes.attributes import NodeAttributes


class DomainTable:
    """A sum per domain; `at` of a node without domain is 0."""

    def __init__(self, numbers: IntArray, counted: BoolArray | None) -> None:
        self.numbers = numbers
        """Domain per node, -1 for none."""
        self.into = numbers if counted is None else np.where(counted, numbers, -1)
        """The same, without nodes whose pods do not count."""
        self.domains = int(numbers.max(initial=-1)) + 1
        self.sums: IntArray = np.zeros(self.domains + 1, dtype=np.int64)
        """Sum per domain; the last entry, which -1 reads too, stays 0."""
        self.version = 0

    def add(self, column: int, amount: int) -> None:
        """Add pods of a node."""
        domain = int(self.into[column])
        if domain >= 0:
            self.sums[domain] += amount
            self.version += 1

    @property
    def at(self) -> IntArray:
        """Return the sum of its domain per node."""
        found: IntArray = self.sums[self.numbers]
        return found


class Tally:
    """Sums of one quantity over pods, per node name."""

    def __init__(
        self, column: Callable[[str], int], attributes: NodeAttributes, opened: "list[Tally]"
    ) -> None:
        self._column = column
        self._opened = opened
        self._attributes = attributes
        self.by_node: dict[str, int] = {}
        self._tables: dict[Hashable, DomainTable] = {}

    def __bool__(self) -> bool:
        return bool(self.by_node)

    def add(self, node: str, amount: int) -> None:
        """Add to a node's sum."""
        total = self.by_node.get(node, 0) + amount
        if total:
            self.by_node[node] = total
        else:
            self.by_node.pop(node, None)
        if self._tables:
            column = self._column(node)
            if column >= 0:
                for table in self._tables.values():
                    table.add(column, amount)

    def table(
        self, key: str, among: Hashable = None, counted: BoolArray | None = None
    ) -> DomainTable:
        """Return the sums per domain of a node label, of `counted` nodes' pods.

        `among` names that set of nodes; None stands for all.
        """
        found = self._tables.get((key, among))
        if found is None:
            if not self._tables:
                self._opened.append(self)
            found = DomainTable(self._attributes.numbers(key), counted)
            for node, amount in self.by_node.items():
                column = self._column(node)
                if column >= 0:
                    found.add(column, amount)
            self._tables[key, among] = found
        return found

    def forget_tables(self) -> None:
        """Drop the dense arrays, because nodes may change from now on."""
        self._tables.clear()
