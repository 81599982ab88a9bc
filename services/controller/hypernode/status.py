"""How many nodes are below each HyperNode (H01)."""

from collections.abc import Iterator, Mapping

from shared.api.topology import HyperNode, HyperNodeStatus
from shared.model.hypernodes import Labels, forest


def statuses(
    hypernodes: Mapping[str, HyperNode], nodes: Mapping[str, Labels]
) -> Iterator[tuple[HyperNode, HyperNodeStatus]]:
    """Yield the HyperNodes whose status is not what it should be, and what it should be.

    A node that is named but does not exist is not counted.
    """
    found = forest({name: one.spec for name, one in hypernodes.items()}, nodes)
    for name, one in sorted(hypernodes.items()):
        count = len(found.nodes.get(name, frozenset()) & nodes.keys())
        if count != one.status.node_count:
            conditions = one.status.conditions
            yield one, HyperNodeStatus(conditions=conditions, node_count=count)
