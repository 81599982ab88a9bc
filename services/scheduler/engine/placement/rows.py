"""`Rows`: the view of nodes that predicates and scores compute on (`pumice.plugins.NodeRows`)."""

from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from pumice.plugins import BoolArray, IntArray
from services.scheduler.engine.nodes.attributes import NodeAttributes
from services.scheduler.engine.nodes.ledger import Ledger
from services.scheduler.engine.nodes.nodes import Nodes
from services.scheduler.engine.tasks.task import TaskClass

_Scalar = TypeVar("_Scalar", bound=np.generic)


class Rows:
    """Nodes by column, each with `extra` further tasks of a class imagined on it.

    Imagined tasks hold resources, or wait for them (`waiting`). Over all nodes (`columns` None)
    the arrays are views of the ledger; nothing is copied.
    """

    def __init__(
        self,
        nodes: Nodes,
        task_class: TaskClass,
        columns: IntArray | None = None,
        extra: IntArray | None = None,
        *,
        waiting: bool = False,
    ) -> None:
        self._nodes = nodes
        self._ledger: Ledger = nodes.ledger
        self.attributes: NodeAttributes = nodes.attributes
        self._task_class = task_class
        self._columns = columns
        self._extra = extra
        self._waiting = waiting
        self._size = nodes.ledger.size if columns is None else len(columns)
        self._kept: dict[tuple[str, int], IntArray] = {}
        """Amounts that were asked for: several predicates and scores read the same ones."""

    def __len__(self) -> int:
        return self._size

    @cached_property
    def index(self) -> IntArray:
        """Column of each row."""
        return np.arange(self._size) if self._columns is None else self._columns

    @cached_property
    def extra(self) -> IntArray:
        """Tasks imagined per row."""
        return np.zeros(self._size, dtype=np.int64) if self._extra is None else self._extra

    def pick(self, per_node: NDArray[_Scalar]) -> NDArray[_Scalar]:
        """Return an array over all nodes as one over the rows."""
        return per_node[: self._size] if self._columns is None else per_node[self._columns]

    def _amounts(self, name: str, resource: int, *, imagined: bool = False) -> IntArray:
        found = self._kept.get((name, resource))
        if found is None:
            row: IntArray = getattr(self._ledger, name)[resource]
            found = row[: self._size] if self._columns is None else row[self._columns]
            if imagined and self._extra is not None:
                found = found + self._extra * self._task_class.request[resource]
            self._kept[name, resource] = found
        return found

    def allocatable(self, resource: int) -> IntArray:
        """Return what the nodes have."""
        return self._amounts("allocatable", resource)

    def used(self, resource: int) -> IntArray:
        """Return what placed tasks hold."""
        return self._amounts("used", resource, imagined=not self._waiting)

    def releasing(self, resource: int) -> IntArray:
        """Return what is being released."""
        return self._amounts("releasing", resource)

    def pipelined(self, resource: int) -> IntArray:
        """Return the amounts that Pipelined tasks reserve."""
        return self._amounts("pipelined", resource, imagined=self._waiting)

    def room(self, resource: int, *, waiting: bool) -> IntArray:
        """Return what is free per row, now or (`waiting`) in future."""
        idle = self._amounts("allocatable", resource) - self.used(resource)
        if not waiting:
            return idle
        return idle + self._amounts("releasing", resource) - self.pipelined(resource)

    def requested(self, resource: int) -> IntArray:
        """Return the requested amounts of all pods, with waiting and without evicted ones."""
        if self.at_rest and not self._waiting:
            return self.used(resource)
        return self.used(resource) + self.pipelined(resource) - self._amounts("evicted", resource)

    @property
    def at_rest(self) -> bool:
        """Whether nothing is being released and no task waits: idle equals future idle."""
        return self._ledger.at_rest

    def scoring_requested(self) -> tuple[IntArray, IntArray]:
        """Return requested milli-CPU and bytes as scorers count them."""
        cpu, memory = self._amounts("scoring", 0), self._amounts("scoring", 1)
        if self._extra is None:
            return cpu, memory
        more_cpu, more_memory = self._task_class.scoring_request
        return cpu + self._extra * more_cpu, memory + self._extra * more_memory

    def label(self, key: str) -> NDArray[np.object_]:
        """Return the value of a label per row."""
        return self.pick(self.attributes.values(key))

    def ports_taken(self) -> BoolArray:
        """Return which rows' nodes have a port in use that the class asks for."""
        taken = np.zeros(self._ledger.size, dtype=np.bool_)
        for task in self._nodes.port_holders.values():
            column = self._nodes.column(task.node)
            if column >= 0 and ports_clash(self._task_class.host_ports, task.task_class.host_ports):
                taken[column] = True
        return self.pick(taken)


Ports = tuple[tuple[str, str, int], ...]


def ports_clash(first: Ports, second: Ports) -> bool:
    """Tell whether two tasks cannot share a node: a port on the same address, or on all of them."""
    every = "0.0.0.0"  # noqa: S104 - the wildcard address of Kubernetes
    return any(
        (protocol, port) == (other_protocol, other_port)
        and (address == other_address or every in {address, other_address})
        for address, protocol, port in first
        for other_address, other_protocol, other_port in second
    )
