"""binpack (PL09): fill nodes one after another, by the fraction of each resource in use."""

import numpy as np

from pumice.plugins import Arguments, Cluster, FloatArray, Hooks, NodeRows, TaskClass
from services.scheduler.policy.arguments import integer, names
from shared.model.resources import CPU, MEMORY

_MAX = 100


class Binpack:
    """Prefers fuller nodes."""

    name = "binpack"

    def __init__(self, arguments: Arguments) -> None:
        """Take `binpack.weight`, `.cpu`, `.memory`, `.resources` and `.resources.<name>`.

        A negative weight of a resource counts as 1; 0 leaves the resource out of the score.
        """
        self._weight = integer(arguments, "binpack.weight", 1)
        listed = names(arguments, "binpack.resources")
        weights = {name: integer(arguments, f"binpack.resources.{name}", 1) for name in listed}
        weights[CPU] = integer(arguments, "binpack.cpu", 1)
        weights[MEMORY] = integer(arguments, "binpack.memory", 1)
        self._weights = {name: 1 if w < 0 else w for name, w in weights.items()}
        self._by_dim: list[tuple[int, int]] = []

    def contribute(self, hooks: Hooks, cluster: Cluster) -> None:
        """Add the score unless its weight is 0."""
        places = [(cluster.resource(name), weight) for name, weight in self._weights.items()]
        self._by_dim = [(dim, weight) for dim, weight in places if dim is not None]
        if self._weight:
            hooks.node_score(self._score)

    def _score(self, task_class: TaskClass, rows: NodeRows) -> FloatArray:
        score = np.zeros(len(rows), dtype=np.float64)
        overfull = np.zeros(len(rows), dtype=np.bool_)
        weights = 0
        for dim, weight in self._by_dim:
            if not task_class.request[dim]:
                continue
            have = rows.allocatable(dim)
            then = rows.used(dim) + task_class.request[dim]
            weights += weight
            if weight:
                counts = have > 0
                overfull |= counts & (then > have)
                score += np.where(counts, then * float(weight) / np.where(counts, have, 1), 0.0)
        if weights:
            score /= weights
        score[overfull] = 0.0
        return score * (_MAX * self._weight)
