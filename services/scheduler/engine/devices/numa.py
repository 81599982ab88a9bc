"""NUMA nodes of nodes, and which CPUs pods have to themselves (PL19).

A Numatopology says which CPUs are free. Pods that were placed and are not in it yet hold the CPUs
that were chosen for them, until it names them, or changes while they run.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pumice import plugins
from services.scheduler.engine.devices.cpu_topology import (
    NO_CPUS,
    Cpus,
    Topology,
    assign,
    topology_of,
)
from shared.api.nodeinfo import Numatopology
from shared.model.status import TaskStatus

if TYPE_CHECKING:
    from services.scheduler.engine.tasks.task import Task


class Numa:
    """The topologies of all nodes."""

    def __init__(self) -> None:
        self._topologies: dict[str, Topology] = {}
        self._held: dict[str, dict[str, tuple[Task, Cpus]]] = {}
        """Node → pod uid → CPUs that were chosen for it."""
        self._kept: dict[str, tuple[str, Cpus]] = {}
        """Pod uid → node and CPUs that a plan binds it with."""
        self._ahead: dict[tuple[int, str], tuple[list[Cpus], bool, Cpus | None]] = {}
        """Class and node → CPUs of one pod after another, whether that is all, free CPUs then."""

    # --- facts -------------------------------------------------------------------------------

    def put(self, name: str, obj: Numatopology) -> None:
        """Take over a Numatopology, which bears the name of its node. Raises `BadQuantity`."""
        topology = self._topologies[name] = topology_of(obj)
        held = self._held.get(name, {})
        for uid in [u for u, (task, _) in held.items() if task.status == TaskStatus.RUNNING]:
            self._release(name, uid)
        for uid in topology.holders & held.keys():
            self._release(name, uid)
        self._ahead = {}

    def _release(self, name: str, uid: str) -> None:
        del self._held[name][uid]
        self._kept.pop(uid, None)

    def remove(self, name: str) -> None:
        """Forget a Numatopology."""
        self._topologies.pop(name, None)
        self._ahead = {}

    def count(self, task: "Task", sign: int) -> None:
        """Count a task in on its node's CPUs (-1: out)."""
        held = self._held.setdefault(task.node, {})
        if sign < 0:
            held.pop(task.uid, None)
            return
        node, cpus = self._kept.get(task.uid, ("", NO_CPUS))
        topology = self._topologies.get(task.node)
        if node != task.node:
            if topology is None or not topology.aligns or task.uid in topology.holders:
                return
            if task.status == TaskStatus.RUNNING:
                return
            cpus = assign(topology, self._free(task.node), task.task_class.exclusive) or NO_CPUS
        held[task.uid] = (task, cpus)

    def forget(self, uid: str) -> None:
        """Forget a pod that is gone."""
        self._kept.pop(uid, None)

    def choose_again(self, uid: str, node: str, cpus: Iterable[int]) -> None:
        """Go by CPUs that were chosen elsewhere, until a Numatopology shows them."""
        self._kept[uid] = (node, frozenset(cpus))

    def hold(self, task: "Task") -> None:
        """Count a task in with the CPUs that were chosen elsewhere, if that is its node."""
        node, cpus = self._kept.get(task.uid, ("", NO_CPUS))
        if node and node == task.node:
            self._held.setdefault(node, {})[task.uid] = (task, cpus)

    def chosen(self) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
        """Return pod uid, node and CPUs of each pod that no Numatopology shows yet."""
        return tuple((uid, node, tuple(sorted(cpus))) for uid, (node, cpus) in self._kept.items())

    # --- questions ---------------------------------------------------------------------------

    def begin(self) -> None:
        """Start a session: nothing that was looked ahead in the last one counts."""
        self._ahead = {}

    def topology(self, name: str) -> Topology | None:
        """Return what is known of a node."""
        return self._topologies.get(name)

    def _free(self, name: str) -> Cpus:
        free = self._topologies[name].free
        for _, cpus in self._held.get(name, {}).values():
            free -= cpus
        return free

    def settle_on(self, task: plugins.Task) -> Cpus:
        """Return the CPUs of a placed task; they stay its own from the bind on."""
        cpus = self._held.get(task.node, {}).get(task.uid, (None, NO_CPUS))[1]
        if cpus:
            self._kept[task.uid] = (task.node, cpus)
        return cpus

    def offered(self, task_class: plugins.TaskClass, name: str, extra: int) -> Cpus | None:
        """Return the CPUs for one more pod of a class beyond `extra` others; None if refused.

        Looked ahead once per class and state of the node.
        """
        topology = self._topologies[name]
        free = self._free(name)
        key = (task_class.id, name)
        known, over, seen = self._ahead.get(key, ([], False, None))
        if seen != free:
            known, over = [], False
        while len(known) <= extra and not over:
            taken = frozenset[int]().union(*known)
            cpus = assign(topology, free - taken, task_class.exclusive)
            if cpus is None:
                over = True
            else:
                known.append(cpus)
        self._ahead[key] = (known, over, free)
        return known[extra] if extra < len(known) else None
