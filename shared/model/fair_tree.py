"""Slurm's Fair Tree: who comes first by usage over share, level by level of the tree of queues.

Among siblings (the queues of one parent, or the users of one queue), with usage u and share s,

    usage over share = (u / sum of all u) / (s / sum of all s)

A value of 1 is a fair part, more is too much. It is the reciprocal of Slurm's "level fair share".
Queues compare by the values of their paths from the root down, so that a deeper level decides only
between equals above. The usage of a queue includes that of all queues below it.
Source: https://slurm.schedmd.com/fair_tree.html
"""

import math
from collections.abc import Mapping


def usage_over_share(usage: Mapping[str, float], shares: Mapping[str, float]) -> dict[str, float]:
    """Return the value of each sibling in `shares`; infinite for a share of 0.

    Args:
        usage: Usage per sibling in any one unit; absent: none.
        shares: Share per sibling, not negative.
    """
    used = sum(usage.get(name, 0.0) for name in shares)
    total = sum(shares.values())
    return {
        name: _ratio(usage.get(name, 0.0), used, share, total) for name, share in shares.items()
    }


def paths(
    parents: Mapping[str, str], usage: Mapping[str, float], shares: Mapping[str, float]
) -> dict[str, tuple[float, ...]]:
    """Return queue → usage over share of each level, from the root down; the smallest comes first.

    Args:
        parents: Queue → its parent; a parent that is no queue is the root.
        usage: Queue → usage of its own users.
        shares: Queue → its share among the queues of its parent.
    """
    chains = {queue: _chain(queue, parents) for queue in parents}
    whole = dict.fromkeys(parents, 0.0)
    siblings: dict[str, dict[str, float]] = {}
    for queue, chain in chains.items():
        siblings.setdefault(chain[1] if len(chain) > 1 else "", {})[queue] = shares[queue]
        for ancestor in chain:
            whole[ancestor] += usage.get(queue, 0.0)
    values: dict[str, float] = {}
    for of_parent in siblings.values():
        values |= usage_over_share(whole, of_parent)
    return {queue: tuple(values[q] for q in reversed(chain)) for queue, chain in chains.items()}


def _chain(queue: str, parents: Mapping[str, str]) -> list[str]:
    """Return a queue and its ancestors, each once even if the parents make a circle."""
    chain = [queue]
    while (parent := parents[chain[-1]]) in parents and parent not in chain:
        chain.append(parent)
    return chain


def _ratio(used: float, of_used: float, share: float, of_shares: float) -> float:
    if share <= 0.0:
        return math.inf
    return used / of_used / (share / of_shares) if of_used > 0.0 else 0.0
