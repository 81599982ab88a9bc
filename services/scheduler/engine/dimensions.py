"""The order of resources in every amounts array of the engine.

CPU, memory and pods have fixed places; any other resource gets the next one when it is first seen
and keeps it. Arrays are allocated with `capacity` entries; when the capacity grows, `on_growth` has
the replica stretch everything that it holds.
"""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from pumice.plugins import IntArray
from shared.model.resources import CPU, MEMORY, PODS, Resource, parse_list

CPU_DIM: Final = 0
MEMORY_DIM: Final = 1
PODS_DIM: Final = 2
_FIRST_CAPACITY: Final = 16


class Dimensions:
    """Interns resource names as array positions."""

    def __init__(self, on_growth: Callable[[], None]) -> None:
        self._on_growth = on_growth
        self.names: list[str] = [CPU, MEMORY, PODS]
        self.capacity: int = _FIRST_CAPACITY
        self._index: dict[str, int] = {name: at for at, name in enumerate(self.names)}

    def index(self, name: str) -> int:
        """Return the position of a resource, giving it one if it is new."""
        at = self._index.get(name)
        if at is None:
            at = self._index[name] = len(self.names)
            self.names.append(name)
            if self.capacity < len(self.names):
                self.capacity *= 2
                self._on_growth()
        return at

    def find(self, name: str) -> int | None:
        """Return the position of a resource, None when no object ever named it."""
        return self._index.get(name)

    def vector(self, resource: Resource) -> IntArray:
        """Return the amounts array of a resource value."""
        places = [(self.index(name), int(amount)) for name, amount in resource.items()]
        result = np.zeros(self.capacity, dtype=np.int64)
        for at, amount in places:
            result[at] = amount
        return result

    def parse(self, listed: Mapping[str, str | int | float]) -> IntArray:
        """Return the amounts array of a Kubernetes resource list. Raises `BadQuantity`."""
        return self.vector(parse_list(listed))

    def present(self, resource: Resource) -> tuple[int, ...]:
        """Return the positions that a comparison with this request looks at (T07).

        CPU and memory always, every other resource when the request names it, even with zero.
        """
        return tuple(self.index(name) for name, _ in resource.items())

    def fitted(self, vector: IntArray) -> IntArray:
        """Return the array stretched to the present capacity."""
        missing = self.capacity - vector.shape[0]
        return np.pad(vector, (0, missing)) if missing else vector
