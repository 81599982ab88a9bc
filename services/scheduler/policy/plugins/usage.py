"""usage (PL21): prefers nodes with low measured load, and avoids nodes above thresholds.

Load is measured outside and put into the cluster state (`policy.states.usage`). Measurements do not
include pods that were placed or started within the last metrics interval: these count with an
estimate, which is higher on loaded nodes. Samples older than five minutes are ignored.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from pumice.plugins import (
    Arguments,
    Cluster,
    CodeArray,
    FloatArray,
    Hooks,
    IntArray,
    Job,
    NodeRows,
    Reason,
    TaskClass,
)
from services.scheduler.engine.nodes.arrivals import TaskArrivals
from services.scheduler.engine.resources.dimensions import CPU_DIM, MEMORY_DIM
from services.scheduler.policy.arguments import BadArgument, integer, number
from services.scheduler.policy.states.usage import UsageTable
from shared.model.quantity import BadQuantity, milli, units


class Estimator(NamedTuple):
    """Estimates how much of its request a pod will use."""

    request_ratio: float = 0.7
    burst_ratio: float = 0.0
    risk_threshold: float = 0.6
    """Composite load from which estimates are raised."""
    risk_factor: float = 1.2
    best_effort: tuple[float, float] = (250.0, 200.0 * 1024 * 1024)
    """Milli-CPU and bytes of a pod that asks for nothing."""

    def of_pod(
        self, request: tuple[float, float], factor: FloatArray, *, best_effort: bool
    ) -> FloatArray:
        """Return milli-CPU and bytes (rows) that a pod will use on each node.

        The limit is assumed to equal the request, so the estimate does not exceed it.
        """
        if best_effort:
            return np.stack([amount * factor for amount in self.best_effort])
        return np.stack(
            [np.minimum(amount * self.request_ratio * factor, amount) for amount in request]
        )


class Weights(NamedTuple):
    """Weights of CPU and memory."""

    cpu: int = 1
    memory: int = 1

    def mean(self, cpu: FloatArray, memory: FloatArray) -> FloatArray:
        """Return the weighted mean, 0 without weights."""
        total = self.cpu + self.memory
        if not total:
            return np.zeros_like(cpu)
        return (cpu * self.cpu + memory * self.memory) / total


def composite(percent: FloatArray, estimate: FloatArray, capacity: IntArray) -> FloatArray:
    """Return the load of one resource: measured percent plus estimated amount."""
    there = capacity > 0
    safe = np.where(there, capacity, 1)
    load = (percent / 100.0 * safe + estimate) / safe
    return np.where(there, np.clip(load, 0.0, 1.0), 0.0)


def risk(load: FloatArray, estimator: Estimator) -> FloatArray:
    """Return the factor of estimates on nodes of this load."""
    factor = max(1.0, estimator.risk_factor)
    return np.where(load >= estimator.risk_threshold, factor, 1.0)


_ACTIVE_S: Final = 300.0
_INTERVAL_S: Final = 30.0
_MAX: Final = 100.0
_REASONS = (
    Reason("the CPU load of the node exceeds the upper limit.", resolvable=False),
    Reason("the memory load of the node exceeds the upper limit.", resolvable=False),
)


class Usage:
    """Scores and thresholds by measured load."""

    name = "usage"

    def __init__(self, arguments: Arguments) -> None:
        """Take `usage.weight`, `cpu.weight`, `memory.weight`, `thresholds` and `estimator`.

        A number out of its range counts as not given.
        """
        self._weight = _within(arguments, "usage.weight", 5)
        self._weights = Weights(
            cpu=_within(arguments, "cpu.weight", 1), memory=_within(arguments, "memory.weight", 1)
        )
        thresholds = _section(arguments, "thresholds")
        self._cpu_limit = _within(thresholds, "cpu", 80, most=100)
        self._memory_limit = _within(thresholds, "mem", 80, most=100)
        self._estimator = _estimator(_section(arguments, "estimator"))

    def contribute(self, hooks: Hooks, cluster: Cluster) -> None:
        """Add threshold and score."""
        nodes = cluster.nodes
        self._load = cluster.store(UsageTable).table(cluster.node_names)
        self._fresh = cluster.now - self._load[2] <= _ACTIVE_S
        self._capacity: IntArray = np.stack(
            [nodes.allocatable[dim] for dim in (CPU_DIM, MEMORY_DIM)]
        )
        self._estimate: FloatArray = np.zeros_like(self._load[:2])
        self._counted: dict[tuple[int, int], list[FloatArray]] = {}
        for task in cluster.store(TaskArrivals).since(cluster.now - _INTERVAL_S):
            if (column := nodes.column(task.node)) >= 0:
                self._count(column, task.task_class)
        hooks.predicate(self._predicate, reasons=_REASONS)
        hooks.node_score(self._score)
        hooks.moved(self._moved)

    def _predicate(self, _: TaskClass, rows: NodeRows) -> CodeArray:
        fresh, cpu, memory = (
            rows.pick(self._fresh),
            rows.pick(self._load[0]),
            rows.pick(self._load[1]),
        )
        codes = np.where(cpu > self._cpu_limit, 1, np.where(memory > self._memory_limit, 2, 0))
        result: CodeArray = np.where(fresh, codes, 0).astype(np.uint8)
        return result

    def _score(self, task_class: TaskClass, rows: NodeRows) -> FloatArray:
        columns = rows.index
        estimate = self._estimate[:, columns]
        for step in range(int(rows.extra.max(initial=0))):
            more = self._estimated(task_class, columns, estimate)
            estimate = estimate + np.where(rows.extra > step, more, 0.0)
        cpu, memory = self._loads(columns, estimate)
        score = self._weights.mean(1.0 - cpu, 1.0 - memory) * (_MAX * self._weight)
        return np.where(self._fresh[columns], score, 0.0)

    # --- estimates ---------------------------------------------------------------------------

    def _loads(self, columns: IntArray, estimate: FloatArray) -> tuple[FloatArray, FloatArray]:
        cpu, memory = (
            composite(self._load[dim, columns], estimate[dim], self._capacity[dim, columns])
            for dim in (0, 1)
        )
        return cpu, memory

    def _estimated(
        self, task_class: TaskClass, columns: IntArray, estimate: FloatArray
    ) -> FloatArray:
        """Return the estimated usage of one more task of a class on these nodes."""
        factor = risk(self._weights.mean(*self._loads(columns, estimate)), self._estimator)
        request = (float(task_class.request[CPU_DIM]), float(task_class.request[MEMORY_DIM]))
        return self._estimator.of_pod(request, factor, best_effort=task_class.best_effort)

    def _count(self, column: int, task_class: TaskClass) -> None:
        at = np.array([column])
        more = self._estimated(task_class, at, self._estimate[:, at])[:, 0]
        self._counted.setdefault((column, task_class.id), []).append(more)
        self._estimate[:, column] += more

    def _moved(self, _: Job, task_class: TaskClass, columns: IntArray, counts: IntArray) -> None:
        for column, count in zip(columns.tolist(), counts.tolist(), strict=True):
            for _time in range(count):
                self._count(column, task_class)
            counted = self._counted.get((column, task_class.id), [])
            for _time in range(min(-count, len(counted))):
                self._estimate[:, column] -= counted.pop()


def _section(arguments: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = arguments.get(key)
    if value is not None and not isinstance(value, Mapping):
        raise BadArgument(f"{key}: {value!r} is no section")
    return value or {}


def _within(arguments: Mapping[str, Any], key: str, default: int, *, most: int = 2**31) -> int:
    value = integer(arguments, key, default)
    return value if 0 <= value <= most else default


def _estimator(stated: Mapping[str, Any]) -> Estimator:
    plain = Estimator()

    def ratio(key: str, default: float) -> float:
        value = number(stated, key, default)
        return value if 0 <= value <= 1 else default

    factor = number(stated, "risk_factor", plain.risk_factor)
    cpu, memory = plain.best_effort
    return Estimator(
        request_ratio=ratio("request_ratio", plain.request_ratio),
        burst_ratio=ratio("burst_ratio", plain.burst_ratio),
        risk_threshold=ratio("risk_threshold", plain.risk_threshold),
        risk_factor=factor if factor >= 1 else plain.risk_factor,
        best_effort=(
            _amount(stated.get("be_cpu"), cpu, scale=1.0, quantity=milli),
            _amount(stated.get("be_mem"), memory, scale=2.0**20, quantity=units),
        ),
    )


def _amount(value: Any, default: float, *, scale: float, quantity: Any) -> float:  # noqa: ANN401 - YAML
    """Return an amount: a number counts in milli-CPU or MiB, a text is a quantity."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value * scale if value >= 0 else default
    if isinstance(value, str):
        try:
            amount = float(quantity(value))
        except BadQuantity:
            return default
        return amount if amount >= 0 else default
    return default
