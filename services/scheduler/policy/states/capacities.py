"""Room that CSI drivers still have for new volumes, by storage class and node (CSIStorageCapacity).

Only drivers that say so publish it (`storageCapacity` of a CSIDriver). One object stands for the
nodes that its selector matches: a zone, or a single node where volumes are local. So that a pod
asks once and not each object, the largest volume that each node can get is kept as an array.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np
from typing_extensions import override

from pumice.plugins import Fold, IntArray, PolicyState
from services.scheduler.engine.nodes.attributes import NodeAttributes
from shared.api import kinds
from shared.api.selectors import (
    LabelSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    SelectorOperator,
)
from shared.api.storage import CSIDriver, CSIStorageCapacity
from shared.model.quantity import units

NOTHING: Final = -1
"""No volume at all can be made there; a volume of no bytes is more than that."""

_MAX: Final = 2**62
"""As much as arrays hold; no volume is larger."""


class _Room(NamedTuple):
    """The largest volume that the nodes of one selector can get."""

    nodes: LabelSelector
    size: int


class Capacities(PolicyState):
    """The capacity that drivers publish."""

    def __init__(self, *, on: bool = True) -> None:
        self._on = on
        self._drivers: set[str] = set()
        """Drivers that publish their capacity."""
        self._rooms: dict[str, dict[str, _Room]] = {}
        """Storage class → key of an object → what it says."""
        self._class_of: dict[str, str] = {}
        self._largest: dict[str, tuple[int, IntArray]] = {}
        """Storage class → generation of the nodes, and the largest volume per node."""

    @override
    def folds(self) -> Mapping[str, Fold]:
        """Read drivers and capacities; nothing when capacity is not checked."""
        if not self._on:
            return {}
        return {
            kinds.CSIDRIVER.token: Fold(self.put_driver, self.remove_driver),
            kinds.CSISTORAGECAPACITY.token: Fold(self.put, self.remove),
        }

    def put_driver(self, name: str, driver: CSIDriver) -> None:
        """Store whether a driver publishes its capacity."""
        if driver.spec.storage_capacity:
            self._drivers.add(name)
        else:
            self._drivers.discard(name)

    def remove_driver(self, name: str) -> None:
        """Forget a driver."""
        self._drivers.discard(name)

    def put(self, key: str, capacity: CSIStorageCapacity) -> None:
        """Store what one object says. Raises `BadQuantity`."""
        self.remove(key)
        stated = capacity.maximum_volume_size
        stated = capacity.capacity if stated is None else stated
        if stated is None or capacity.node_topology is None:
            return
        room = _Room(capacity.node_topology, min(units(stated), _MAX))
        name = self._class_of[key] = capacity.storage_class_name
        self._rooms.setdefault(name, {})[key] = room
        self._largest.pop(name, None)

    def remove(self, key: str) -> None:
        """Forget an object."""
        name = self._class_of.pop(key, None)
        if name is not None:
            self._rooms[name].pop(key, None)
            if not self._rooms[name]:
                del self._rooms[name]
            self._largest.pop(name, None)

    # --- queries -----------------------------------------------------------------------------

    def publishes(self, driver: str) -> bool:
        """Tell whether a driver publishes its capacity."""
        return driver in self._drivers

    def largest(self, storage_class: str, attributes: NodeAttributes) -> IntArray:
        """Return the bytes of the largest volume that a class can have on each node."""
        known = self._largest.get(storage_class)
        if known is None or known[0] != attributes.generation:
            found = self._compute(storage_class, attributes)
            known = self._largest[storage_class] = (attributes.generation, found)
        return known[1]

    def _compute(self, storage_class: str, attributes: NodeAttributes) -> IntArray:
        found = np.full(len(attributes.names), NOTHING, dtype=np.int64)
        by_label: dict[str, dict[str | None, int]] = {}
        for room in self._rooms.get(storage_class, {}).values():
            labels = room.nodes.match_labels
            if len(labels) == 1 and not room.nodes.match_expressions:
                ((label, value),) = labels.items()
                sizes = by_label.setdefault(label, {})
                sizes[value] = max(room.size, sizes.get(value, NOTHING))
            else:
                there = attributes.term(_as_term(room.nodes)) | _is_empty(room.nodes)
                found[there] = np.maximum(found[there], room.size)
        for label, sizes in by_label.items():
            here = [sizes.get(value, NOTHING) for value in attributes.values(label)]
            found = np.maximum(found, np.array(here, dtype=np.int64))
        return found


def _is_empty(selector: LabelSelector) -> bool:
    """Tell whether a selector matches every node; a term of nodes without expressions does not."""
    return not selector.match_labels and not selector.match_expressions


def _as_term(selector: LabelSelector) -> NodeSelectorTerm:
    return NodeSelectorTerm(match_expressions=tuple(_expressions(selector)))


def _expressions(selector: LabelSelector) -> Iterator[NodeSelectorRequirement]:
    for key, value in selector.match_labels.items():
        yield NodeSelectorRequirement(key=key, operator=SelectorOperator.IN, values=(value,))
    for each in selector.match_expressions:
        yield NodeSelectorRequirement(key=each.key, operator=each.operator, values=each.values)
