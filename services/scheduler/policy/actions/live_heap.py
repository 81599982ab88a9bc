"""A heap whose order may change while things wait in it.

Evictions change the shares of jobs and queues that are still waiting for their turn. Upstream
compares when things move within its heaps, never all of them again; so does this one, because who
comes next after a change depends on it.
"""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

_T = TypeVar("_T")


class LiveHeap(Generic[_T]):
    """A binary heap that asks `first(a, b)` anew whenever two things meet."""

    def __init__(self, first: Callable[[_T, _T], bool], things: Iterable[_T] = ()) -> None:
        self._first = first
        self._things: list[_T] = []
        for thing in things:
            self.push(thing)

    def __bool__(self) -> bool:
        return bool(self._things)

    def push(self, thing: _T) -> None:
        """Add a thing."""
        things, at = self._things, len(self._things)
        things.append(thing)
        while at:
            parent = (at - 1) // 2
            if not self._first(things[at], things[parent]):
                break
            things[at], things[parent] = things[parent], things[at]
            at = parent

    def pop(self) -> _T:
        """Remove and return the first thing."""
        things = self._things
        last = len(things) - 1
        things[0], things[last] = things[last], things[0]
        at = 0
        while (child := 2 * at + 1) < last:
            if child + 1 < last and self._first(things[child + 1], things[child]):
                child += 1
            if not self._first(things[child], things[at]):
                break
            things[at], things[child] = things[child], things[at]
            at = child
        return things.pop()
