"""How many nodes Volcano would look at for one task (T12). Pumice looks at all of them.

Volcano stops looking once so many nodes fit, because each costs it the same again; here all nodes
are one pass over arrays, so that no cycle asks this: the best node is never overlooked, and a task
that fits somewhere is never refused. The flags (K11) are accepted, named in the log as being
without effect, and this is their meaning, for whoever compares.
"""

from msgspec import Struct

_BASE_PERCENT = 50
_NODES_PER_PERCENT = 125
_ALL_PERCENT = 100


class Sampling(Struct, frozen=True, kw_only=True):
    """The flags, with their defaults."""

    minimum: int = 100
    """`--minimum-feasible-nodes`."""
    minimum_percent: int = 5
    """`--minimum-percentage-nodes-to-find`."""
    percent: int = 0
    """`--percentage-nodes-to-find`; 0 or less: the more nodes, the smaller a share of them."""

    def enough(self, nodes: int) -> int:
        """Return how many of `nodes` have to fit before the search ends."""
        if nodes <= self.minimum or self.percent >= _ALL_PERCENT:
            return nodes
        percent = self.percent
        if percent <= 0:
            percent = max(self.minimum_percent, _BASE_PERCENT - nodes // _NODES_PER_PERCENT)
        return max(self.minimum, nodes * percent // 100)
