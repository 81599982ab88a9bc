"""HyperNodes over the ledger's columns, rebuilt only when HyperNodes, node names or labels change.

`HyperNodes` folds the objects and keeps their `Layout` between cycles: with a virtual HyperNode
above all others (SS02), so that "the whole cluster" is a HyperNode too.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
from msgspec.structs import replace

from pumice.plugins import IntArray
from services.scheduler.engine.nodes.nodes import Nodes
from shared.api.topology import HyperNode, HyperNodeSpec
from shared.model.hypernodes import Forest, forest

TOP: Final = "<cluster-top-hypernode>"
"""The virtual HyperNode above all others."""


class HyperNodes:
    """The HyperNode objects and the forest of nodes that they describe."""

    def __init__(self) -> None:
        self._specs: dict[str, HyperNodeSpec] = {}
        self._version = 0
        self._made: tuple[tuple[int, int], Layout] | None = None

    def put(self, name: str, obj: HyperNode) -> None:
        """Store an object."""
        if self._specs.get(name) != obj.spec:
            self._specs[name] = obj.spec
            self._version += 1

    def remove(self, name: str) -> None:
        """Forget an object."""
        if self._specs.pop(name, None) is not None:
            self._version += 1

    def layout(self, nodes: Nodes) -> "Layout":
        """Return the layout, rebuilt only if HyperNodes, node names or labels changed."""
        state = (self._version, nodes.attributes.generation)
        if self._made is None or self._made[0] != state:
            labels = nodes.attributes.labels_by_name() if self._specs else {}
            self._made = (state, Layout(forest(self._specs, labels), nodes))
        return self._made[1]


class Layout:
    """HyperNodes over columns, including the virtual one above all others (SS02)."""

    def __init__(self, below: Forest, nodes: Nodes) -> None:
        self._nodes = nodes
        self.size = nodes.ledger.size
        self.is_empty = not below.by_tier
        """Whether the virtual HyperNode is the only one."""
        self.forest = with_top(below, nodes.attributes.names)
        self.tiers = sorted(self.forest.by_tier)
        self._columns: dict[str, IntArray] = {}
        self._at_tier: dict[int, IntArray] = {}

    def columns(self, name: str) -> IntArray:
        """Return the columns of the nodes below a HyperNode; none for an unknown one."""
        found = self._columns.get(name)
        if found is None:
            places = [self._nodes.column(node) for node in self.forest.nodes.get(name, ())]
            found = np.array(sorted(p for p in places if p >= 0), dtype=np.int64)
            self._columns[name] = found
        return found

    def at_tier(self, tier: int) -> IntArray:
        """Return per column its HyperNode of a tier: position in `by_tier`, -1 = none."""
        found = self._at_tier.get(tier)
        if found is None:
            found = np.full(self.size, -1, dtype=np.int64)
            for number, name in reversed(list(enumerate(self.forest.by_tier.get(tier, ())))):
                found[self.columns(name)] = number
            self._at_tier[tier] = found
        return found


def with_top(below: Forest, nodes: Mapping[str, object] | list[str]) -> Forest:
    """Return a forest with the virtual HyperNode above all roots (SS02)."""
    roots = sorted(name for name in below.tiers if name not in below.parents)
    tier = max((*below.by_tier, 0)) + 1
    return replace(
        below,
        tiers={**below.tiers, TOP: tier},
        parents={**below.parents, **dict.fromkeys(roots, TOP)},
        children={**below.children, TOP: tuple(roots)},
        nodes={**below.nodes, TOP: frozenset(name for name in nodes if name)},
        by_tier={**below.by_tier, tier: (TOP,)},
    )
