"""How full each node is: the ledger of the scheduler's engine, in quantities."""

from collections.abc import Sequence
from typing import Final

from services.scheduler.engine.resources.dimensions import PODS_DIM, quantity
from services.scheduler.engine.state.cluster_state import ClusterState
from shared.api.meta import ObjectMeta
from shared.api.selectors import Taint
from shared.api.visibility import NodeUse

_AWAY: Final = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
"""Taints that a node has while it is not ready; the engine reads taints, not conditions."""


def node_uses(state: ClusterState) -> tuple[NodeUse, ...]:
    """Return how full each node is, by name."""
    nodes, names = state.nodes, state.dimensions.names
    ledger, attributes = nodes.ledger, nodes.attributes
    count = len(names)
    cordoned, away = attributes.unschedulable().tolist(), attributes.taints(_is_away).tolist()
    found = []
    for column in ledger.alive[: ledger.size].nonzero()[0].tolist():
        has = ledger.allocatable[:count, column].tolist()
        used = ledger.used[:count, column].tolist()
        told = [at for at in range(count) if has[at] > 0]
        found.append(
            NodeUse(
                metadata=ObjectMeta(name=attributes.names[column]),
                ready=not away[column],
                unschedulable=cordoned[column],
                pods=used[PODS_DIM],
                allocatable={names[at]: quantity(names[at], has[at]) for at in told},
                allocated={names[at]: quantity(names[at], used[at]) for at in told if used[at]},
            )
        )
    return tuple(sorted(found, key=lambda node: node.metadata.name))


def _is_away(taints: Sequence[Taint]) -> int:
    return int(any(taint.key in _AWAY for taint in taints))
