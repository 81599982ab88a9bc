"""Devices that drivers offer to a node: those of complete pools of the newest generation.

A driver publishes a pool in slices, and a change of it slice by slice under a new generation. Until
all slices of the newest generation exist, the pool offers nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from shared.api.resource import (
    CounterConsumption,
    Device,
    DeviceTaint,
    DeviceTaintRule,
    ResourceSlice,
)
from shared.api.selectors import NodeSelector
from shared.model.quantity import milli

Selects = Callable[[NodeSelector], bool]
"""Returns whether a selector selects the current node."""
PoolKey = tuple[str, str]
"""Driver and name of a pool."""


class DeviceId(NamedTuple):
    """A device in the cluster."""

    driver: str
    pool: str
    device: str


class Offered(NamedTuple):
    """A device as its slice publishes it."""

    id: DeviceId
    device: Device
    serial: int
    """Number of the slice's version; with `place` it names this version of the device."""
    place: int
    counters: Mapping[tuple[str, str], int]
    """(set, counter) → amount that the device consumes, in thousandths."""
    node_name: str
    """The one node that reaches it; empty: see the selector."""
    node_selector: NodeSelector | None
    taints: tuple[DeviceTaint, ...] = ()
    """Those of its slice, and those of DeviceTaintRules."""

    @property
    def is_shared(self) -> bool:
        """Tell whether several requests may share it."""
        return self.device.allow_multiple_allocations


class SliceRecord(NamedTuple):
    """A slice, read once."""

    name: str
    slice: ResourceSlice
    devices: tuple[Offered, ...]
    counters: Mapping[tuple[str, str], int]
    """(set, counter) → amount that the devices of the pool share, in thousandths."""
    serial: int
    """Number of this version of the slice."""

    @property
    def pool(self) -> PoolKey:
        """Return the pool."""
        return self.slice.spec.driver, self.slice.spec.pool.name


class OfferedPool(NamedTuple):
    """A pool as one node sees it."""

    key: PoolKey
    complete: bool
    problem: str = ""
    """Why the pool is inconsistent; empty if it is consistent."""
    devices: tuple[Offered, ...] = ()
    counters: Mapping[tuple[str, str], int] = {}
    consumers: tuple[Offered, ...] = ()
    """All devices that consume counters, on any node."""
    to_prepare: bool = False
    """Whether a device in its slices has conditions that a bind waits for (`bindingConditions`)."""

    @property
    def usable(self) -> bool:
        """Tell whether devices may be allocated."""
        return self.complete and not self.problem


class Inventory:
    """All slices."""

    def __init__(self) -> None:
        self.version = 0
        """Grows with every change."""
        self._slices: dict[str, SliceRecord] = {}
        self._pools: dict[PoolKey, dict[str, SliceRecord]] = {}
        self._by_node: dict[str, dict[str, SliceRecord]] = {}
        self._shared: dict[str, SliceRecord] = {}
        """Slices that more than one node may reach."""
        self._newest: dict[PoolKey, int] = {}
        """Pool → the newest generation of its slices, once it has been asked for."""
        self._taint_rules: dict[str, DeviceTaintRule] = {}

    def __len__(self) -> int:
        return len(self._slices)

    def put(self, name: str, found: ResourceSlice) -> None:
        """Store a slice. Raises `BadQuantity`."""
        record = _read(name, found, self.version + 1)
        self.remove(name)
        self.version += 1
        self._slices[name] = record
        self._pools.setdefault(record.pool, {})[name] = record
        self._newest.pop(record.pool, None)
        self._home(record)[name] = record

    def remove(self, name: str) -> None:
        """Forget a slice."""
        record = self._slices.pop(name, None)
        if record is None:
            return
        self.version += 1
        self._newest.pop(record.pool, None)
        del self._home(record)[name]
        del self._pools[record.pool][name]
        if not self._pools[record.pool]:
            del self._pools[record.pool]
        node = record.slice.spec.node_name
        if not self._by_node.get(node, True):
            del self._by_node[node]

    def put_taint_rule(self, name: str, rule: DeviceTaintRule) -> None:
        """Store a rule that taints devices."""
        self._taint_rules[name] = rule
        self.version += 1

    def remove_taint_rule(self, name: str) -> None:
        """Forget a rule."""
        self._taint_rules.pop(name, None)
        self.version += 1

    def _tainted(self, offered: Offered) -> Offered:
        """Return a device with the taints of all rules that select it."""
        taints = tuple(
            rule.spec.taint
            for rule in self._taint_rules.values()
            if rule.spec.device_selector is not None
            and rule.spec.device_selector.selects(*offered.id)
        )
        return offered._replace(taints=(*offered.taints, *taints)) if taints else offered

    def _home(self, record: SliceRecord) -> dict[str, SliceRecord]:
        node = record.slice.spec.node_name
        return self._shared if not node or record.counters else self._by_node.setdefault(node, {})

    def nodes_of(self, pool: PoolKey) -> frozenset[str] | None:
        """Return the only nodes that reach a pool, None if it is not limited to some."""
        records = self._pools.get(pool, {}).values()
        named = frozenset(record.slice.spec.node_name for record in records)
        shared = any(record.counters for record in records)
        return None if "" in named or shared else named

    def device(self, desired: DeviceId) -> Offered | None:
        """Return a device as the newest generation of its pool offers it."""
        records = self._pools.get((desired.driver, desired.pool), {}).values()
        newest = (device for r in records if self._is_newest(r) for device in r.devices)
        return next((device for device in newest if device.id == desired), None)

    def offer(self, node: str, selects: Selects) -> tuple[OfferedPool, ...]:
        """Return the pools with devices for a node, sorted by name.

        Pools with devices that have to be prepared come last: a bind has to wait for those.
        """
        found: dict[PoolKey, list[SliceRecord]] = {}
        for record in self.reaching(node, selects):
            found.setdefault(record.pool, []).append(record)
        pools = (self._pool(key, found[key], node, selects) for key in sorted(found))
        return tuple(sorted(pools, key=lambda pool: pool.to_prepare))

    def reaching(self, node: str, selects: Selects) -> Iterator[SliceRecord]:
        """Yield the slices of newest generations that a node reaches."""
        for record in (*self._by_node.get(node, {}).values(), *self._shared.values()):
            if self._is_newest(record) and _reaches(record, node, selects):
                yield record

    def _is_newest(self, record: SliceRecord) -> bool:
        newest = self._newest.get(record.pool)
        if newest is None:
            siblings = self._pools[record.pool].values()
            newest = max(sibling.slice.spec.pool.generation for sibling in siblings)
            self._newest[record.pool] = newest
        return record.slice.spec.pool.generation == newest

    def _pool(
        self, key: PoolKey, records: list[SliceRecord], node: str, selects: Selects
    ) -> OfferedPool:
        siblings = [r for r in self._pools[key].values() if self._is_newest(r)]
        if len(siblings) != records[0].slice.spec.pool.resource_slice_count:
            return OfferedPool(key, complete=False)
        records.sort(key=lambda record: record.name)
        devices = [device for record in records for device in record.devices]
        counters: dict[tuple[str, str], int] = {}
        for record in siblings:
            counters.update(record.counters)
        problem = _duplicate(device.id.device for device in devices) or _uncounted(
            siblings, counters
        )
        return OfferedPool(
            key,
            complete=True,
            problem=problem,
            devices=tuple(
                self._tainted(device)
                for device in devices
                if _device_reached(device, node, selects)
            ),
            counters=counters,
            consumers=tuple(d for r in siblings for d in r.devices if d.counters)
            if counters
            else (),
            to_prepare=any(each.device.binding_conditions for each in devices),
        )


def _read(name: str, found: ResourceSlice, serial: int) -> SliceRecord:
    spec = found.spec
    devices = tuple(
        Offered(
            DeviceId(spec.driver, spec.pool.name, device.name),
            device,
            serial,
            place,
            _consumed(device.consumes_counters),
            device.node_name if spec.per_device_node_selection else spec.node_name,
            device.node_selector if spec.per_device_node_selection else spec.node_selector,
            device.taints,
        )
        for place, device in enumerate(spec.devices)
    )
    counters = {
        (each.name, counter): milli(amount.value)
        for each in spec.shared_counters
        for counter, amount in each.counters.items()
    }
    return SliceRecord(name, found, devices, counters, serial)


def _consumed(consumptions: Iterable[CounterConsumption]) -> Mapping[tuple[str, str], int]:
    return {
        (each.counter_set, counter): milli(amount.value)
        for each in consumptions
        for counter, amount in each.counters.items()
    }


def _reaches(record: SliceRecord, node: str, selects: Selects) -> bool:
    """Tell whether a node reaches a slice; shared counters concern every node."""
    spec = record.slice.spec
    if record.counters:
        return True
    if spec.per_device_node_selection:
        return any(_device_reached(device, node, selects) for device in record.devices)
    return _matches(spec.node_name, spec.node_selector, node, selects, everywhere=spec.all_nodes)


def _device_reached(offered: Offered, node: str, selects: Selects) -> bool:
    device = offered.device
    if not device.node_name and device.node_selector is None and not device.all_nodes:
        return True  # its slice names the node
    return _matches(
        device.node_name, device.node_selector, node, selects, everywhere=device.all_nodes
    )


def _matches(
    node_name: str, selector: NodeSelector | None, node: str, selects: Selects, *, everywhere: bool
) -> bool:
    if node_name:
        return node_name == node
    return everywhere or (selector is not None and selects(selector))


def _duplicate(names: Iterable[str]) -> str:
    seen = set()
    for name in names:
        if name in seen:
            return f"duplicate device name {name}"
        seen.add(name)
    return ""


def _uncounted(records: Iterable[SliceRecord], counters: Mapping[tuple[str, str], int]) -> str:
    """Return the counter that a device consumes and no slice defines."""
    for record in records:
        for device in record.devices:
            for name, counter in device.counters:
                if (name, counter) not in counters:
                    return f"counter {counter} not found in counter set {name}"
    return ""
