"""Assigns nodes to shards, and orders the writes of NodeShards (S01, S03).

Each shard takes its nodes from those that no shard before it took. A node is in one shard at most,
also between two writes: it is taken out of one NodeShard in a first wave of writes, and put into
another in a second.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from services.controller.sharding.policies import NodeLoad, Weighted

Desired = Mapping[str, Sequence[str]]
"""Name of a NodeShard → its nodes."""
_TENTH: Final = 10


class ShardSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One scheduler's shard, and the policies that choose its nodes."""

    name: str
    policies: tuple[Weighted, ...]


def assign(
    shards: Sequence[ShardSpec], nodes: Collection[NodeLoad], present: Desired
) -> dict[str, tuple[str, ...]]:
    """Return the nodes of each shard, by name.

    Of nodes with the same score a shard prefers those that it has at `present`. All shards stay
    unchanged while none differs enough, because changing only some would put a node into two
    shards.
    """
    free = {node.name: node for node in nodes}
    found: dict[str, tuple[str, ...]] = {}
    for shard in shards:
        chosen = [node.name for node in _choose(shard, free.values(), present.get(shard.name, ()))]
        for name in chosen:
            del free[name]
        found[shard.name] = tuple(sorted(chosen))
    known = {node.name for node in nodes}
    sound = _is_disjoint(present) and known.issuperset(_all(present))
    if sound and not any(_differs(present, *one) for one in found.items()):
        return {name: tuple(present[name]) for name in found}
    return found


def waves(
    present: Desired, desired: Desired
) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """Return the nodes of the NodeShards of the first wave of writes, and of the second.

    A NodeShard of no scheduler gets no nodes. One that gains nodes loses others first.
    """
    first = {
        name: tuple(sorted(set(desired.get(name, ())) & set(nodes)))
        for name, nodes in present.items()
    }
    less = {name: nodes for name, nodes in first.items() if set(nodes) != set(present[name])}
    more = {
        name: tuple(nodes)
        for name, nodes in desired.items()
        if name not in present or set(nodes) != set(first[name])
    }
    return less, more


def _choose(
    shard: ShardSpec, nodes: Collection[NodeLoad], present: Collection[str]
) -> Sequence[NodeLoad]:
    here = frozenset(present)
    eligible = [n for n in nodes if all(one.policy.keeps(n) for one in shard.policies)]
    chosen: Sequence[NodeLoad] = sorted(
        eligible, key=lambda node: (-_score(shard, node), node.name not in here, node.name)
    )
    for one in shard.policies:
        chosen = one.policy.select(chosen)
    return chosen


def _score(shard: ShardSpec, node: NodeLoad) -> float:
    return sum(one.weight * one.policy.score(node) for one in shard.policies)


def _differs(present: Desired, name: str, nodes: Sequence[str]) -> bool:
    """Return whether a shard differs enough: in the number of nodes, or in a tenth of them."""
    if name not in present or len(present[name]) != len(nodes):
        return True
    return len(set(nodes) - set(present[name])) >= max(1, len(nodes) // _TENTH)


def _is_disjoint(present: Desired) -> bool:
    return len(set(_all(present))) == sum(len(nodes) for nodes in present.values())


def _all(present: Desired) -> Iterator[str]:
    return (node for nodes in present.values() for node in nodes)
