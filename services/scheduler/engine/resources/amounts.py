"""Bounds of amounts, and sums of them that cannot overflow.

API objects may state any amount, and any number of objects may do so; arrays of amounts are int64.
An amount is therefore bounded where it enters (`Dimensions.vector`): what nodes have at `NODE_MAX`,
what a pod asks for just beyond it, so that it fits no node, and everything else at `AMOUNT_MAX`.
Sums over any number of objects stop at `AMOUNT_MAX` and come back exactly (`Sums`); eight of them
can be added before int64 ends.
"""

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pumice.plugins import IntArray

AMOUNT_MAX: Final = 1 << 60
"""Limit of sums, and of what queues and PodGroups state: 1 EiB of bytes."""
USED_MAX: Final = 1 << 52
"""Maximum that a node shows as used; even after the largest release it has no room."""
RELEASING_MAX: Final = 1 << 51
"""Maximum that a node shows as being released."""


class Sums:
    """An array of sums: exact inside, at most `AMOUNT_MAX` outside.

    Members are weighed when they come and go; a weight is no less than any of a member's amounts.
    While the weights together are within `AMOUNT_MAX`, int64 is exact. Beyond, sums are kept as
    Python integers and shown bounded, which is slow and seldom.
    """

    __slots__ = ("_exact", "_weight", "value")

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._weight = 0
        self._exact: NDArray[Any] | None = None
        self.value: IntArray = np.zeros(shape, dtype=np.int64)
        """The sums, to be read only."""

    def weigh(self, weight: int) -> None:
        """Record the weight of a member before it is added, or (negative) after it was removed."""
        self._weight += weight
        if self._exact is None:
            if self._weight > AMOUNT_MAX:
                self._exact = self.value.astype(object)
        elif self._weight <= AMOUNT_MAX:
            self.value = self._exact.astype(np.int64)
            self._exact = None

    def add(self, row: int, count: int, amounts: IntArray) -> None:
        """Add `count` times these amounts to a row."""
        if self._exact is None:
            row_sums = self.value[row]
            row_sums += amounts if count == 1 else count * amounts
        else:
            self._exact[row] += count * amounts.astype(object)
            self.value[row] = np.minimum(self._exact[row], AMOUNT_MAX).astype(np.int64)

    def add_rows(self, sign: int, amounts: IntArray) -> None:
        """Add amounts to all rows, or (-1) subtract them."""
        if self._exact is None:
            if sign > 0:
                self.value += amounts
            else:
                self.value -= amounts
        else:
            self._exact += sign * amounts.astype(object)
            self.value = np.minimum(self._exact, AMOUNT_MAX).astype(np.int64)

    def stretch(self, capacity: int) -> None:
        """Make room for more resources."""
        self.value = stretched(self.value, capacity)
        if self._exact is not None:
            self._exact = stretched(self._exact, capacity)


def stretched(array: NDArray[Any], capacity: int) -> NDArray[Any]:
    """Return an array with room for so many resources in its last axis."""
    missing = capacity - array.shape[-1]
    if missing <= 0:
        return array
    return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, missing)])


def total_of(amounts: Iterable[IntArray], empty: IntArray) -> IntArray:
    """Return the sum of non-negative arrays, `AMOUNT_MAX` at most; `empty` gives the shape."""
    result: IntArray = np.zeros_like(empty)
    for each in amounts:
        result += each
        np.minimum(result, AMOUNT_MAX, out=result)
    return result


def total_of_columns(amounts: IntArray) -> IntArray:
    """Return the sum of the columns of non-negative amounts, `AMOUNT_MAX` at most per row."""
    if int(amounts.max(initial=0)) * amounts.shape[1] <= AMOUNT_MAX:
        total: IntArray = amounts.sum(axis=1)
        return total
    bounded: IntArray = np.minimum(amounts.astype(object).sum(axis=1), AMOUNT_MAX).astype(np.int64)
    return bounded
