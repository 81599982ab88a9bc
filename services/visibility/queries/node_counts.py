"""The smallest number of nodes of given shapes with which a gang fits."""

from collections.abc import Callable, Sequence
from typing import Final

Counts = tuple[int, ...]
"""Number of nodes per shape."""
SHAPES_MAX: Final = 4
"""Shapes of one query; each multiplies the decisions that the search takes."""


def fewest(
    fits: Callable[[Counts], bool], most: Sequence[int], *, is_over: Callable[[], bool]
) -> Counts | None:
    """Return the fewest nodes that fit, at most `most` of each shape; None if those do not.

    It is the minimum for one shape, and for several the best of some searches: each reduces the
    shapes in another order, until no shape can do with one node less. `fits` holds for more nodes
    where it holds for some. When `is_over`, the best so far counts.
    """
    if not fits(tuple(most)):
        return None
    best: Counts | None = None
    for last in range(len(most)):
        order = [*range(last + 1, len(most)), *range(last + 1)]
        found = _reduced(fits, list(most), order)
        if best is None or sum(found) < sum(best):
            best = found
        if is_over():
            break
    return best if best is not None else tuple(most)


def _reduced(fits: Callable[[Counts], bool], counts: list[int], order: Sequence[int]) -> Counts:
    """Return counts that fit, with each shape reduced in turn to what the others leave."""
    for at in order:
        low, high = 0, counts[at]
        while low < high:
            middle = (low + high) // 2
            if fits((*counts[:at], middle, *counts[at + 1 :])):
                high = middle
            else:
                low = middle + 1
        counts[at] = high
    return tuple(counts)
