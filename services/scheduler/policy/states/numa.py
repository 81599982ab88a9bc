"""NUMA nodes of nodes, and which CPUs pods have to themselves (PL19).

A Numatopology says which CPUs are free. Pods that were placed and are not in it yet hold the CPUs
that were chosen for them, until it names them, or changes while they run.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import convert
from typing_extensions import override

from pumice.plugins import Fold, Journal, PolicyState, Task, TaskClass
from services.scheduler.engine.tasks.classes import exclusive_cpus
from services.scheduler.policy.states.cpu_topology import (
    NO_CPUS,
    Cpus,
    Topology,
    assign,
    topology_of,
)
from shared.api import kinds
from shared.api.core import Pod
from shared.api.nodeinfo import Numatopology
from shared.model.status import TaskStatus


class Numa(PolicyState):
    """The topologies of all nodes."""

    name: ClassVar[str] = "cpus"

    def __init__(self) -> None:
        self._topologies: dict[str, Topology] = {}
        self._held: dict[str, dict[str, tuple[Task, Cpus]]] = {}
        """Node → pod uid → CPUs that were chosen for it."""
        self._kept: dict[str, tuple[str, Cpus]] = {}
        """Pod uid → node and CPUs that a plan binds it with."""
        self._ahead: dict[tuple[int, str], tuple[list[Cpus], bool, Cpus | None]] = {}
        """Class and node → CPUs of one pod after another, whether that is all, free CPUs then."""

    # --- facts -------------------------------------------------------------------------------

    @override
    def folds(self) -> Mapping[str, Fold]:
        """Read Numatopologies."""
        return {kinds.NUMATOPOLOGY.token: Fold(self.put, self.remove)}

    def put(self, name: str, obj: Numatopology) -> None:
        """Store a Numatopology; its name is that of its node. Raises `BadQuantity`."""
        topology = self._topologies[name] = topology_of(obj)
        counted = self._held.get(name, {})
        for uid in [u for u, (task, _) in counted.items() if task.status == TaskStatus.RUNNING]:
            self._release(name, uid)
        for uid in topology.holders & counted.keys():
            self._release(name, uid)
        self._ahead = {}

    def _release(self, name: str, uid: str) -> None:
        del self._held[name][uid]
        self._kept.pop(uid, None)

    def remove(self, name: str) -> None:
        """Forget a Numatopology."""
        self._topologies.pop(name, None)
        self._ahead = {}

    @override
    def demand(self, pod: Pod) -> tuple[int, ...]:
        """Return how many CPUs each container of a pod gets to itself."""
        return exclusive_cpus(pod.spec)

    @override
    def leave(self, task: Task, *, gone: bool) -> None:
        """Forget the CPUs of a pod that is gone."""
        if gone:
            self._kept.pop(task.uid, None)

    @override
    def count(self, task: Task, sign: int) -> None:
        """Add a task on its node's CPUs (-1: remove it), unless it is another scheduler's."""
        if not task.ours:
            return
        counted = self._held.setdefault(task.node, {})
        if sign < 0:
            counted.pop(task.uid, None)
            return
        node, cpus = self._kept.get(task.uid, ("", NO_CPUS))
        topology = self._topologies.get(task.node)
        if node != task.node:
            if topology is None or not topology.aligns or task.uid in topology.holders:
                return
            if task.status == TaskStatus.RUNNING:
                return
            cpus = assign(topology, self._free(task.node), task.task_class.exclusive) or NO_CPUS
        counted[task.uid] = (task, cpus)

    # --- memory ------------------------------------------------------------------------------

    @override
    def dump(self) -> list[tuple[str, str, list[int]]]:
        """Return pod uid, node and CPUs of each pod that no Numatopology shows yet."""
        return [(uid, node, sorted(cpus)) for uid, (node, cpus) in self._kept.items()]

    @override
    def restore(self, dumped: Any) -> None:
        """Use CPUs that were chosen elsewhere, until a Numatopology shows them."""
        found = convert(dumped, list[tuple[str, str, frozenset[int]]])
        self._kept = {uid: (node, cpus) for uid, node, cpus in found}

    # --- queries -----------------------------------------------------------------------------

    @override
    def begin(self, journal: Journal) -> None:
        """Begin a session: nothing that was looked ahead in the last one counts."""
        super().begin(journal)
        self._ahead = {}

    def topology(self, name: str) -> Topology | None:
        """Return what is known of a node."""
        return self._topologies.get(name)

    def _free(self, name: str) -> Cpus:
        free = self._topologies[name].free
        for _, cpus in self._held.get(name, {}).values():
            free -= cpus
        return free

    def settle_on(self, task: Task) -> Cpus:
        """Return the CPUs of a placed task; they stay its own from the bind on."""
        cpus = self._held.get(task.node, {}).get(task.uid, (None, NO_CPUS))[1]
        if cpus:
            self.journal.write(self._kept, task.uid, (task.node, cpus))
        return cpus

    def offered(self, task_class: TaskClass, name: str, extra: int) -> Cpus | None:
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
