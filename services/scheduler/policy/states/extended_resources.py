"""Which pods get devices for extended resources on which nodes, and how many devices there are.

A resource of a DeviceClass is served by devices on each node whose device plugins do not offer it
(`policy.devices.extended`). Such a node counts with its devices of the class, so that limits and
shares of queues hold for the resource whatever serves it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from pumice.plugins import BoolArray, Task
from services.scheduler.engine.nodes.attributes import NodeAttributes
from services.scheduler.policy.devices.extended import (
    ContainerDevices,
    MadeClaim,
    classes_by_resource,
    is_extended,
    make_claim,
    name_of_claim,
)
from services.scheduler.policy.devices.pools import Inventory, SliceRecord
from services.scheduler.policy.devices.requests import (
    Alternative,
    ClaimRequest,
    DeviceMatcher,
    DeviceRefusal,
    SearchBudget,
    read,
)
from services.scheduler.policy.devices.selectors import SelectorFault
from services.scheduler.policy.devices.shares import part_of
from shared.api.core import Node, Pod
from shared.api.resource import Device, DeviceClass, ExactDeviceRequest
from shared.api.selectors import NodeSelector
from shared.model.quantity import milli

_MANY: Final = 1 << 15
"""Shares of a device without capacities: more than the pods of a node can get."""
_UNLIMITED: Final = 1 << 40
_SPARE: Final = 64
"""Claims that are kept beside those of tasks."""
_NOTHING: Final[frozenset[str]] = frozenset()

Containers = tuple[ContainerDevices, ...]


class ClaimToMake(NamedTuple):
    """The claim for a pod on a node, ready to be allocated."""

    made: MadeClaim
    ask: ClaimRequest | DeviceRefusal
    shape: bytes
    """Equal for claims with equal requests."""


class ServedNodes(NamedTuple):
    """Nodes on which devices serve the same resources of a pod."""

    resources: frozenset[str]
    nodes: BoolArray


class ExtendedResources:
    """Extended resources of classes, pods that ask for them, and nodes with plugins for them."""

    def __init__(self, inventory: Inventory, matcher: DeviceMatcher) -> None:
        self._inventory = inventory
        self._matcher = matcher
        self._classes: Mapping[str, DeviceClass] = {}
        self._by_resource: dict[str, str] = {}
        """Resource → class."""
        self._plugins: dict[str, frozenset[str]] = {}
        """Node → extended resources that its device plugins offer."""
        self._version = 0
        """Grows with changes of classes and plugins."""
        self._tasks: dict[str, tuple[Task, Containers]] = {}
        """Tasks that ask for extended resources by uid."""
        self._keys: dict[str, str] = {}
        """Uid of a task of which a class has a resource → key of the claim that it may get."""
        self._named: dict[str, str] = {}
        """Uid of a task → the claim that its status names."""
        self._owners: dict[str, str] = {}
        """Key of such a claim → uid of the task."""
        self._made: dict[tuple[Containers, frozenset[str]], ClaimToMake] = {}
        self._groups: dict[Containers, tuple[object, list[ServedNodes]]] = {}
        self._offered: tuple[object, dict[str, dict[str, int]]] = (None, {})
        self._counts: dict[tuple[str, int], int] = {}
        """(class, version of a slice) → its devices of the class."""

    # --- facts -------------------------------------------------------------------------------

    def put_node(self, name: str, node: Node) -> None:
        """Store what device plugins of a node offer. Raises `BadQuantity`."""
        listed = node.status.allocatable
        offered = frozenset(n for n in listed if is_extended(n) and milli(listed[n]) > 0)
        if offered != self._plugins.get(name, _NOTHING):
            self._version += 1
            self._plugins[name] = offered

    def remove_node(self, name: str) -> None:
        """Forget a node."""
        if self._plugins.pop(name, None):
            self._version += 1

    def put_classes(self, classes: Mapping[str, DeviceClass]) -> list[tuple[Task, str]]:
        """Store all classes; return the tasks that may get a claim from now on, with its key."""
        self._classes = classes
        self._by_resource = classes_by_resource(classes.values())
        self._version += 1
        self._made.clear()
        self._counts.clear()
        return [
            (task, self._keys[task.uid])
            for task, asked in self._tasks.values()
            if self._enlist(task, asked)
        ]

    # --- tasks -------------------------------------------------------------------------------

    def join(self, task: Task, pod: Pod, asked: Containers) -> None:
        """Note a task that asks for extended resources."""
        status = pod.status.extended_resource_claim_status
        if status is not None:
            self._named[task.uid] = f"{task.namespace}/{status.resource_claim_name}"
        self._tasks[task.uid] = (task, asked)
        self._enlist(task, asked)

    def _enlist(self, task: Task, asked: Containers) -> bool:
        """Give a task the key of its claim if it needs one; return whether it is new."""
        needs = task.uid in self._named or self.concerns(asked)
        if not needs or task.uid in self._keys:
            return False
        made = f"{task.namespace}/{name_of_claim(task.name, task.uid)}"
        key = self._keys[task.uid] = self._named.get(task.uid, made)
        self._owners[key] = task.uid
        return True

    def leave(self, task: Task) -> None:
        """Forget a task."""
        self._tasks.pop(task.uid, None)
        self._named.pop(task.uid, None)
        key = self._keys.pop(task.uid, None)
        if key is not None and self._owners.get(key) == task.uid:
            del self._owners[key]

    def key(self, task: Task) -> str | None:
        """Return the key of the claim that a task has or may get, None if no class serves it."""
        return self._keys.get(task.uid)

    def is_made(self, key: str) -> bool:
        """Tell whether a claim is one for extended resources."""
        return key in self._owners

    def concerns(self, asked: Containers) -> bool:
        """Tell whether a class has a resource that containers ask for."""
        return any(name in self._by_resource for name in _resources(asked))

    def amounts(self, asked: Containers) -> list[str]:
        """Return what containers ask for of classes, for people: `2 example.com/gpu`."""
        sums: Counter[str] = Counter()
        for name, _, amount in (each for one in asked for each in one.amounts):
            if name in self._by_resource:
                sums[name] += amount
        return [f"{amount} {name}" for name, amount in sums.items()]

    # --- claims ------------------------------------------------------------------------------

    def resources_on(self, asked: Containers, node: str) -> frozenset[str]:
        """Return the resources that devices have to serve on a node."""
        offered = self._plugins.get(node, _NOTHING)
        return frozenset(
            name for name in _resources(asked) if name in self._by_resource and name not in offered
        )

    def groups(self, asked: Containers, attributes: NodeAttributes) -> list[ServedNodes]:
        """Return all nodes by the resources that devices have to serve there."""
        version = (self._version, attributes.generation, len(attributes.names))
        known = self._groups.get(asked)
        if known is not None and known[0] == version:
            return known[1]
        columns: dict[frozenset[str], list[int]] = {}
        for column, name in enumerate(attributes.names):
            columns.setdefault(self.resources_on(asked, name), []).append(column)
        found = []
        for resources, listed in columns.items():
            nodes = np.zeros(len(attributes.names), dtype=np.bool_)
            nodes[listed] = True
            found.append(ServedNodes(resources, nodes))
        self._groups = {k: v for k, v in self._groups.items() if v[0] == version}
        self._groups[asked] = (version, found)
        return found

    def claim(self, asked: Containers, resources: frozenset[str]) -> ClaimToMake:
        """Return the claim by which devices serve these resources of a pod."""
        found = self._made.get((asked, resources))
        if found is None:
            made = make_claim(asked, {name: self._by_resource[name] for name in resources})
            found = ClaimToMake(
                made, read(made.claim, self._classes), msgspec.json.encode(made.claim)
            )
            if len(self._made) >= _SPARE + 2 * len(self._tasks):
                live = {asked for _, asked in self._tasks.values()}
                self._made = {key: made for key, made in self._made.items() if key[0] in live}
            self._made[asked, resources] = found
        return found

    # --- amounts -----------------------------------------------------------------------------

    def offers(
        self, attributes: NodeAttributes, named: Sequence[str]
    ) -> Mapping[str, Mapping[str, int]] | None:
        """Return node → resource → devices that serve it there; None if nothing has changed.

        Only resources that are `named` by some object are looked at. Devices whose class has not
        been evaluated for them yet count.
        """
        names = tuple(sorted(self._by_resource.keys() & set(named)))
        inventory, size = self._inventory.version, len(attributes.names)
        version = (names, self._version, inventory, attributes.generation, size)
        if version == self._offered[0]:
            return None
        masks: dict[NodeSelector, BoolArray] = {}
        budget = SearchBudget(_UNLIMITED)
        found: dict[str, dict[str, int]] = {}
        earlier, self._counts = self._counts, {}
        for column, node in enumerate(attributes.names if names else ()):

            def selects(selector: NodeSelector, column: int = column) -> bool:
                if selector not in masks:
                    masks[selector] = attributes.selected(selector)
                return bool(masks[selector][column])

            records = list(self._inventory.reaching(node, selects)) if node else []
            for name in names if records else ():
                if name not in self._plugins.get(node, _NOTHING):
                    found.setdefault(node, {})[name] = sum(
                        self._count(self._by_resource[name], record, budget, earlier)
                        for record in records
                    )
        known = version if budget.unknown is None else None
        self._offered = (known, found)
        return found

    def _count(
        self,
        name: str,
        record: SliceRecord,
        budget: SearchBudget,
        earlier: Mapping[tuple[str, int], int],
    ) -> int:
        """Return for how many requests a slice has devices of a class, at most.

        `earlier` are the counts of the last time; those that are used again are kept.
        """
        key = (name, record.serial)
        known = self._counts.get(key, earlier.get(key))
        if known is not None:
            self._counts[key] = known
            return known
        device_class, before = self._classes[name], budget.unknowns
        selectors = device_class.spec.selectors
        conditions = tuple(each.cel.expression if each.cel else "" for each in selectors)
        alternative = Alternative("", "", ExactDeviceRequest(), device_class, conditions, "")
        count = 0
        for device in record.devices:
            unknowns = budget.unknowns
            match = self._matcher.answer(alternative, device, budget)
            if isinstance(match, SelectorFault) or (not match and budget.unknowns == unknowns):
                continue
            count += _shares(device.device) if device.is_shared else 1
        if budget.unknowns == before:
            self._counts[key] = count
        return count


def _shares(device: Device) -> int:
    """Return how many requests may share a device, each with the default of all capacities."""
    part = part_of(device, {})
    if part is None:
        return 0
    return min(
        (
            milli(capacity.value) // part[name] if part[name] else _MANY
            for name, capacity in device.capacity.items()
        ),
        default=_MANY,
    )


def _resources(asked: Containers) -> set[str]:
    return {name for one in asked for name, _, _ in one.amounts}
