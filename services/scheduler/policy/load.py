"""Arithmetic of the plugin usage (PL21): how loaded nodes are, and will be; pure.

All functions work on arrays over nodes. A load is a fraction 0…1 of what a node has: what was
measured plus an estimate for pods that the measurements cannot show yet.
"""

from typing import NamedTuple

import numpy as np

from pumice.plugins import FloatArray, IntArray


class Estimator(NamedTuple):
    """How much of its request a pod is thought to use."""

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

        A pod's limit is taken to be its request, so that nothing beyond it is estimated.
        """
        if best_effort:
            return np.stack([amount * factor for amount in self.best_effort])
        return np.stack(
            [np.minimum(amount * self.request_ratio * factor, amount) for amount in request]
        )


class Weights(NamedTuple):
    """How much CPU and memory count."""

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
    """Return by how much estimates are raised on nodes of this load."""
    factor = max(1.0, estimator.risk_factor)
    return np.where(load >= estimator.risk_threshold, factor, 1.0)
