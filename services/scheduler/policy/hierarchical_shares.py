"""Hierarchical dominant shares: a tree of queues with jobs as leaves; pure arithmetic (PL04).

The amounts of a branch are the sums of its children, after those that can still grow were scaled
down to the smallest share among them. So a branch is not charged for resources that one child uses
because no other child could. A job is *saturated* if it has all it requests of some resource, or
requests one that is used up; a branch is if all below it are.

The jobs of a branch are rows of arrays: after a change, branches on the path are recomputed, all
of them when a resource became used up or free.
"""

from collections.abc import Sequence

import numpy as np

from pumice.plugins import BoolArray, FloatArray, IntArray
from services.scheduler.policy.shares import dominant_share
from shared.model.resources import EPSILON

Path = tuple[str, ...]


class Branch:
    """A node above jobs."""

    __slots__ = (
        "_allocated",
        "_children",
        "_request",
        "_rows",
        "amounts",
        "saturated",
        "share",
        "weight",
    )

    def __init__(self, weight: float, size: int) -> None:
        self.weight = weight
        self.share = 0.0
        self.saturated = False
        self.amounts: FloatArray = np.zeros(size)
        self._children: dict[str, Branch] = {}
        self._rows: dict[str, int] = {}
        self._allocated: list[IntArray] = []
        self._request: list[IntArray] = []

    def child(self, name: str) -> "Branch | None":
        """Return the branch of that name below."""
        return self._children.get(name)

    def grow(self, name: str, weight: float) -> "Branch":
        """Return the child branch of that name; the first call sets its weight."""
        found = self._children.get(name)
        if found is None:
            found = self._children[name] = Branch(weight, len(self.amounts))
        return found

    def admit(self, job: str, request: IntArray) -> None:
        """Add a job without allocation; `request` is its total request."""
        self._rows[job] = len(self._rows)
        self._allocated.append(np.zeros_like(request))
        self._request.append(request)

    def hold(self, job: str, amounts: IntArray) -> None:
        """Count amounts for a job."""
        row = self._rows[job]
        self._allocated[row] = self._allocated[row] + amounts

    def compute_all(self, total: IntArray, free: BoolArray) -> None:
        """Compute share and saturation of all branches below, then of this one; not recursive."""
        found = [self]
        for branch in found:
            found += branch._children.values()  # noqa: SLF001 - another branch
        for branch in reversed(found):
            branch.compute(total, free)

    def compute(self, total: IntArray, free: BoolArray) -> None:
        """Compute share and saturation from the current values of the children."""
        amounts = [branch.amounts for branch in self._children.values()]
        shares = [branch.share for branch in self._children.values()]
        saturated = [branch.saturated for branch in self._children.values()]
        if self._rows:
            allocated, requested = np.stack(self._allocated), np.stack(self._request)
            amounts += list(allocated.astype(np.float64))
            shares += _shares(allocated, total)
            saturated += _saturated(allocated, requested, free)
        taking = [s for s, full in zip(shares, saturated, strict=True) if s and not full]
        smallest = min(1.0, *taking) if taking else 1.0
        self.amounts = np.zeros(len(total))
        for amount, share, full in zip(amounts, shares, saturated, strict=True):
            if share:
                self.amounts += amount if full else amount * (smallest / share)
        self.share = dominant_share(self.amounts, total)
        self.saturated = all(saturated)


def _shares(allocated: IntArray, total: IntArray) -> list[float]:
    has = total >= EPSILON
    if not has.any():
        return [0.0] * len(allocated)
    shares: list[float] = (allocated[:, has] / total[has]).max(axis=1, initial=0.0).tolist()
    return shares


def _saturated(allocated: IntArray, requested: IntArray, free: BoolArray) -> list[bool]:
    both = (allocated > 0) & (requested != 0)
    full: list[bool] = (both & ((allocated >= requested) | ~free)).any(axis=1).tolist()
    return full


class Tree:
    """The tree of one session."""

    def __init__(self, total: IntArray) -> None:
        self._total = total
        self._taken: IntArray = np.zeros_like(total)
        self._root = Branch(1.0, len(total))
        self._free: BoolArray | None = None
        self._stale: list[Path] = []

    def admit(self, path: Path, weights: Sequence[float], job: str, request: IntArray) -> None:
        """Add a job of the queue at `path`; `request` is its total request."""
        branch = self._root
        for at, name in enumerate(path[1:], start=1):
            branch = branch.grow(name, weights[at] if at < len(weights) else 1.0)
        branch.admit(job, request)
        self._stale.append(path)

    def hold(self, path: Path, job: str, amounts: IntArray) -> None:
        """Add amounts to a job's allocation; negative ones are subtracted."""
        self._taken = self._taken + amounts
        self._branches(path)[-1].hold(job, amounts)
        self._stale.append(path)

    def compare(self, left: Path, right: Path) -> float:
        """Return a negative number when the left queue is served first, a positive one when last.

        From the root down, the first level at which the two differ decides: an unsaturated queue
        goes before a saturated one, then the smaller share per weight.
        """
        self._refresh()
        one: Branch | None = self._root
        other: Branch | None = self._root
        depth = min(len(left), len(right))
        for at in range(depth):
            if one is None or other is None:
                return 0.0
            if one.saturated != other.saturated:
                return 1.0 if one.saturated else -1.0
            difference = one.share / one.weight - other.share / other.weight
            if difference:
                return difference
            if at < depth - 1:
                one, other = one.child(left[at + 1]), other.child(right[at + 1])
        return 0.0

    def _refresh(self) -> None:
        free: BoolArray = self._taken < self._total
        if self._free is None or (free != self._free).any():
            self._root.compute_all(self._total, free)
        else:
            for path in self._stale:
                self._climb(path, free)
        self._free = free
        self._stale = []

    def _climb(self, path: Path, free: BoolArray) -> None:
        for branch in reversed(self._branches(path)):
            branch.compute(self._total, free)

    def _branches(self, path: Path) -> list[Branch]:
        """Return the branches from the root down to a queue's."""
        branches = [self._root]
        for name in path[1:]:
            below = branches[-1].child(name)
            assert below is not None, f"no job of a queue at {'/'.join(path)} was admitted"
            branches.append(below)
        return branches
