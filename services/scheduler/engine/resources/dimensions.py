"""The order of resources in every amounts array of the engine.

CPU, memory and pods have fixed places; any other resource gets the next one when it is first seen
and keeps it. Arrays are allocated with `capacity` entries; when the capacity grows, `on_growth` has
the cluster state stretch everything that it holds.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

import numpy as np

from pumice.plugins import IntArray
from services.scheduler.engine.resources.amounts import AMOUNT_MAX
from shared.model.quantity import format_bytes, format_decimal, format_milli, milli
from shared.model.resources import CPU, EPHEMERAL, MEMORY, PODS, Amount, Resource, parse_list

CPU_DIM: Final = 0
MEMORY_DIM: Final = 1
PODS_DIM: Final = 2
_FIRST_CAPACITY: Final = 16
_NAMES: Final = 4096
"""Most resource names for which `is_managed` is cached."""


def is_in_bytes(name: str) -> bool:
    """Tell whether a resource is counted in bytes, not in pieces or thousandths."""
    return name in {MEMORY, EPHEMERAL} or name.startswith("hugepages-")


def per_unit(name: str) -> int:
    """Return the amount of its dimension that one byte, pod, core or piece of a resource is."""
    return 1 if name == PODS or is_in_bytes(name) else 1000


def counted(name: str, amount: Amount) -> int:
    """Return an amount of a `Resource` in the unit of its dimension, rounded up.

    A `Resource` has everything but memory and pods in thousandths, as Volcano has; thousandths of
    the bytes of a large cluster's disks are too many for int64.
    """
    if name != MEMORY and is_in_bytes(name):
        return -(-int(amount) // 1000)
    return int(amount)


def as_listed(listed: Mapping[str, str | int | float]) -> dict[str, int]:
    """Return the thousandths of a resource list, every name kept. Raises `BadQuantity`."""
    return {name: milli(amount) for name, amount in listed.items()}


def quantity(name: str, amount: int) -> str:
    """Return an amount in the unit of its dimension as a Kubernetes quantity."""
    if name == MEMORY:
        return format_bytes(amount)
    return str(amount) if name == PODS or is_in_bytes(name) else format_milli(amount)


def readable(name: str, amount: int) -> str:
    """Return an amount in the unit of its dimension for a person: `38.4`, not `38400m`."""
    if name in {MEMORY, PODS} or is_in_bytes(name):
        return quantity(name, amount)
    return format_decimal(amount)


class Dimensions:
    """Interns resource names as array positions."""

    def __init__(
        self, on_growth: Callable[[], None], is_managed: Callable[[str], bool] = lambda _: False
    ) -> None:
        """Leave out of amounts the resources that a policy state accounts for (`is_managed`)."""
        self._on_growth = on_growth
        self._is_managed = lru_cache(_NAMES)(is_managed)
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
        """Return the position of a resource, None if no object has named it."""
        return self._index.get(name)

    def vector(self, resource: Resource, most: int = AMOUNT_MAX) -> IntArray:
        """Return the amounts array of a resource value; each amount within 0 and `most`."""
        places = [
            (self.index(name), max(0, min(counted(name, amount), most)))
            for name, amount in resource.items()
            if not self._is_managed(name)
        ]
        result = np.zeros(self.capacity, dtype=np.int64)
        for at, amount in places:
            result[at] = amount
        return result

    def parse(self, listed: Mapping[str, str | int | float], most: int = AMOUNT_MAX) -> IntArray:
        """Return the amounts array of a Kubernetes resource list. Raises `BadQuantity`."""
        return self.vector(parse_list(listed), most)

    def known(self, listed: Mapping[str, str | int | float]) -> IntArray:
        """Return the amounts array of a resource list without names that no object has named.

        Raises `BadQuantity`.
        """
        result = np.zeros(self.capacity, dtype=np.int64)
        for name, amount in parse_list(listed).items():
            if name in self._index and not self._is_managed(name):
                result[self._index[name]] = max(0, min(counted(name, amount), AMOUNT_MAX))
        return result

    def listed(self, vector: IntArray) -> dict[str, str]:
        """Return the amounts above zero as quantities, without the number of pods."""
        return {
            name: quantity(name, amount)
            for name, amount in zip(self.names, vector.tolist(), strict=False)
            if amount > 0 and name != PODS
        }

    def beyond(self, vector: IntArray, most: int) -> tuple[str, ...]:
        """Return the names of the resources whose amounts are `most` or more."""
        if int(vector.max(initial=0)) < most:
            return ()
        return tuple(self.names[dim] for dim in np.flatnonzero(vector >= most).tolist())

    def present(self, resource: Resource) -> tuple[int, ...]:
        """Return the positions that are compared for this request (T07).

        CPU and memory always; every other resource if the request names it, even with zero.
        """
        return tuple(self.index(name) for name, _ in resource.items() if not self._is_managed(name))

    def fitted(self, vector: IntArray) -> IntArray:
        """Return the array stretched to the present capacity."""
        missing = self.capacity - vector.shape[0]
        return np.pad(vector, (0, missing)) if missing else vector
