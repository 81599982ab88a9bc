"""`Resource`: an amount of every kind of resource, as resource lists of objects state it (T07).

Used at the borders (parsing, admission of queues, texts). The engine's amounts are rows of integer
arrays, which `services.scheduler.policy.shares` compares. CPU counts in thousandths, memory in
bytes, `pods` as a plain number, every other resource in thousandths.
"""

import enum
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from msgspec import Struct

from shared.model.quantity import milli, units

CPU: Final = "cpu"
MEMORY: Final = "memory"
PODS: Final = "pods"
EPHEMERAL: Final = "ephemeral-storage"
EPSILON: Final = 0.1
_MAX_INT64: Final = 2**63 - 1

Amount = int | float


class Absent(enum.Enum):
    """Meaning of a dimension that one side lacks."""

    ZERO = "Zero"
    INFINITY = "Infinity"


def is_counted(name: str) -> bool:
    """Tell whether scheduling counts a resource of that name at all.

    Counted are the four native ones, everything with a domain, huge pages and attachable volumes;
    object quotas (`count/…`, `requests.…`) are not.
    """
    if name in {CPU, MEMORY, PODS, EPHEMERAL}:
        return True
    if name.startswith(("count/", "requests.")):
        return False
    return "/" in name or name.startswith(("hugepages-", "attachable-volumes-"))


class Resource(Struct, frozen=True, kw_only=True):
    """Amounts per resource; `scalars` None means "no such map", which comparisons tell apart."""

    cpu_milli: Amount = 0
    memory_bytes: Amount = 0
    scalars: Mapping[str, Amount] | None = None
    max_tasks: int = 0
    """How many pods a node takes; an attribute of nodes that sums and comparisons leave alone."""

    def get(self, name: str) -> Amount:
        """Return the amount of one resource, 0 when absent."""
        if name == CPU:
            return self.cpu_milli
        if name == MEMORY:
            return self.memory_bytes
        return (self.scalars or {}).get(name, 0)

    def items(self) -> Iterable[tuple[str, Amount]]:
        """Return all dimensions, CPU and memory first and always."""
        yield CPU, self.cpu_milli
        yield MEMORY, self.memory_bytes
        yield from (self.scalars or {}).items()

    def names(self) -> list[str]:
        """Return the dimensions with something in them."""
        return [name for name, amount in self.items() if amount >= EPSILON]

    def is_empty(self) -> bool:
        """Tell whether nothing is requested; `pods` does not count (T07)."""
        return all(amount < EPSILON for name, amount in self.items() if name != PODS)

    def plus(self, other: "Resource") -> "Resource":
        """Return the sum."""
        return self._combined(other, lambda left, right: left + right)

    def at_least(self, other: "Resource") -> "Resource":
        """Return the larger amount in each dimension."""
        return self._combined(other, max)

    def _combined(self, other: "Resource", join: Callable[[Amount, Amount], Amount]) -> "Resource":
        scalars: dict[str, Amount] | None = None
        if self.scalars is not None or other.scalars is not None:
            scalars = dict(self.scalars or {})
            for name, amount in (other.scalars or {}).items():
                scalars[name] = join(scalars.get(name, 0), amount)
        return Resource(
            cpu_milli=join(self.cpu_milli, other.cpu_milli),
            memory_bytes=join(self.memory_bytes, other.memory_bytes),
            scalars=scalars,
            max_tasks=self.max_tasks,
        )

    # --- comparison --------------------------------------------------------------------------

    def less_somewhere(self, other: "Resource", absent: Absent) -> bool:
        """Tell whether some dimension is strictly smaller; a missing one counts as `absent`."""
        if self._smaller_by_absence(other, absent):
            return True
        return any(right is None or left < right for left, right in self._pairs(other, absent))

    def _pairs(self, other: "Resource", absent: Absent) -> Iterable[tuple[Amount, Amount | None]]:
        yield self.cpu_milli, other.cpu_milli
        yield self.memory_bytes, other.memory_bytes
        right = other.scalars or {}
        for name, amount in (self.scalars or {}).items():
            default = None if absent is Absent.INFINITY else 0
            yield amount, right.get(name, default)

    def _smaller_by_absence(self, other: "Resource", absent: Absent) -> bool:
        left = self.scalars or {}
        return absent is Absent.ZERO and any(name not in left for name in other.scalars or {})

    def text(self) -> str:
        """Return Volcano's text: `cpu 2000.00, memory 4096.00, nvidia.com/gpu 1000.00`."""
        scalars = sorted((self.scalars or {}).items())
        listed = [(CPU, self.cpu_milli), (MEMORY, self.memory_bytes), *scalars]
        return ", ".join(f"{name} {_written(amount)}" for name, amount in listed)


def _written(amount: Amount) -> str:
    """Return an amount for people; the largest numbers of Go stand for "no limit"."""
    if amount == sys.float_info.max:
        return "maxFloat"
    return "maxInt" if float(amount) == float(_MAX_INT64) else f"{amount:.2f}"


def parse_list(listed: Mapping[str, str | int | float]) -> Resource:
    """Return the amounts of a Kubernetes resource list; names that do not count are left out.

    Raises `BadQuantity`.
    """
    cpu_milli = memory_bytes = max_tasks = 0
    scalars: dict[str, Amount] | None = None
    for name, quantity in listed.items():
        if name == CPU:
            cpu_milli = milli(quantity)
        elif name == MEMORY:
            memory_bytes = units(quantity)
        elif is_counted(name):
            scalars = scalars if scalars is not None else {}
            scalars[name] = units(quantity) if name == PODS else milli(quantity)
            max_tasks = units(quantity) if name == PODS else max_tasks
    return Resource(
        cpu_milli=cpu_milli, memory_bytes=memory_bytes, scalars=scalars, max_tasks=max_tasks
    )
