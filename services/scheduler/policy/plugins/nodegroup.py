"""nodegroup (PL13): limits queues to node groups, and to amounts of each group.

A node's group is its label `volcano.sh/nodegroup-name`. A queue without affinity of its own takes
that of its nearest ancestor when `enableHierarchy` is set. Where rules contradict each other,
anti-affinity counts more than affinity, and preferences more than requirements.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import numpy as np

from pumice.plugins import (
    Arguments,
    Cluster,
    CodeArray,
    CrossNodeVerdict,
    FloatArray,
    Hooks,
    IntArray,
    Job,
    NodeGroups,
    NodeRows,
    Queue,
    Reason,
    Task,
    TaskClass,
)
from services.scheduler.policy.arguments import boolean
from shared.api import keys
from shared.api.scheduling import ROOT_QUEUE
from shared.model.quantity import BadQuantity
from shared.model.resources import EPSILON
from shared.model.status import HOLDS_RESOURCES

_TRAIT = "queue"
_BASE = 100.0
_REASONS = (
    Reason("node group label not found", resolvable=False),
    Reason("node group affinity not found", resolvable=False),
    Reason("node does not satisfy the node group affinity", resolvable=False),
    Reason("node group resource limit invalid", resolvable=False),
)
_NO_LABEL, _NO_AFFINITY, _UNSATISFIED, _INVALID = range(1, 5)
_EXCEEDED = Reason("node group resource limit exceeded", resolvable=False)
_AMOUNTS = msgspec.json.Decoder(dict[str, dict[str, str | int | float]])


class _Limits(NamedTuple):
    """Affinity and anti-affinity of a queue to groups of nodes."""

    ceiling: IntArray
    """Group by resource; only where `stated`."""
    stated: np.ndarray
    taken: IntArray
    """Group by resource: amounts of the queue's tasks there, waiting ones included."""


class NodeGroup:
    """Groups of nodes for queues."""

    name = "nodegroup"

    def __init__(self, arguments: Arguments) -> None:
        """Take `strict` (no nodes without group) and `enablePreferredOrder`."""
        self._strict = boolean(arguments, "strict", default=True)
        self._in_order = boolean(arguments, "enablePreferredOrder", default=False)
        self._groups: list[str] = []
        self._group_of: IntArray = np.zeros(0, dtype=np.int64)
        self._affinities: dict[str, NodeGroups | None] = {}
        self._limits: dict[str, _Limits | None] = {}
        """Queue → limits; None for limits that cannot be read, which refuse all nodes."""

    def contribute(self, hooks: Hooks, cluster: Cluster) -> None:
        """Add the rules; groups of nodes are read once per cycle."""
        labels = cluster.nodes.label(keys.NODEGROUP_NAME)
        self._groups = sorted({str(label) for label in labels if label is not None})
        number = {group: at for at, group in enumerate(self._groups)}
        self._group_of = np.array([number.get(label, -1) for label in labels], dtype=np.int64)
        self._read_queues(cluster, hierarchy=hooks.enabled("enableHierarchy"))

        def queue_of(task: Task) -> str:
            job = cluster.job_of(task)
            return job.queue if job else ""

        hooks.trait(_TRAIT, queue_of)
        hooks.predicate(self._predicate, reasons=_REASONS)
        hooks.node_score(self._score)
        if any(self._limits.values()):
            hooks.cross_node_predicate(self._limited, reasons=[_EXCEEDED])
            hooks.moved(self._moved)

    # --- affinity of queues ------------------------------------------------------------------

    def _read_queues(self, cluster: Cluster, *, hierarchy: bool) -> None:
        queues = cluster.queues
        for name, queue in queues.items():
            stated = _stated(queue, queues) if hierarchy else queue.affinity
            self._affinities[name] = stated if stated is not None and any(stated) else None
            text = queue.annotations.get(keys.NODEGROUP_RESOURCE_LIMITS)
            if text:
                self._limits[name] = self._read_limits(cluster, text)
        if any(self._limits.values()):
            for name in queues:
                for job in cluster.jobs_of(name):
                    self._count(cluster, job)

    def _read_limits(self, cluster: Cluster, text: str) -> _Limits | None:
        try:
            listed = _AMOUNTS.decode(text)
            amounts = {group: cluster.amounts(amounts) for group, amounts in listed.items()}
        except (msgspec.DecodeError, BadQuantity):
            return None
        task_class = (len(self._groups), len(cluster.total))
        limits = _Limits(
            np.zeros(task_class, np.int64),
            np.zeros(task_class, np.bool_),
            np.zeros(task_class, np.int64),
        )
        for at, group in enumerate(self._groups):
            if group in amounts:
                limits.ceiling[at] = amounts[group]
                dims = [cluster.resource(name) for name in listed[group]]
                limits.stated[at, [dim for dim in dims if dim is not None]] = True
        return limits

    def _count(self, cluster: Cluster, job: Job) -> None:
        limits = self._limits.get(job.queue)
        if limits is None:
            return
        for task in job.tasks.values():
            column = cluster.nodes.column(task.node) if task.node else -1
            if HOLDS_RESOURCES[task.status] and column >= 0 and self._group_of[column] >= 0:
                limits.taken[self._group_of[column]] += task.task_class.request

    # --- the rules ---------------------------------------------------------------------------

    def _predicate(self, task_class: TaskClass, rows: NodeRows) -> CodeArray:
        queue = task_class.traits.get(_TRAIT, "")
        groups = rows.pick(self._group_of)
        affinity = self._affinities.get(queue)
        if queue in self._limits and self._limits[queue] is None:
            return np.full(len(rows), _INVALID, dtype=np.uint8)
        unlabelled = _NO_LABEL if self._strict or affinity is not None else 0
        verdicts = [self._verdict(affinity, group) for group in self._groups]
        return np.array([*verdicts, unlabelled], dtype=np.uint8)[groups]

    @staticmethod
    def _verdict(affinity: NodeGroups | None, group: str) -> int:
        if affinity is None:
            return _NO_AFFINITY
        return 0 if admits(affinity, group) else _UNSATISFIED

    def _score(self, task_class: TaskClass, rows: NodeRows) -> FloatArray:
        affinity = self._affinities.get(task_class.traits.get(_TRAIT, ""))
        if affinity is None:
            return np.zeros(len(rows), dtype=np.float64)
        scores = [score(affinity, group, in_order=self._in_order) for group in self._groups]
        return np.array([*scores, 0.0], dtype=np.float64)[rows.pick(self._group_of)]

    def _limited(self, task_class: TaskClass) -> CrossNodeVerdict | None:
        limits = self._limits.get(task_class.traits.get(_TRAIT, ""))
        if limits is None:
            return None

        def codes() -> CodeArray:
            beyond = limits.taken + task_class.request - limits.ceiling >= EPSILON
            full = (beyond & limits.stated).any(axis=1)
            return np.append(full, False).astype(np.uint8)[self._group_of]

        return CrossNodeVerdict(codes, one_by_one=True)

    def _moved(self, job: Job, task_class: TaskClass, columns: IntArray, counts: IntArray) -> None:
        limits = self._limits.get(job.queue)
        if limits is not None:
            groups = self._group_of[columns]
            known = groups >= 0
            amounts = counts[known, None] * task_class.request[None, :]
            np.add.at(limits.taken, groups[known], amounts)


def _stated(queue: Queue, queues: Mapping[str, Queue]) -> NodeGroups | None:
    """Return a queue's affinity, or that of its nearest ancestor with one."""
    seen: set[str] = set()
    at: Queue | None = queue
    while at is not None and at.name not in seen:
        if at.affinity is not None:
            return at.affinity
        seen.add(at.name)
        at = None if at.name == ROOT_QUEUE else queues.get(at.parent or ROOT_QUEUE)
    return None


def admits(groups: NodeGroups, group: str) -> bool:
    """Tell whether pods may run in a group; a preference to stay off still admits it."""
    if group in groups.rather_not:
        return True
    return group not in groups.never and group in {*groups.required, *groups.preferred}


def score(groups: NodeGroups, group: str, *, in_order: bool) -> float:
    """Return the score of a group; `in_order`: earlier preferred groups score higher."""
    if group in groups.rather_not:
        return -1.0
    score = _BASE if group in groups.required else 0.0
    if group in groups.preferred:
        # If a group is named twice, its last position counts.
        place = len(groups.preferred) - 1 - groups.preferred[::-1].index(group)
        number = len(set(groups.preferred))
        score += 0.5 * _BASE * ((number - place) / number if in_order else 1.0)
    return score
