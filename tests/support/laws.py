"""What laws and tests of costs share: examples that count, work that is counted, configurations.

A law on drawn clusters that loops over evictions holds on every cluster in which no pod is evicted.
So the law counts the evictions it saw (hits), hypothesis searches for examples with more of them,
and the whole run needs a least number of examples with any::

    @needs_hits(at_least=60)
    @given(worlds)
    def test_a_law_of_evictions(world):
        plan = world.decide()
        count_hits(plan.evictions)
        ...
"""

import functools
import subprocess
import sys
from collections.abc import Callable, Sized
from functools import cache, partial
from pathlib import Path
from typing import Any, ParamSpec

from hypothesis import target

from services.scheduler.config import SchedulerConfig
from services.scheduler.decide import configure
from services.scheduler.policy import catalog
from services.scheduler.policy.vendors.mindcluster import MindclusterNpus

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


def lines_run(work: Callable[[], object]) -> int:
    """Return how many lines of Python a call runs: the work that it does, whatever the machine."""
    count = 0

    def trace(_frame: Any, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def many_expressions(size: int) -> dict[str, Any]:
    """Return a selector that matches every pod, after a look at each of its expressions."""
    return {
        "matchExpressions": [
            {"key": f"key-{n}", "operator": "NotIn", "values": ["x"]} for n in range(size)
        ]
    }


ROOT = Path(__file__).parents[2]


def printed_under_hash_seeds(script: str) -> set[str]:
    """Return what a script printed under three hash seeds; one element means: it does not."""
    return {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("0", "1", "2")
    }


@cache
def configured(text: str) -> SchedulerConfig:
    """Return what a configuration file says to the built-in plugins. Raises `BadConfig`."""
    return configure(text)


LISTENING = tuple(
    partial(MindclusterNpus, on=True) if state is MindclusterNpus else state
    for state in catalog.STATES
)
"""The states of policy, with that of MindCluster switched on."""
