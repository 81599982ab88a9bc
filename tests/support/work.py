"""How much work a call does, counted in lines of Python that it runs: the same on each machine."""

import sys
from collections.abc import Callable
from typing import Any


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
