"""Measured load of nodes: what a metrics source says, kept by node name.

The scheduler's shell puts samples in as they come; a session reads them. Nothing here is in the
plan's inputs from the API server: without samples every rule that reads them abstains.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from msgspec import convert
from typing_extensions import override

from pumice.plugins import FloatArray, PolicyState


class NodeUsage(NamedTuple):
    """The average load of a node over the source's period."""

    cpu_percent: float
    memory_percent: float
    measured: float
    """Unix seconds of the sample."""


class UsageTable(PolicyState):
    """The latest sample of each node."""

    name: ClassVar[str] = "usage"

    def __init__(self) -> None:
        self._by_node: dict[str, NodeUsage] = {}

    def put(self, node: str, usage: NodeUsage) -> None:
        """Store a sample."""
        self._by_node[node] = usage

    def remove(self, node: str) -> None:
        """Forget a node."""
        self._by_node.pop(node, None)

    def replace(self, samples: Mapping[str, NodeUsage]) -> None:
        """Replace the samples of all nodes."""
        self._by_node = dict(samples)

    @override
    def dump(self) -> dict[str, NodeUsage]:
        """Return all samples by node; a copy."""
        return dict(self._by_node)

    @override
    def restore(self, dumped: Any) -> None:
        """Store samples."""
        self._by_node = convert(dumped, dict[str, NodeUsage])

    def table(self, names: Sequence[str]) -> FloatArray:
        """Return CPU and memory percent and sample times: three rows, a column per name.

        Nodes that were never measured have load 0 and a sample older than any.
        """
        table = np.zeros((3, len(names)), dtype=np.float64)
        table[2] = -np.inf
        if self._by_node:
            for column, name in enumerate(names):
                usage = self._by_node.get(name)
                if usage is not None:
                    table[:, column] = usage
        return table
