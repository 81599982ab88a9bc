"""Counts the examples in which a law met what it is about, and fails a law that hardly ever did.

A law on drawn clusters that loops over evictions holds on every cluster in which no pod is evicted.
So the law says what it met, the search for examples goes where it meets more, and a floor is held
over the whole run::

    @met_in(at_least=60)
    @given(worlds)
    def test_a_law_of_evictions(world):
        plan = world.decide()
        meet(plan.evictions)
        ...
"""

import functools
from collections.abc import Callable, Sized
from typing import ParamSpec

from hypothesis import target

_P = ParamSpec("_P")
_met: list[int] = []
"""How much each example of the running law has met."""


def meet(*found: Sized) -> None:
    """Say what an example of a law has met; to be called once for each example."""
    much = sum(map(len, found))
    _met.append(much)
    target(float(much), label="met")


def met_in(*, at_least: int) -> Callable[[Callable[_P, None]], Callable[_P, None]]:
    """Hold a law to a number of examples that meet something; goes above `given`."""

    def holding(law: Callable[_P, None]) -> Callable[_P, None]:
        @functools.wraps(law)
        def run(*args: _P.args, **kwargs: _P.kwargs) -> None:
            _met.clear()
            law(*args, **kwargs)
            hits = sum(map(bool, _met))
            assert hits >= at_least, f"{hits} of {len(_met)} examples met what the law is about"

        return run

    return holding
