"""Arithmetic of shares: pure functions of amounts, used by several plugins."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pumice.plugins import FloatArray, IntArray, Task
from services.scheduler.engine.resources.amounts import total_of
from services.scheduler.engine.resources.dimensions import PODS_DIM
from shared.model.resources import EPSILON

Amounts = NDArray[np.int64] | NDArray[np.float64]


def dominant_share(part: Amounts, whole: Amounts) -> float:
    """Return the largest part/whole over the resources that `whole` has."""
    has = whole >= EPSILON
    if not has.any():
        return 0.0
    return float((part[has] / whole[has]).max(initial=0.0))


def fits(left: Amounts, right: Amounts) -> bool:
    """Tell whether no amount exceeds the other side's by 0.1 or more (T07)."""
    return bool((left - right < EPSILON).all())


def exceeded(left: Amounts, right: Amounts) -> Amounts:
    """Return by how much `left` is larger, 0 where it is not."""
    return np.maximum(left - right, 0)


def is_empty(amounts: Amounts) -> bool:
    """Tell whether nothing is there; pods do not count (T07)."""
    has = amounts >= EPSILON
    has[PODS_DIM] = False
    return not has.any()


def requested_by(tasks: Sequence[Task], empty: IntArray) -> IntArray:
    """Return what tasks request in all, not to be changed: for a single one it is its class's."""
    if len(tasks) == 1:
        return tasks[0].task_class.request
    return total_of((task.task_class.request for task in tasks), empty)


def exceeding_of(left: Amounts, right: Amounts, request: IntArray) -> list[int]:
    """Return the requested dimensions, pods apart, in which `left` is larger; exact (T07)."""
    larger = (request > 0) & (left > right)
    larger[PODS_DIM] = False
    dims: list[int] = larger.nonzero()[0].tolist()
    return dims


def shortfalls(
    names: Sequence[str], short: Sequence[int], request: IntArray, left: Amounts
) -> tuple[tuple[str, int, int], ...]:
    """Return name, amount requested and amount left of the dimensions that are short."""
    return tuple((names[dim], int(request[dim]), max(0, int(left[dim]))) for dim in short)


def room_for(limit: FloatArray, taken: IntArray, request: IntArray, count: int) -> int:
    """Return how many of `count` equal requests stay within a limit, one after another.

    Only requested dimensions count, pods do not (T07).
    """
    for dim in (request > 0).nonzero()[0].tolist():
        if dim == PODS_DIM:
            continue
        amount, free = int(request[dim]), float(limit[dim]) - int(taken[dim])
        # int + int stays exact where the quotient of floats may be off by one.
        fitting = min(count, max(0, int(min(free, 2**62) // amount)))
        while fitting < count and int(taken[dim]) + (fitting + 1) * amount <= limit[dim]:
            fitting += 1
        while fitting and int(taken[dim]) + fitting * amount > limit[dim]:
            fitting -= 1
        count = fitting
    return count


def water_fill(
    total: FloatArray,
    weights: FloatArray,
    request: FloatArray,
    ceiling: FloatArray,
    floor: FloatArray,
) -> FloatArray:
    """Return what each queue deserves (PL05).

    Rows are queues. What is left is dealt out by weight, round after round, to the queues that have
    not got what they request or may have; no queue gets less than its floor.
    """
    deserved = np.zeros_like(request)
    remaining = total.astype(np.float64)
    hungry = np.ones(len(weights), dtype=np.bool_)
    while (weight := weights[hungry].sum()) > 0:
        before = deserved.copy()
        dealt = deserved + remaining[None, :] * (weights / weight)[:, None]
        desired = np.maximum(np.minimum(np.minimum(dealt, ceiling), request), floor)
        deserved[hungry] = desired[hungry]
        satisfied = (request - deserved < EPSILON).all(axis=1)
        unchanged = (deserved == before).all(axis=1)
        hungry &= ~(satisfied | unchanged)
        change = deserved - before
        given = np.maximum(change, 0).sum(axis=0)
        returned = np.maximum(-change, 0).sum(axis=0)
        left = np.maximum(remaining + returned - given, 0)
        if is_empty(left) or (left == remaining).all():
            break
        remaining = left
    return deserved
