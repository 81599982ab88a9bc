"""Counts the examples that exercise a law (hits), and fails a law with too few of them.

A law on drawn clusters that loops over evictions holds on every cluster in which no pod is evicted.
So the law counts the evictions it saw, hypothesis searches for examples with more of them, and the
whole run needs a least number of examples with any::

    @needs_hits(at_least=60)
    @given(worlds)
    def test_a_law_of_evictions(world):
        plan = world.decide()
        count_hits(plan.evictions)
        ...
"""

import functools
from collections.abc import Callable, Sized
from typing import ParamSpec

from hypothesis import target

_P = ParamSpec("_P")
_met: list[int] = []
"""How many hits each example of the running law had."""


def count_hits(*found: Sized) -> None:
    """Count what an example of a law exercised; called once for each example."""
    much = sum(map(len, found))
    _met.append(much)
    target(float(much), label="met")


def needs_hits(*, at_least: int) -> Callable[[Callable[_P, None]], Callable[_P, None]]:
    """Have a law fail unless so many examples had hits; goes above `given`."""

    def holding(law: Callable[_P, None]) -> Callable[_P, None]:
        @functools.wraps(law)
        def run(*args: _P.args, **kwargs: _P.kwargs) -> None:
            _met.clear()
            law(*args, **kwargs)
            hits = sum(map(bool, _met))
            assert hits >= at_least, f"{hits} of {len(_met)} examples met what the law is about"

        return run

    return holding
