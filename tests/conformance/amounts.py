"""Volcano's functions of amounts (T07), as the recorded cases call them.

Where a rule of Pumice compares in the same way, the case runs the arrays that decide
(`policy.shares`). `Resource` has the few functions that admission and requests of pods use. The
rest are functions of Volcano that no decision of Pumice needs: they are computed here, so that the
cases still hold how amounts are read to what Volcano reads.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pumice.plugins import FloatArray, IntArray
from services.scheduler.policy import shares
from shared.model.resources import CPU, EPSILON, MEMORY, PODS, Absent, Resource

_FIRST = (CPU, MEMORY, PODS)


# --- what decides --------------------------------------------------------------------------------


def _dimensions(*resources: Resource) -> list[str]:
    found = [name for resource in resources for name, _ in resource.items()]
    return [*_FIRST, *dict.fromkeys(name for name in found if name not in _FIRST)]


def _row(resource: Resource, names: Sequence[str]) -> FloatArray:
    return np.array([resource.get(name) for name in names], dtype=np.float64)


def less_equal(left: Resource, right: Resource, absent: Absent) -> bool:
    """Resource.LessEqual; an absent dimension of the engine's arrays is 0."""
    if absent is Absent.ZERO:
        names = _dimensions(left, right)
        return shares.fits(_row(left, names), _row(right, names))
    return not any(name not in (left.scalars or {}) for name in right.scalars or {}) and not (
        less_equal_names(left, right, absent)
    )


def greater_names(left: Resource, right: Resource, request: Resource) -> list[str]:
    """Return the requested dimensions in which `left` is larger."""
    names = _dimensions(left, right, request)
    asked: IntArray = _row(request, names).astype(np.int64)
    return [names[dim] for dim in shares.exceeding_of(_row(left, names), _row(right, names), asked)]


def is_zero(resource: Resource, name: str) -> bool:
    """Resource.IsZero."""
    return shares.is_empty(_row(resource, _dimensions(resource)) * (_at(resource, name)))


def _at(resource: Resource, name: str) -> FloatArray:
    return np.array([other == name for other in _dimensions(resource)], dtype=np.float64)


def diff(left: Resource, right: Resource, absent: Absent) -> list[Resource]:
    """Resource.Diff; Go's sentinel -1 stands for an infinite difference."""
    mine, theirs = dict(left.items()), dict(right.items())
    names = list(dict.fromkeys([*mine, *theirs]))
    filler = math.inf if absent is Absent.INFINITY else 0
    ours = np.array([mine.get(name, filler) for name in names])
    others = np.array([theirs.get(name, filler) for name in names])
    is_larger = ours > others
    more, less = shares.exceeded(ours, others), shares.exceeded(others, ours)
    return [
        _of({n: v for n, v, larger in zip(names, more, is_larger, strict=True) if larger}),
        _of({n: v for n, v, larger in zip(names, less, is_larger, strict=True) if not larger}),
    ]


def _of(amounts: dict[str, Any]) -> Resource:
    return Resource(
        cpu_milli=amounts.pop(CPU, 0),
        memory_bytes=amounts.pop(MEMORY, 0),
        scalars={name: -1 if amount == math.inf else amount for name, amount in amounts.items()},
    )


# --- what no rule of Pumice uses -----------------------------------------------------------------


def feasible_nodes(nodes: int, *, minimum: int, minimum_percent: int, percent: int) -> int:
    """CalculateNumOfFeasibleNodesToFind (T12): Pumice looks at all nodes."""
    if nodes <= minimum or percent >= 100:
        return nodes
    if percent <= 0:
        percent = max(minimum_percent, 50 - nodes // 125)
    return max(minimum, nodes * percent // 100)


def less(left: Resource, right: Resource, absent: Absent) -> bool:
    """Resource.Less."""
    mine, theirs = left.scalars or {}, right.scalars or {}
    if absent is Absent.INFINITY and any(name not in mine for name in theirs):
        return False
    return (
        left.cpu_milli < right.cpu_milli
        and left.memory_bytes < right.memory_bytes
        and all(
            amount < theirs.get(name, 0)
            for name, amount in mine.items()
            if name in theirs or absent is Absent.ZERO
        )
    )


def less_equal_names(left: Resource, right: Resource, absent: Absent) -> list[str]:
    """Return the dimensions in which the right side is too small."""
    theirs = right.scalars or {}
    names = [name for name in (CPU, MEMORY) if not _at_most(left.get(name), right.get(name))]
    return names + [
        name
        for name, amount in (left.scalars or {}).items()
        if (name in theirs or absent is Absent.ZERO) and not _at_most(amount, right.get(name))
    ]


def less_equal_partly(left: Resource, right: Resource, absent: Absent) -> bool:
    """Resource.LessEqualPartly."""
    mine, theirs = left.scalars or {}, right.scalars or {}
    if any(_at_most(left.get(name), right.get(name)) for name in (CPU, MEMORY)):
        return True
    if absent is Absent.ZERO and any(name not in mine for name in theirs):
        return True
    return any(
        (name not in theirs and absent is Absent.INFINITY) or _at_most(amount, right.get(name))
        for name, amount in mine.items()
    )


def fitting_names(left: Resource, right: Resource, request: Resource) -> list[str]:
    """Return the requested dimensions in which `left` is not larger."""
    asked = [name for name, amount in request.items() if amount > 0 and name != PODS]
    return [name for name in asked if _at_most(left.get(name), right.get(name))]


def fitting_known(left: Resource, right: Resource, request: Resource) -> list[str]:
    """Return `fitting_names` of the dimensions in which either side has something."""
    return [
        name
        for name in fitting_names(left, right, request)
        if max(left.get(name), right.get(name)) >= EPSILON
    ]


def greater_known(left: Resource, right: Resource, request: Resource) -> list[str]:
    """Return `greater_names` of the dimensions that the right side speaks of.

    CPU and memory with an amount, other resources also when stated as 0.
    """
    known = {name for name in (CPU, MEMORY) if right.get(name) >= EPSILON} | {
        *(right.scalars or {})
    }
    return [name for name in greater_names(left, right, request) if name in known]


def minimum(left: Resource, right: Resource, absent: Absent) -> Resource:
    """Resource.MinDimensionResource."""
    theirs = right.scalars or {}
    return Resource(
        cpu_milli=min(left.cpu_milli, right.cpu_milli),
        memory_bytes=min(left.memory_bytes, right.memory_bytes),
        scalars=left.scalars
        and {
            name: min(amount, theirs[name])
            if name in theirs
            else (0 if absent is Absent.ZERO else amount)
            for name, amount in left.scalars.items()
        },
        max_tasks=left.max_tasks,
    )


def difference(left: Resource, right: Resource) -> Resource:
    """Resource.Sub."""
    negative = {name: -amount for name, amount in (right.scalars or {}).items()}
    return left.plus(
        Resource(
            cpu_milli=-right.cpu_milli,
            memory_bytes=-right.memory_bytes,
            scalars=negative if right.scalars is not None else None,
        )
    )


def equal(left: Resource, right: Resource) -> bool:
    """Resource.Equal."""
    return all(
        abs(amount - right.get(name)) < EPSILON or amount == right.get(name)
        for name, amount in left.items()
    )


def scalar_names(left: Resource, right: Resource) -> list[str]:
    """Return the dimensions with something in them on both sides."""
    return sorted(name for name, amount in left.items() if min(amount, right.get(name)) >= EPSILON)


def _at_most(left: float, right: float) -> bool:
    return left - right < EPSILON or left == right
