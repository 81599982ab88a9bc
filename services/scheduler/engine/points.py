"""`Point`: the functions of one extension point by tier, and how votes and keys combine."""

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from pumice.plugins import Opinion, Vote

OrderKey = tuple[Any, ...]
"""What sorts first is served first; ends in something unique."""

_F = TypeVar("_F")


class Point(Generic[_F]):
    """The functions of one extension point, by tier."""

    def __init__(self) -> None:
        self.tiers: list[list[_F]] = []

    def add(self, tier: int, fn: _F) -> None:
        """Add a function to a tier."""
        while len(self.tiers) <= tier:
            self.tiers.append([])
        self.tiers[tier].append(fn)

    def all(self) -> Iterable[_F]:
        """Return the functions of all tiers in order."""
        return (fn for tier in self.tiers for fn in tier)


def permitted(point: Point[_F], ask: Callable[[_F], Opinion]) -> Opinion:
    """Combine votes (SS07: ternary): a refusal decides, a permission ends with its tier."""
    for tier in point.tiers:
        permitted = False
        for fn in tier:
            opinion = ask(fn)
            if opinion.vote is Vote.REJECT:
                return opinion
            permitted = permitted or opinion.vote is Vote.PERMIT
        if permitted:
            break
    return Opinion(Vote.PERMIT)
