"""nodeorder (PL08): Kubernetes' scorers, with Volcano's weights.

Least and most requested, balanced use, preferred node affinity, taints to be avoided, preferred
pod affinity, soft topology spread, images that nodes have. The integer divisions are Kubernetes'
own and decide ties, so they are kept to the digit.
"""

from functools import partial

import numpy as np

from pumice.plugins import Arguments, Cluster, FloatArray, Hooks, IntArray, NodeRows, TaskClass
from services.scheduler.engine.nodes.attributes import NodeAttributes
from services.scheduler.engine.nodes.images import NodeImages
from services.scheduler.engine.nodes.pod_affinity import PodAffinityIndex
from services.scheduler.engine.resources.dimensions import CPU_DIM, MEMORY_DIM
from services.scheduler.policy.arguments import integer
from services.scheduler.policy.eligible import node_affinity, tolerates, tolerations
from services.scheduler.policy.inter_pod_affinity import InterPodAffinity
from services.scheduler.policy.spreading import Spreading
from shared.api.selectors import TaintEffect

_MAX = 100
_GPU = "nvidia.com/gpu"


class NodeOrder:
    """Scores nodes by resources, affinity and taints."""

    name = "nodeorder"

    def __init__(self, arguments: Arguments) -> None:
        """Take the weights; 0 switches a scorer off."""
        self._least = integer(arguments, "leastrequested.weight", 1)
        self._most = integer(arguments, "mostrequested.weight", 0)
        self._balanced = integer(arguments, "balancedresource.weight", 1)
        self._affinity = integer(arguments, "nodeaffinity.weight", 2)
        self._taints = integer(arguments, "tainttoleration.weight", 3)
        self._images = integer(arguments, "imagelocality.weight", 1)
        self._company = integer(arguments, "podaffinity.weight", 2)
        self._spread = integer(arguments, "podtopologyspread.weight", 2)
        self._gpu_dim: int | None = None

    def contribute(self, hooks: Hooks, cluster: Cluster) -> None:
        """Add the scorers that have a weight."""
        attributes, pod_affinity = cluster.store(NodeAttributes), cluster.store(PodAffinityIndex)
        self._gpu_dim = cluster.resource(_GPU)
        if self._least or self._most or self._balanced:
            hooks.node_score(self._score)
        if self._affinity:
            hooks.node_rank(partial(preferred_affinity, attributes), weight=self._affinity)
        if self._taints:
            hooks.node_rank(partial(avoided_taints, attributes), weight=self._taints, reverse=True)
        if self._images:
            hooks.node_score(partial(self._image_locality, cluster))
        if self._company:
            hooks.cross_node_score(
                InterPodAffinity(pod_affinity, attributes).preference, weight=self._company
            )
        if self._spread:
            hooks.cross_node_score(
                Spreading(pod_affinity, attributes).preference, weight=self._spread
            )

    def _image_locality(
        self, cluster: Cluster, task_class: TaskClass, rows: NodeRows
    ) -> FloatArray:
        generation = cluster.store(NodeAttributes).generation
        found = cluster.store(NodeImages).score(task_class.images, cluster.nodes.alive, generation)
        if found is None:
            return np.zeros(len(rows), dtype=np.float64)
        return (self._images * rows.pick(found)).astype(np.float64)

    def _score(self, task_class: TaskClass, rows: NodeRows) -> FloatArray:
        result = np.zeros(len(rows), dtype=np.float64)
        if self._least or self._most:
            cpu, memory = rows.scoring_requested()
            more_cpu, more_memory = task_class.scoring_request
            request_pairs = (
                (cpu + more_cpu, rows.allocatable(CPU_DIM)),
                (memory + more_memory, rows.allocatable(MEMORY_DIM)),
            )
            if self._least:
                result += self._least * _mean(
                    [_least(*pair) for pair in request_pairs], request_pairs
                )
            if self._most:
                result += self._most * _mean(
                    [_most(*pair) for pair in request_pairs], request_pairs
                )
        if self._balanced:
            result += self._balanced * self._balance(task_class, rows)
        return result

    def _balance(self, task_class: TaskClass, rows: NodeRows) -> IntArray:
        dims = [CPU_DIM, MEMORY_DIM]
        if self._gpu_dim is not None and task_class.request[self._gpu_dim]:
            dims.append(self._gpu_dim)
        elif not task_class.request[CPU_DIM] and not task_class.request[MEMORY_DIM]:
            return np.zeros(len(rows), dtype=np.int64)
        capacity = np.stack([rows.allocatable(dim) for dim in dims])
        before = np.stack([rows.requested(dim) for dim in dims])
        after = before + task_class.request[dims][:, None]
        # 50 … 100 by what the task does to the balance (Kubernetes 1.36).
        half = _MAX // 2
        change: IntArray = balance(after, capacity) - balance(before, capacity)
        return half + (half + change) // 2


def balance(requested: IntArray, capacity: IntArray) -> IntArray:
    """Return 50…100: how evenly the resources of a node are used; the first axis is resources.

    100 less the standard deviation of the used fractions; resources that a node lacks do not count.
    """
    if len(capacity) == 2 and capacity.all():  # noqa: PLR2004 - CPU and memory: the common case, no root
        fraction = np.minimum(requested / capacity, 1.0)
        deviation = np.abs(fraction[0] - fraction[1]) / 2
        return _as_score(deviation)
    present = capacity > 0
    fraction = np.where(present, np.minimum(requested / np.where(present, capacity, 1), 1.0), 0.0)
    number = present.sum(axis=0)
    mean = fraction.sum(axis=0) / np.maximum(number, 1)
    squares = np.where(present, (fraction - mean) ** 2, 0.0).sum(axis=0)
    deviation = np.sqrt(squares / np.maximum(number, 1))
    return _as_score(np.where(number > 1, deviation, 0.0))


def _as_score(deviation: FloatArray) -> IntArray:
    score: IntArray = ((1 - deviation) * _MAX).astype(np.int64)
    return score


def _least(requested: IntArray, capacity: IntArray) -> IntArray:
    free: IntArray = np.maximum(capacity - requested, 0)
    return free * _MAX // np.maximum(capacity, 1)


def _most(requested: IntArray, capacity: IntArray) -> IntArray:
    used: IntArray = np.minimum(requested, capacity)
    return used * _MAX // np.maximum(capacity, 1)


def _mean(scores: list[IntArray], request_pairs: tuple[tuple[IntArray, IntArray], ...]) -> IntArray:
    """Return the integer mean over the resources that a node has."""
    number = sum((capacity > 0).astype(np.int64) for _, capacity in request_pairs)
    return sum(scores) // np.maximum(number, 1)


def preferred_affinity(
    attributes: NodeAttributes, task_class: TaskClass, rows: NodeRows
) -> IntArray:
    """Return the sum of the weights of the preferred terms that a node matches."""
    result = np.zeros(len(rows), dtype=np.int64)
    affinity = node_affinity(task_class)
    if affinity is not None:
        for term in affinity.preferred_during_scheduling_ignored_during_execution:
            result += term.weight * rows.pick(attributes.term(term.preference))
    return result


def avoided_taints(attributes: NodeAttributes, task_class: TaskClass, rows: NodeRows) -> IntArray:
    """Return the number of PreferNoSchedule taints that a pod does not tolerate."""
    soft = [t for t in tolerations(task_class) if t.effect in {"", TaintEffect.PREFER_NO_SCHEDULE}]
    counts = attributes.taints(
        lambda taints: sum(
            taint.effect == TaintEffect.PREFER_NO_SCHEDULE and not tolerates(soft, taint)
            for taint in taints
        )
    )
    return rows.pick(counts).astype(np.int64)
