"""Nodes and the pods on them: the only place that turns pods into usage of the ledger.

A pod's usage is added once and removed exactly as it was added, keyed by uid, so facts may come
twice or in any order. Pods on a node whose object is not known yet are kept and count as soon as it
is.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from pumice.plugins import NODE_MAX, IntArray, PolicyState
from services.scheduler.engine.jobs.records import NOWHERE
from services.scheduler.engine.nodes.arrivals import TaskArrivals
from services.scheduler.engine.nodes.attributes import NodeAttributes
from services.scheduler.engine.nodes.images import NodeImages
from services.scheduler.engine.nodes.ledger import Ledger
from services.scheduler.engine.nodes.offers import NodeOffers
from services.scheduler.engine.nodes.pod_affinity import PodAffinityIndex
from services.scheduler.engine.nodes.slots import Slots
from services.scheduler.engine.resources.amounts import (
    RELEASING_MAX,
    USED_MAX,
    stretched,
)
from services.scheduler.engine.resources.dimensions import Dimensions
from services.scheduler.engine.tasks.classes import TaskClasses
from services.scheduler.engine.tasks.task import Task, TaskClass
from shared.api import keys
from shared.api.core import Node
from shared.model.quantity import BadQuantity, units
from shared.model.resources import CPU, MEMORY
from shared.model.status import TERMINAL, TaskStatus


class CountedPod(NamedTuple):
    """A pod as it was counted on its node."""

    task_class: TaskClass
    releasing: bool
    task: Task


class NodeRecord:
    """A node by name: its column, or NOWHERE while only pods have named it."""

    __slots__ = ("column", "exact", "pods", "weight")

    def __init__(self) -> None:
        self.column = NOWHERE
        self.pods: dict[str, CountedPod] = {}
        self.weight = 0
        """Sum of the weights of the pods that it holds."""
        self.exact: NodeRequests | None = None
        """Exact sums of their requests, while these may be more than a column can show."""


class NodeRequests:
    """Requests of the pods of one node: exact sums, and bounded ones as the ledger shows them."""

    def __init__(self, capacity: int) -> None:
        self._used = np.zeros(capacity, dtype=object)
        self._releasing = np.zeros(capacity, dtype=object)
        self._scoring = np.zeros(2, dtype=object)

    def hold(self, task_class: TaskClass, count: int, *, releasing: bool) -> None:
        """Count tasks of a class in (out when negative)."""
        amounts = count * stretched(task_class.request, len(self._used)).astype(object)
        self._used = stretched(self._used, len(amounts)) + amounts
        self._scoring += count * np.array(task_class.scoring_request, dtype=object)
        if releasing:
            self._releasing = stretched(self._releasing, len(amounts)) + amounts

    def shown(self) -> tuple[IntArray, IntArray, IntArray]:
        """Return what is used, being released, and counted by scorers, each bounded."""
        most = (USED_MAX, RELEASING_MAX, USED_MAX)
        exact = (self._used, self._releasing, self._scoring)
        used, releasing, scoring = (
            np.minimum(amounts, limit).astype(np.int64)
            for amounts, limit in zip(exact, most, strict=True)
        )
        return used, releasing, scoring


class Drift(NamedTuple):
    """A node whose ledger column is not the sum of its pods; the audit has repaired it."""

    node: str
    resource: str
    ledger: int
    derived: int


class Nodes:
    """All nodes, their ledger columns, labels and pods."""

    def __init__(self, dimensions: Dimensions, task_classes: TaskClasses) -> None:
        self._dimensions = dimensions
        self.ledger = Ledger(dimensions.capacity)
        self.slots = Slots(self.ledger)
        self.attributes = NodeAttributes()
        self.images = NodeImages()
        self._by_name: dict[str, NodeRecord] = {}
        self._free: list[int] = []
        self._offers = NodeOffers(dimensions)
        self.pod_affinity = PodAffinityIndex(self.column, self.attributes, task_classes.moved)
        """The index for pod affinity; a session counts its own decisions in, too."""
        self.arrivals = TaskArrivals(self._tasks)
        """Pods that are too new to show in measurements of load."""
        self.port_holders: dict[str, Task] = {}
        """Placed tasks that take ports of their node, by uid; a session adds its own."""

    # --- facts about nodes -------------------------------------------------------------------

    def put(self, name: str, node: Node) -> None:
        """Set a node object. Raises `BadQuantity`."""
        allocatable = self._dimensions.parse(node.status.allocatable, NODE_MAX)
        for resource, amount in _oversubscription(node.metadata.annotations).items():
            dim = self._dimensions.index(resource)
            allocatable[dim] = max(0, min(int(allocatable[dim]) + amount, NODE_MAX))
        record = self._by_name.setdefault(name, NodeRecord())
        fresh = record.column == NOWHERE
        if fresh:
            record.column = self._free.pop() if self._free else self.ledger.add_column()
        self.ledger.set_node(record.column, self._offers.applied(name, allocatable))
        self.attributes.set(
            record.column,
            name,
            node.metadata.labels,
            node.spec.taints,
            unschedulable=node.spec.unschedulable,
        )
        self.images.set(record.column, node.status.images)
        if fresh:
            for counted in record.pods.values():
                self.ledger.hold(record.column, counted.task_class, 1, releasing=counted.releasing)
            if record.exact is not None:
                self.ledger.show(record.column, *record.exact.shown())

    def take_offers(self, states: Iterable[PolicyState]) -> None:
        """Count what states of policy offer on nodes whose objects list none of it."""
        for name in self._offers.take(states, self.attributes):
            column, listed = self.column(name), self._offers.listed(name)
            if column != NOWHERE:
                listed = self.ledger.allocatable[:, column].copy() if listed is None else listed
                self.ledger.set_node(column, self._offers.applied(name, listed))

    def remove(self, name: str) -> None:
        """Forget a node object; its pods stay known."""
        record = self._by_name.get(name)
        if record is None or record.column == NOWHERE:
            return
        self.ledger.clear(record.column)
        self.attributes.unset(record.column)
        self.images.set(record.column, ())
        self._offers.forget(name)
        self._free.append(record.column)
        record.column = NOWHERE
        if not record.pods:
            del self._by_name[name]

    # --- facts about pods --------------------------------------------------------------------

    def hold(self, task: Task) -> None:
        """Add a task to its node; terminal tasks use nothing."""
        if not task.node or TERMINAL[task.status]:
            return
        record = self._by_name.setdefault(task.node, NodeRecord())
        counted = CountedPod(
            task.task_class.unbounded or task.task_class, task.status == TaskStatus.RELEASING, task
        )
        record.pods[task.uid] = counted
        self.arrivals.come(task)
        self.meet(task, 1)
        self._count(record, counted, 1)

    def release(self, task: Task) -> None:
        """Remove a task exactly as it was added."""
        record = self._by_name.get(task.node) if task.node else None
        counted = record.pods.pop(task.uid, None) if record else None
        if record is None or counted is None:
            return
        self.arrivals.go(task)
        self.meet(task, -1)
        self._count(record, counted, -1)
        if record.column == NOWHERE and not record.pods:
            del self._by_name[task.node]

    def _count(self, record: NodeRecord, counted: CountedPod, sign: int) -> None:
        """Add or remove a pod, exactly even where sums exceed what a column can show."""
        record.weight += sign * counted.task_class.weight
        if record.exact is None and record.weight <= RELEASING_MAX:
            if record.column != NOWHERE:
                self.ledger.hold(
                    record.column, counted.task_class, sign, releasing=counted.releasing
                )
            return
        if record.exact is None:
            record.exact = NodeRequests(self._dimensions.capacity)
            for each in record.pods.values():
                record.exact.hold(each.task_class, 1, releasing=each.releasing)
        else:
            record.exact.hold(counted.task_class, sign, releasing=counted.releasing)
        if record.column != NOWHERE:
            self.ledger.show(record.column, *record.exact.shown())
        if record.weight <= RELEASING_MAX:
            record.exact = None

    def meet(self, task: Task, sign: int) -> None:
        """Add a task (-1: remove it) to the sums for pod affinity, spreading and ports."""
        self.pod_affinity.count(task, sign)
        if task.task_class.host_ports:
            if sign > 0:
                self.port_holders[task.uid] = task
            else:
                self.port_holders.pop(task.uid, None)
        for state in task.task_class.demands:
            state.count(task, sign)

    # --- queries -----------------------------------------------------------------------------

    def column(self, name: str) -> int:
        """Return a node's column, NOWHERE when it has no object."""
        record = self._by_name.get(name)
        return record.column if record else NOWHERE

    def name(self, column: int) -> str:
        """Return the name of the node in a column."""
        return self.attributes.names[column]

    def tasks_on(self, name: str) -> Iterator[Task]:
        """Return the tasks that a node holds."""
        record = self._by_name.get(name)
        return iter([counted.task for counted in record.pods.values()] if record else [])

    def _tasks(self) -> Iterator[Task]:
        return (
            counted.task for record in self._by_name.values() for counted in record.pods.values()
        )

    def held_classes(self) -> list[TaskClass]:
        """Return the classes by which pods were counted in."""
        return [
            counted.task_class
            for record in self._by_name.values()
            for counted in record.pods.values()
        ]

    def count(self) -> int:
        """Return the number of nodes that have an object."""
        return int(self.ledger.alive[: self.ledger.size].sum())

    def audit(self) -> list[Drift]:
        """Derive every column from the pods again; repair and report what differs."""
        ledger, capacity = self.ledger, self._dimensions.capacity
        used = np.zeros((capacity, ledger.size), dtype=np.int64)
        releasing = np.zeros_like(used)
        scoring = np.zeros((2, ledger.size), dtype=np.int64)
        for record in self._by_name.values():
            at = record.column
            if at == NOWHERE:
                continue
            derived = NodeRequests(capacity)
            for counted in record.pods.values():
                derived.hold(counted.task_class, 1, releasing=counted.releasing)
            used[:, at], releasing[:, at], scoring[:, at] = derived.shown()
        drifts = [
            Drift(self.name(column), self._dimensions.names[dim], int(stored), int(derived))
            for array, derived_value in ((ledger.used, used), (ledger.releasing, releasing))
            for dim, column, stored, derived in _differences(array[:, : ledger.size], derived_value)
        ]
        ledger.repair(used, releasing, scoring)
        return drifts


def _differences(
    stored: np.ndarray, derived_value: np.ndarray
) -> Iterator[tuple[int, int, int, int]]:
    for dim, column in np.argwhere(stored != derived_value):
        yield int(dim), int(column), int(stored[dim, column]), int(derived_value[dim, column])


def _oversubscription(annotations: Mapping[str, str]) -> dict[str, int]:
    """Return the oversubscription amounts of a node (KY4); unreadable ones count as zero."""
    found = {}
    for key, resource in ((keys.OVERSUBSCRIPTION_CPU, CPU), (keys.OVERSUBSCRIPTION_MEMORY, MEMORY)):
        if key in annotations:
            try:
                found[resource] = units(annotations[key])
            except BadQuantity:
                continue
    return found
