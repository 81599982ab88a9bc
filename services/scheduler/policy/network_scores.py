"""Arithmetic of network-topology-aware (PL17): pure numbers, no session.

Scores are 0…1 here; the plugin scales them.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from pumice.plugins import FloatArray, IntArray
from shared.model.hypernodes import Forest

FULL = 1.0


class RequestedResource(NamedTuple):
    """One requested resource, and the amounts of each HyperNode."""

    weight: int
    request: int
    used: IntArray
    allocatable: IntArray


def binpacked(requested: Sequence[RequestedResource], count: int) -> FloatArray:
    """Return the utilisation of each of `count` HyperNodes with the request: the weighted mean.

    0 for one that any resource would overfill, and for all when no weight counts.
    """
    total = np.zeros(count, dtype=np.float64)
    overfull = np.zeros(count, dtype=np.bool_)
    weights = sum(resource.weight for resource in requested)
    for resource in requested:
        then = resource.used + resource.request
        overfull |= then > resource.allocatable
        total += resource.weight * (then / np.maximum(resource.allocatable, 1))
    if weights <= 0:
        return np.zeros(count, dtype=np.float64)
    total /= weights
    total[overfull] = 0.0
    return total


_TIERS_MAX = 1_000
"""Maximum of tiers and exponents: a HyperNode may state any number."""


def tier_weights(tiers: Sequence[int], fading: float) -> dict[int, float]:
    """Return the weight of each tier for tasks without a topology: smaller for higher tiers.

    `tiers` are those that have HyperNodes, the lowest first; tiers between them count, too, where
    they are few. The exponent counts from tier 1, also if the lowest one is another. A fading of 0
    leaves only tier 1; below tier 1 weights would be infinite, so the tier counts as 1.
    """
    lowest, highest = tiers[0], tiers[-1]
    counted = range(lowest, highest + 1) if highest - lowest <= _TIERS_MAX else tiers
    return {
        tier: fading ** min(tier - 1, _TIERS_MAX) if fading or tier >= 1 else 1.0
        for tier in counted
    }


def tier_score(tier: int, lowest: int, highest: int) -> float:
    """Return 1 for the lowest tier … 0 for the highest."""
    if lowest == highest:
        return FULL
    return (highest - tier) / (highest - lowest) if lowest <= tier <= highest else 0.0


def nearness(forest: Forest, place: str, so_far: str, lowest: int, highest: int) -> float:
    """Return the nearness of two HyperNodes: by the tier of their lowest common one."""
    if not place or not so_far:
        return 0.0
    if place == so_far:
        return FULL
    both = forest.common_ancestor(place, so_far)
    return tier_score(forest.tiers[both], lowest, highest) if both in forest.tiers else 0.0


def with_tie_break(scores: FloatArray, shares: Callable[[], FloatArray]) -> FloatArray:
    """Add a second score to those that share the best first score."""
    best = scores == scores.max(initial=-1.0)
    if best.sum() > 1:
        return np.where(best, scores + shares(), scores)
    return scores


def gradient(
    forest: Forest, root: str, limit: int, so_far: str, eligible: Callable[[str], bool]
) -> list[list[str]]:
    """Return the HyperNodes at or below `root` to try, by tier from the lowest, names sorted.

    A group with placed tasks stays within its highest HyperNode that the limit allows; room is not
    checked then, because its tasks there count as well.
    """
    start = _start(forest, root, limit, so_far)
    if start is None:
        return []
    levels: dict[int, list[str]] = {}
    for name in forest.below(start):
        tier = forest.tiers.get(name)
        if tier is not None and tier <= limit and (so_far or eligible(name)):
            levels.setdefault(tier, []).append(name)
    return [sorted(names) for _, names in sorted(levels.items())]


def _start(forest: Forest, root: str, limit: int, so_far: str) -> str | None:
    """Return the root of the search: the intersection of `root` and the group's own bounds."""
    if not so_far:
        return root
    highest = ""
    for name in forest.ancestors(so_far):
        if name not in forest.tiers:
            return None
        if forest.tiers[name] > limit:
            break
        highest = name
    if not highest:
        return None
    both = forest.common_ancestor(root, highest)
    if both == highest:
        return root
    return highest if both == root else None


def cut_for_eviction(levels: list[list[str]], most: int) -> list[list[str]]:
    """Return at most `most` HyperNodes, widest first: more room, more victims to choose from."""
    result = []
    for names in reversed(levels):
        if most <= 0:
            break
        result.append(names[-most:] if len(names) > most else names)
        most -= len(result[-1])
    return result
