"""numa-aware (PL19): places pods with exclusive CPUs where the kubelet can align them.

Only Guaranteed pods with whole CPUs are concerned. A pod with `volcano.sh/numa-topology-policy`
goes to nodes whose kubelet has exactly that policy; any other pod may go anywhere except to nodes
whose kubelet would reject it.
"""

import json
from collections.abc import Mapping
from typing import Final

import numpy as np

from pumice.plugins import (
    Arguments,
    BoolArray,
    Cluster,
    CodeArray,
    CrossNodeScore,
    FloatArray,
    Hooks,
    NodeRows,
    Reason,
    Task,
    TaskClass,
)
from services.scheduler.policy.arguments import integer
from services.scheduler.policy.states.cpu_topology import Cpus, numa_count, per_numa
from services.scheduler.policy.states.numa import Numa
from shared.api import keys

_REASONS: Final = (
    Reason("numa info is empty"),
    Reason("cpu manager policy isn't static"),
    Reason("task topology policy is different with node"),
    Reason("cpu allocatable map is empty"),
    Reason("plugin numa-aware predicates failed"),
)
_UNKNOWN, _SHARED, _OTHER_POLICY, _NO_CPUS, _REFUSED = range(1, 6)
_STATIC: Final = "static"
_NONE: Final = frozenset({"", "none"})
_MAX: Final = 100
_DECISION: Final = "volcano.sh/topology-decision"


class NumaAware:
    """NUMA nodes of nodes."""

    name = "numa-aware"

    def __init__(self, arguments: Arguments) -> None:
        """Take `weight`."""
        self._weight = integer(arguments, "weight", 1)

    def contribute(self, hooks: Hooks, cluster: Cluster) -> None:
        """Add predicate and score, and annotate the binding with the chosen CPUs."""
        self._names = cluster.node_names
        self._numa = cluster.store(Numa)
        hooks.predicate(self._predicate, reasons=_REASONS)
        hooks.cross_node_score(self._scorer, weight=self._weight)
        hooks.binding(self._decision)

    def _predicate(self, task_class: TaskClass, rows: NodeRows) -> CodeArray:
        codes = np.zeros(len(rows), dtype=np.uint8)
        if task_class.exclusive:
            pairs = zip(rows.index.tolist(), rows.extra.tolist(), strict=True)
            for at, (column, extra) in enumerate(pairs):
                codes[at] = self._verdict(task_class, self._names[column], extra)
        return codes

    def _verdict(self, task_class: TaskClass, name: str, extra: int) -> int:
        desired = task_class.traits.get(keys.NUMA_TOPOLOGY_POLICY, "")
        topology = self._numa.topology(name)
        if topology is None:
            return 0 if desired in _NONE else _UNKNOWN
        if topology.cpu_policy != _STATIC:
            return 0 if desired in _NONE else _SHARED
        if desired in _NONE:
            if topology.policy in _NONE:
                return 0
        elif desired != topology.policy:
            return _OTHER_POLICY
        elif not topology.free:
            return _NO_CPUS
        return 0 if self._numa.offered(task_class, name, extra) is not None else _REFUSED

    def _scorer(self, task_class: TaskClass) -> CrossNodeScore | None:
        """Prefer nodes where the pod's CPUs lie on few NUMA nodes."""
        if (
            not task_class.exclusive
            or task_class.traits.get(keys.NUMA_TOPOLOGY_POLICY, "") in _NONE
        ):
            return None

        def score(mask: BoolArray) -> FloatArray:
            spread = np.zeros(len(mask), dtype=np.int64)
            for column in np.flatnonzero(mask).tolist():
                spread[column] = self._spread(task_class, self._names[column])
            widest = max(1, int(spread.max(initial=0)))
            return (_MAX - _MAX * spread // widest).astype(np.float64)

        return score

    def _spread(self, task_class: TaskClass, name: str) -> int:
        topology = self._numa.topology(name)
        cpus: Cpus | None = self._numa.offered(task_class, name, 0) if topology else None
        return numa_count(topology, cpus) if topology and cpus else 0

    def _decision(self, task: Task) -> Mapping[str, str]:
        topology = self._numa.topology(task.node)
        cpus = self._numa.settle_on(task) if task.task_class.exclusive else None
        if not cpus or topology is None:
            return {}
        numa = {str(n): {"cpu": str(count)} for n, count in per_numa(topology, cpus).items()}
        return {_DECISION: json.dumps({"numa": numa}, separators=(",", ":"))}
