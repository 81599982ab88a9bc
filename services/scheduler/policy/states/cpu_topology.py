"""Arithmetic of CPUs and NUMA nodes (PL19), as kubelet's CPU and topology managers do it; pure.

A set of CPUs is a frozenset of their numbers; a NUMA affinity is a frozenset of NUMA node numbers.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import combinations
from typing import Final, NamedTuple

from shared.api.nodeinfo import Numatopology
from shared.model.quantity import BadQuantity, milli

Amount = str | int | float
Cpus = frozenset[int]
NO_CPUS: Final[Cpus] = frozenset()
_MILLI: Final = 1000
_DIGITS_MAX: Final = 5
_NUMA_NODES_MAX: Final = 12
"""All sets of them are looked at; the kubelet's topology manager takes up to 8."""
_CONTAINERS_MAX: Final = 32
"""Containers of a pod to which CPUs are given, each on every node."""
_CPU: Final = "cpu"


class CpuLocation(NamedTuple):
    """NUMA node, socket and core of a CPU; core numbers are unique within a socket only."""

    numa: int
    socket: int
    core: int


class Topology(NamedTuple):
    """The NUMA nodes of a node and how its kubelet deals with them."""

    cpu_policy: str
    policy: str
    places: Mapping[int, CpuLocation]
    free: Cpus
    """CPUs that no container has to itself, without those reserved for the system."""
    holders: frozenset[str]
    """Uids of the pods whose CPUs `free` already lacks."""

    @property
    def aligns(self) -> bool:
        """Whether the kubelet gives CPUs to containers, and where is of interest to it."""
        return self.cpu_policy == "static" and self.policy not in {"", "none"}

    @property
    def numa_nodes(self) -> list[int]:
        """Return the numbers of the NUMA nodes."""
        return sorted({place.numa for place in self.places.values()})


class Hint(NamedTuple):
    """NUMA nodes that could serve a container; `preferred` when fewer never could."""

    affinity: frozenset[int]
    preferred: bool


# --- what objects say ----------------------------------------------------------------------------


def topology_of(obj: Numatopology) -> Topology:
    """Return what a Numatopology says. Raises `BadQuantity` for lists that cannot be read."""
    spec = obj.spec
    places = {
        _number(cpu): CpuLocation(info.numa, info.socket, info.core)
        for cpu, info in spec.cpu_detail.items()
    }
    numa_nodes = {place.numa for place in places.values()}
    if len(numa_nodes) > _NUMA_NODES_MAX:
        raise BadQuantity(f"{len(numa_nodes)} NUMA nodes are more than {_NUMA_NODES_MAX}")
    stated = spec.numares.get(_CPU)
    reserved = math.ceil(milli(spec.res_reserved.get(_CPU, 0)) / _MILLI)
    reserved_cpus = take(places, frozenset(places), reserved) or NO_CPUS
    return Topology(
        cpu_policy=spec.policies.get("CPUManagerPolicy", ""),
        policy=spec.policies.get("TopologyManagerPolicy", ""),
        places=places,
        free=(cpu_set(stated.allocatable) if stated else NO_CPUS)
        & frozenset(places) - reserved_cpus,
        holders=frozenset(pod.uid for pod in spec.pod_allocations),
    )


def cpu_set(text: str) -> Cpus:
    """Return the CPUs of a list such as `0-3,8`. Raises `BadQuantity`."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if first:
            upto = _number(last if dash else first) + 1
            found.update(range(_number(first), upto))
    return frozenset(found)


def _number(text: str) -> int:
    if not text.strip().isdecimal() or len(text) > _DIGITS_MAX:
        raise BadQuantity(f"{text[:20]!r} is no number of a CPU")
    return int(text)


# --- which CPUs ----------------------------------------------------------------------------------


def assign(topology: Topology, free: Cpus, counts: Iterable[int]) -> Cpus | None:
    """Return CPUs for the containers of a pod by the node's policy; None when it refuses.

    A pod of more containers with CPUs to themselves than are looked at is refused.
    """
    given: Cpus = NO_CPUS
    positive = [count for count in counts if count]
    if len(positive) > _CONTAINERS_MAX:
        return None
    for count in positive:
        hint = _best_hint(topology, free - given, count)
        if hint is None:
            return None
        aligned = frozenset(
            cpu for cpu in free - given if topology.places[cpu].numa in hint.affinity
        )
        taken = take(topology.places, aligned, min(count, len(aligned))) or NO_CPUS
        rest = take(topology.places, free - given - taken, count - len(taken))
        given |= (taken | rest) if rest is not None else NO_CPUS
    return given


def _best_hint(topology: Topology, free: Cpus, count: int) -> Hint | None:
    """Return the NUMA nodes for a container; None when the policy admits none."""
    best = _hint(topology, free, count)
    if topology.policy == "single-numa-node" and len(best.affinity) > 1:
        return None
    strict = topology.policy in {"restricted", "single-numa-node"}
    return best if best.preferred or not strict else None


def _hint(topology: Topology, free: Cpus, count: int) -> Hint:
    """Return the best set of NUMA nodes with so many free CPUs, all of them if none has.

    The best one is narrow and on low numbers. It is preferred if no narrower one could ever serve:
    none has so many CPUs in all.
    """
    there = Counter(place.numa for place in topology.places.values())
    spare = Counter(topology.places[cpu].numa for cpu in free)
    sets = _sets_of(tuple(topology.numa_nodes))
    for found in sets:
        if sum(spare[numa] for numa in found) >= count:
            narrower = (s for s in sets if len(s) < len(found))
            preferred = all(sum(there[numa] for numa in s) < count for s in narrower)
            return Hint(found, preferred=preferred)
    return Hint(frozenset(topology.numa_nodes), preferred=False)


@lru_cache(maxsize=64)
def _sets_of(numa_nodes: tuple[int, ...]) -> list[frozenset[int]]:
    """Return all sets of NUMA nodes, narrow ones first, then those on low numbers."""
    sets = [
        frozenset(chosen)
        for size in range(1, len(numa_nodes) + 1)
        for chosen in combinations(numa_nodes, size)
    ]
    return sorted(sets, key=lambda each: (len(each), sum(1 << numa for numa in each)))


def take(places: Mapping[int, CpuLocation], available: Cpus, count: int) -> Cpus | None:
    """Return so many CPUs, close to each other: sockets, then cores, then threads of used cores.

    None when there are not so many.
    """
    if count > len(available):
        return None
    taken: set[int] = set()
    for group in (_socket_of, _core_of):
        for whole in _whole(places, available, group):
            if count - len(taken) >= len(whole) and not whole & taken:
                taken |= whole
    rest = sorted(available - taken, key=_nearest(places, available - taken, taken))
    return frozenset(taken) | frozenset(rest[: count - len(taken)])


def _socket_of(place: CpuLocation) -> tuple[int, ...]:
    return (place.socket,)


def _core_of(place: CpuLocation) -> tuple[int, ...]:
    return place.socket, place.core


_Group = Callable[[CpuLocation], tuple[int, ...]]


def _whole(places: Mapping[int, CpuLocation], available: Cpus, group: _Group) -> list[set[int]]:
    """Return sockets or cores of which every CPU is available; on the fullest socket first."""
    everything: dict[tuple[int, ...], set[int]] = {}
    for cpu, place in places.items():
        everything.setdefault(group(place), set()).add(cpu)
    free = {key: cpus for key, cpus in everything.items() if cpus <= available}
    on_socket = Counter(key[0] for key in free)
    order = sorted(free, key=lambda key: (len(key) > 1 and on_socket[key[0]], key))
    return [free[key] for key in order]


def _nearest(
    places: Mapping[int, CpuLocation], free: Cpus, taken: set[int]
) -> Callable[[int], tuple[int, ...]]:
    """Return the order of single CPUs: next to CPUs already taken, then where fewest are left."""
    beside = Counter(places[cpu].socket for cpu in taken)
    in_socket = Counter(places[cpu].socket for cpu in free)
    in_core = Counter(_core_of(places[cpu]) for cpu in free)

    def order(cpu: int) -> tuple[int, ...]:
        place = places[cpu]
        core = _core_of(place)
        return -beside[place.socket], in_socket[place.socket], in_core[core], *core, cpu

    return order


def numa_count(topology: Topology, cpus: Cpus) -> int:
    """Return over how many NUMA nodes CPUs are spread."""
    return len({topology.places[cpu].numa for cpu in cpus})


def per_numa(topology: Topology, cpus: Cpus) -> dict[int, int]:
    """Return NUMA node → number of CPUs, in order."""
    counts = Counter(topology.places[cpu].numa for cpu in cpus)
    return dict(sorted(counts.items()))
