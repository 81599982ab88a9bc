"""rescheduling (PL22): periodically moves pods off hot nodes while cold nodes have room.

The one strategy is `lowNodeUtilization`: nodes whose measured load is below `thresholds` in every
resource are cold, nodes above `targetThresholds` in one are hot. Pods of hot nodes are evicted, the
least important first, until the nodes are below the target or the room of the cold nodes is used
up.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from pumice.plugins import Arguments, BoolArray, Cluster, FloatArray, Hooks, IntArray, Task
from services.scheduler.engine.resources.dimensions import CPU_DIM, MEMORY_DIM
from services.scheduler.policy.arguments import BadArgument, number
from services.scheduler.policy.states.usage import UsageTable
from shared.model import durations

_STRATEGY: Final = "lowNodeUtilization"
_INTERVAL_S: Final = 300.0
_FULL: Final = 100.0
_RESOURCES: Final = ("cpu", "memory")


class Rescheduling:
    """Moves load from hot nodes to cold ones."""

    name = "rescheduling"

    def __init__(self, arguments: Arguments) -> None:
        """Read `interval` and `strategies`; `metricsPeriod` belongs to the metrics source."""
        interval = durations.parse(str(arguments.get("interval", "")))
        self._interval_s = _INTERVAL_S if interval is None else interval
        strategies = arguments.get("strategies") or [{"name": _STRATEGY}]
        if not isinstance(strategies, Sequence) or isinstance(strategies, str):
            raise BadArgument("strategies: a list of {name, params} is expected")
        self._limits: tuple[FloatArray, FloatArray] | None = None
        for strategy in strategies:
            if strategy.get("name") == _STRATEGY:
                params = strategy.get("params") or {}
                self._limits = (
                    _percent(params, "thresholds"),
                    _percent(params, "targetThresholds"),
                )

    def contribute(self, hooks: Hooks, cluster: Cluster) -> None:
        """Add the victims when the interval is over; it starts with the first cycle."""
        memory, now = cluster.memory, cluster.now
        if now - memory.setdefault(self.name, now) <= self._interval_s:
            return
        memory[self.name] = now
        if self._limits is not None:
            low, target = self._limits
            hooks.victim_tasks(lambda tasks: _victims(cluster, tasks, low, target))


def _victims(
    cluster: Cluster, tasks: Sequence[Task], low: FloatArray, target: FloatArray
) -> list[Task]:
    nodes, alive = cluster.nodes, cluster.nodes.alive
    load = cluster.store(UsageTable).table(cluster.node_names)[:2]
    have = nodes.allocatable[[CPU_DIM, MEMORY_DIM]]
    cold, hot = sides(load, low, target, alive & ~nodes.unschedulable)
    hot &= alive
    if not cold.any() or not hot.any() or cold.sum() == alive.sum():
        return []
    room = _room(load[:, cold], have[:, cold], target)
    by_node: dict[str, list[Task]] = {}
    for task in tasks:
        by_node.setdefault(task.node, []).append(task)
    victims = []
    for column in sorted(np.flatnonzero(hot).tolist(), key=lambda c: (-load[:, c].sum(), c)):
        left = load[:, column].copy()
        for task in sorted(by_node.get(cluster.node_names[column], []), key=_least_important):
            if not (left >= target).any() or (room == 0).any():
                break
            request = task.task_class.request[[CPU_DIM, MEMORY_DIM]]
            room = room - request
            left -= request * 100.0 / np.maximum(have[:, column], 1)
            victims.append(task)
    return victims


def sides(
    load: FloatArray, low: FloatArray, target: FloatArray, open_nodes: BoolArray
) -> tuple[BoolArray, BoolArray]:
    """Return which nodes are cold and which are hot; `load` is a row of percents per resource."""
    cold: BoolArray = (load < low[:, None]).all(axis=0) & open_nodes
    hot: BoolArray = (load > target[:, None]).any(axis=0) & ~cold
    return cold, hot


def _room(load: FloatArray, have: IntArray, target: FloatArray) -> IntArray:
    """Return the total amounts that cold nodes can take before they reach the target."""
    desired = (target[:, None] * have * 0.01).astype(np.int64)
    used = (load * have * 0.01).astype(np.int64)
    room: IntArray = (desired - used).sum(axis=1)
    return room


def _least_important(task: Task) -> tuple[Any, ...]:
    return task.pod_priority, not task.task_class.best_effort, task.order()


def _percent(params: Mapping[str, Any], key: str) -> FloatArray:
    stated = params.get(key) or {}
    if not isinstance(stated, Mapping):
        raise BadArgument(f"{key}: {stated!r} is no section")
    return np.array([number(stated, name, _FULL) for name in _RESOURCES])
