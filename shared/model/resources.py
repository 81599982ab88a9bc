"""`Resource`: an amount of every kind of resource, compared the way Volcano compares (T07).

Used at the borders (parsing, quotas, texts); inside the engine amounts are columns of integer
arrays. CPU counts in thousandths, memory in bytes, `pods` as a plain number, every other resource
in thousandths. Three rules of T07 live here and nowhere else: differences below 0.1 are none; an
absent dimension counts as zero or as infinity, as the caller says; `pods` never makes an amount
non-empty.
"""

import enum
import math
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
        """Tell whether nothing is asked for; `pods` does not count (T07)."""
        return all(amount < EPSILON for name, amount in self.items() if name != PODS)

    def plus(self, other: "Resource") -> "Resource":
        """Return the sum."""
        return self._combined(other, lambda mine, theirs: mine + theirs)

    def minus(self, other: "Resource") -> "Resource":
        """Return the difference, which may be negative."""
        return self._combined(other, lambda mine, theirs: mine - theirs)

    def at_least(self, other: "Resource") -> "Resource":
        """Return the larger amount in each dimension."""
        return self._combined(other, max)

    def at_most(self, other: "Resource", absent: Absent) -> "Resource":
        """Return the smaller amount in each dimension of `self`."""
        scalars = None
        if self.scalars is not None:
            theirs = other.scalars or {}
            scalars = {
                name: min(amount, theirs[name])
                if name in theirs
                else (0 if absent is Absent.ZERO else amount)
                for name, amount in self.scalars.items()
            }
        return Resource(
            cpu_milli=min(self.cpu_milli, other.cpu_milli),
            memory_bytes=min(self.memory_bytes, other.memory_bytes),
            scalars=scalars,
            max_tasks=self.max_tasks,
        )

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

    # --- comparisons over all dimensions -----------------------------------------------------

    def less(self, other: "Resource", absent: Absent) -> bool:
        """Tell whether every dimension is strictly smaller."""
        if self._lacks_one_of(other, absent):
            return False
        return all(
            mine < theirs for mine, theirs in self._pairs(other, absent) if theirs is not None
        )

    def fits_in(self, other: "Resource", absent: Absent) -> bool:
        """Tell whether no dimension exceeds the other side's (Volcano's LessEqual)."""
        if self._lacks_one_of(other, absent):
            return False
        return not self.exceeding(other, absent)

    def exceeding(self, other: "Resource", absent: Absent) -> list[str]:
        """Return the names of the dimensions in which the other side is too small."""
        theirs = other.scalars or {}
        names = [
            name for name in (CPU, MEMORY) if not _less_or_equal(self.get(name), other.get(name))
        ]
        for name, amount in (self.scalars or {}).items():
            if name not in theirs and absent is Absent.INFINITY:
                continue
            if not _less_or_equal(amount, theirs.get(name, 0)):
                names.append(name)
        return names

    def less_somewhere(self, other: "Resource", absent: Absent) -> bool:
        """Tell whether some dimension is strictly smaller."""
        if self._smaller_by_absence(other, absent):
            return True
        return any(theirs is None or mine < theirs for mine, theirs in self._pairs(other, absent))

    def fits_somewhere(self, other: "Resource", absent: Absent) -> bool:
        """Tell whether some dimension does not exceed the other side's."""
        if any(_less_or_equal(self.get(name), other.get(name)) for name in (CPU, MEMORY)):
            return True
        if self._smaller_by_absence(other, absent):
            return True
        return any(
            theirs is None or _less_or_equal(mine, theirs)
            for mine, theirs in self._pairs(other, absent)
        )

    def equals(self, other: "Resource") -> bool:
        """Tell whether all dimensions of `self` are the same on the other side."""
        return all(
            abs(amount - other.get(name)) < EPSILON or amount == other.get(name)
            for name, amount in self.items()
        )

    def _pairs(self, other: "Resource", absent: Absent) -> Iterable[tuple[Amount, Amount | None]]:
        yield self.cpu_milli, other.cpu_milli
        yield self.memory_bytes, other.memory_bytes
        theirs = other.scalars or {}
        for name, amount in (self.scalars or {}).items():
            default = None if absent is Absent.INFINITY else 0
            yield amount, theirs.get(name, default)

    def _lacks_one_of(self, other: "Resource", absent: Absent) -> bool:
        mine = self.scalars or {}
        return absent is Absent.INFINITY and any(name not in mine for name in other.scalars or {})

    def _smaller_by_absence(self, other: "Resource", absent: Absent) -> bool:
        mine = self.scalars or {}
        return absent is Absent.ZERO and any(name not in mine for name in other.scalars or {})

    # --- comparisons over the dimensions of a request ----------------------------------------

    def exceeding_of(self, other: "Resource", request: "Resource") -> list[str]:
        """Return the requested dimensions in which `self` is larger; no epsilon here (T07)."""
        return [name for name in _asked(request) if self.get(name) > other.get(name)]

    def fitting_of(self, other: "Resource", request: "Resource") -> list[str]:
        """Return the requested dimensions in which `self` is not larger."""
        return [name for name in _asked(request) if _less_or_equal(self.get(name), other.get(name))]

    def fitting_of_known(self, other: "Resource", request: "Resource") -> list[str]:
        """Return `fitting_of` the dimensions in which either side has something."""
        known = {name for name, _ in request.items() if self._has(name) or other._has(name)}  # noqa: SLF001 - same class
        return [name for name in self.fitting_of(other, request) if name in known]

    def exceeding_of_known(self, other: "Resource", request: "Resource") -> list[str]:
        """Return `exceeding_of` the dimensions that the other side speaks of.

        ⚠ CPU and memory with an amount, other resources also when stated as 0.
        """
        known = {name for name in (CPU, MEMORY) if other._has(name)} | {*(other.scalars or {})}  # noqa: SLF001 - same class
        return [name for name in self.exceeding_of(other, request) if name in known]

    def _has(self, name: str) -> bool:
        return self.get(name) >= EPSILON

    # --- differences and text ----------------------------------------------------------------

    def parted(self, other: "Resource", absent: Absent) -> tuple["Resource", "Resource"]:
        """Return by how much `self` is larger, and by how much smaller, per dimension.

        A dimension that one side lacks, counting as infinite, makes an infinite difference.
        """
        larger: dict[str, Amount] = {}
        smaller: dict[str, Amount] = {}
        filler = math.inf if absent is Absent.INFINITY else 0
        mine, theirs = dict(self.items()), dict(other.items())
        for name in dict.fromkeys([*mine, *theirs]):
            left, right = mine.get(name, filler), theirs.get(name, filler)
            if left > right:
                larger[name] = left - right
            else:
                smaller[name] = right - left
        return _from_items(larger), _from_items(smaller)

    def text(self) -> str:
        """Return Volcano's text: `cpu 2000.00, memory 4096.00, nvidia.com/gpu 1000.00`."""
        scalars = sorted((self.scalars or {}).items())
        listed = [(CPU, self.cpu_milli), (MEMORY, self.memory_bytes), *scalars]
        return ", ".join(f"{name} {_written(amount)}" for name, amount in listed)


def _from_items(amounts: Mapping[str, Amount]) -> Resource:
    return Resource(
        cpu_milli=amounts.get(CPU, 0),
        memory_bytes=amounts.get(MEMORY, 0),
        scalars={name: value for name, value in amounts.items() if name not in {CPU, MEMORY}},
    )


def _written(amount: Amount) -> str:
    """Return an amount for people; the largest numbers of Go stand for "no limit"."""
    if amount == sys.float_info.max:
        return "maxFloat"
    return "maxInt" if float(amount) == float(_MAX_INT64) else f"{amount:.2f}"


def _asked(request: Resource) -> list[str]:
    return [name for name, amount in request.items() if amount > 0 and name != PODS]


def _less_or_equal(left: Amount, right: Amount) -> bool:
    return left < right or abs(left - right) < EPSILON


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
