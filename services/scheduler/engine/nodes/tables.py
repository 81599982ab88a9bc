"""The tables of nodes as plugins read them (`pumice.plugins.Nodes`): the ledger and the labels."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from pumice.plugins import BoolArray, IntArray
from services.scheduler.engine.nodes.nodes import Nodes


class NodeTables:
    """Views of the columns in use; `pumice.plugins.Nodes` says what they mean."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._ledger = nodes.ledger
        self._labels: dict[str, Mapping[str, str]] | None = None

    def _columns(self, amounts: IntArray) -> IntArray:
        return amounts[:, : self._ledger.size]

    @property
    def alive(self) -> BoolArray:
        """Which columns are nodes."""
        return self._ledger.alive[: self._ledger.size]

    @property
    def unschedulable(self) -> BoolArray:
        """Which nodes are cordoned."""
        return self._nodes.attributes.unschedulable()

    @property
    def allocatable(self) -> IntArray:
        """Allocatable amounts."""
        return self._columns(self._ledger.allocatable)

    @property
    def used(self) -> IntArray:
        """Amounts that placed tasks hold."""
        return self._columns(self._ledger.used)

    @property
    def releasing(self) -> IntArray:
        """Amounts that terminating tasks hold."""
        return self._columns(self._ledger.releasing)

    @property
    def pipelined(self) -> IntArray:
        """Amounts that waiting tasks were promised."""
        return self._columns(self._ledger.pipelined)

    @property
    def evicted(self) -> IntArray:
        """Amounts that this session's evictions will free."""
        return self._columns(self._ledger.evicted)

    def total_used(self) -> IntArray:
        """Return what is used on all nodes."""
        return self._ledger.total_used()

    def column(self, name: str) -> int:
        """Return a node's column, -1 when there is no such node."""
        return self._nodes.column(name)

    def label(self, key: str) -> NDArray[np.object_]:
        """Return the value of a label per column."""
        return self._nodes.attributes.values(key)

    def labels(self, name: str) -> Mapping[str, str]:
        """Return all labels of a node."""
        if self._labels is None:
            self._labels = self._nodes.attributes.labels_by_name()
        return self._labels.get(name, {})
