"""resource-strategy-fit (PL23): spread or pack per resource; keeps scarce resources free.

Three parts: a score per requested resource (`resources`, `LeastAllocated` or `MostAllocated`; a
pod may state its own by annotation), a score that keeps pods off nodes with scarce resources which
they do not ask for (`sra`), and a predicate that reserves CPU and memory for the scarce resources
that are still free on a node (`proportional`).
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from pumice.plugins import (
    Arguments,
    BoolArray,
    Cluster,
    CodeArray,
    FloatArray,
    Hooks,
    IntArray,
    NodeRows,
    Reason,
    TaskClass,
)
from services.scheduler.engine.resources.dimensions import CPU_DIM, MEMORY_DIM
from services.scheduler.policy.arguments import BadArgument, boolean, integer, names, number
from shared.api import keys
from shared.model.resources import CPU, MEMORY

_LEAST: Final = "LeastAllocated"
_MOST: Final = "MostAllocated"
_MAX: Final = 100.0
_WEIGHTS = msgspec.json.Decoder(dict[str, int])


class Strategy(NamedTuple):
    """Strategy and weight of one resource."""

    kind: str
    weight: int


class ResourceStrategyFit:
    """Scores by a strategy per resource."""

    name = "resource-strategy-fit"

    def __init__(self, arguments: Arguments) -> None:
        """Take `resourceStrategyFitWeight`, `resources`, `sra` and `proportional`."""
        weight = integer(arguments, "resourceStrategyFitWeight", 10)
        self._weight = weight if weight >= 0 else 10
        self._strategies = _strategies(_section(arguments, "resources"))
        sra = _section(arguments, "sra")
        self._scarce: dict[str, int] = {}
        self._scarce_weight = 0
        if sra and boolean(sra, "enable", default=False):
            weights = _section(sra, "resourceWeight")
            stated = {name: integer(weights, name, 1) for name in names(sra, "resources")}
            self._scarce = {name: 1 if w < 0 else w for name, w in stated.items()}
            self._scarce_weight = integer(sra, "weight", 0)
        proportional = _section(arguments, "proportional")
        self._reserved: dict[str, tuple[float, float]] | None = None
        if proportional and boolean(proportional, "enable", default=False):
            rates = _section(proportional, "resourceProportion")
            self._reserved = {
                name: (_rate(rates, f"{name}.cpu"), _rate(rates, f"{name}.memory"))
                for name in names(proportional, "resources")
            }

    def contribute(self, hooks: Hooks, cluster: Cluster) -> None:
        """Add the parts that are switched on."""
        self._names = cluster.resources
        self._find = cluster.resource
        if self._reserved is not None:
            reasons = [
                Reason(f"proportional of resource {name} check failed", resolvable=False)
                for name in self._reserved
            ]
            hooks.predicate(self._proportional, reasons=reasons)
        if self._weight > 0:
            hooks.node_score(self._by_strategy)
        if self._scarce_weight > 0:
            hooks.node_score(self._by_scarcity)

    # --- a strategy per resource -------------------------------------------------------------

    def _by_strategy(self, task_class: TaskClass, rows: NodeRows) -> FloatArray:
        score = np.zeros(len(rows), dtype=np.float64)
        overfull = np.zeros(len(rows), dtype=np.bool_)
        weights = 0
        for dim, strategy in self._of_class(task_class):
            have, then = rows.allocatable(dim), rows.used(dim) + int(task_class.request[dim])
            weights += strategy.weight
            if not strategy.weight or strategy.kind not in {_LEAST, _MOST}:
                continue
            counts = have > 0
            overfull |= counts & (then > have)
            part = then if strategy.kind == _MOST else have - then
            score += np.where(counts, part * float(strategy.weight) / np.maximum(have, 1), 0.0)
        if weights:
            score /= weights
        score[overfull] = 0.0
        return score * (_MAX * self._weight)

    def _of_class(self, task_class: TaskClass) -> list[tuple[int, Strategy]]:
        """Return the strategy of each requested resource: of the pod, else as configured.

        A pod that names a strategy without readable weights scores nothing anywhere.
        """
        requested = [int(dim) for dim in np.flatnonzero(task_class.request > 0)]
        kind = task_class.traits.get(keys.RESOURCE_STRATEGY_TYPE, "")
        if not kind:
            found = [(dim, self._configured(self._names[dim])) for dim in requested]
            return [(dim, strategy) for dim, strategy in found if strategy is not None]
        try:
            weights = _WEIGHTS.decode(task_class.traits.get(keys.RESOURCE_STRATEGY_WEIGHT, ""))
        except msgspec.DecodeError:
            return []
        return [
            (dim, Strategy(kind, weights[self._names[dim]]))
            for dim in requested
            if self._names[dim] in weights
        ]

    def _configured(self, resource: str) -> Strategy | None:
        """Return the strategy of a resource: its own, else that of the longest prefix."""
        if resource in self._strategies:
            return self._strategies[resource]
        prefixes = [
            pattern
            for pattern in self._strategies
            if pattern.endswith("*") and resource.startswith(pattern[:-1])
        ]
        return self._strategies[max(prefixes, key=len)] if prefixes else None

    # --- scarce resources --------------------------------------------------------------------

    def _by_scarcity(self, task_class: TaskClass, rows: NodeRows) -> FloatArray:
        score = np.zeros(len(rows), dtype=np.float64)
        for name, weight in self._scarce.items():
            score += weight * self._has(rows, name)
        total = sum(self._scarce.values())
        if total > 0:
            score = 1.0 - score / total
        for dim in np.flatnonzero(task_class.request > 0).tolist():
            score[rows.allocatable(dim) == 0] = 0.0
        return score * (_MAX * self._scarce_weight)

    def _has(self, rows: NodeRows, name: str) -> BoolArray:
        dim = self._find(name)
        if dim is None:
            return np.zeros(len(rows), dtype=np.bool_)
        return rows.allocatable(dim) > 0

    def _proportional(self, task_class: TaskClass, rows: NodeRows) -> CodeArray:
        codes = np.zeros(len(rows), dtype=np.uint8)
        dims = {name: self._find(name) for name in self._reserved or {}}
        if any(dim is not None and task_class.request[dim] > 0 for dim in dims.values()):
            return codes
        cpu, memory = (self._left(task_class, rows, dim) for dim in (CPU_DIM, MEMORY_DIM))
        for code, (name, rates) in enumerate((self._reserved or {}).items(), start=1):
            dim = dims[name]
            if dim is None:
                continue
            free = rows.allocatable(dim) - rows.used(dim)
            short = (cpu < free * rates[0]) | (memory < free * rates[1] * 1e6)
            present = rows.allocatable(dim) > 0
            codes[short & present & (codes == 0)] = code
        return codes

    @staticmethod
    def _left(task_class: TaskClass, rows: NodeRows, dim: int) -> IntArray:
        """Return the idle amounts of nodes after the task was placed."""
        left: IntArray = rows.allocatable(dim) - rows.used(dim) - int(task_class.request[dim])
        return left


def _strategies(stated: Mapping[str, Any]) -> dict[str, Strategy]:
    """Return the strategies by resource or prefix (`nvidia.com/*`); other patterns are dropped."""
    if not stated:
        return {CPU: Strategy(_LEAST, 1), MEMORY: Strategy(_LEAST, 1)}
    found = {}
    for name, entry in stated.items():
        if "*" in name[:-1] or name == "*":
            continue
        section = entry if isinstance(entry, Mapping) else {}
        weight = integer(section, "weight", 1)
        kind = str(section.get("type", _LEAST))
        found[name] = Strategy(kind if kind in {_LEAST, _MOST} else _LEAST, max(weight, 1))
    return found


def _section(arguments: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = arguments.get(key) or {}
    if not isinstance(value, Mapping):
        raise BadArgument(f"{key}: {value!r} is no section")
    return value


def _rate(rates: Mapping[str, Any], key: str) -> float:
    rate = number(rates, key, 1.0)
    return rate if rate >= 0 else 1.0
