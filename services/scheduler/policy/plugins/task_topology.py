"""task-topology (PL20): affinity and anti-affinity between the roles of a job.

A PodGroup says so in `volcano.sh/task-topology-affinity` (`ps,worker;evaluator`), `-anti-affinity`
and `-task-order`. Each placement changes the scores for the rest of its bucket, so tasks of such
jobs are placed one by one; other jobs are not affected.
"""

from collections import Counter
from typing import Any, Final

import numpy as np

from pumice.plugins import (
    Arguments,
    BoolArray,
    Cluster,
    CrossNodeScore,
    CrossNodeVerdict,
    FloatArray,
    Hooks,
    IntArray,
    Job,
    Reason,
    Task,
    TaskClass,
)
from services.scheduler.policy.arguments import integer
from services.scheduler.policy.task_buckets import Bucket, Buckets, rules_of
from shared.api import keys
from shared.model.status import TaskStatus

_TRAIT: Final = "bucket"
_MAX: Final = 100.0
_ANNOTATIONS: Final = frozenset(
    {
        keys.TASK_TOPOLOGY_AFFINITY,
        keys.TASK_TOPOLOGY_ANTI_AFFINITY,
        keys.TASK_TOPOLOGY_TASK_ORDER,
    }
)


class TaskTopology:
    """Buckets of tasks."""

    name = "task-topology"

    def __init__(self, arguments: Arguments) -> None:
        """Take `task-topology.weight`."""
        self._weight = integer(arguments, "task-topology.weight", 1)
        self._jobs: dict[str, Buckets] = {}
        self._order: dict[str, tuple[int, int]] = {}

    def contribute(self, hooks: Hooks, cluster: Cluster) -> None:
        """Add order and score for the jobs that state a topology; nothing without any."""
        self._cluster = cluster
        for job in cluster.jobs:
            if job.by_status[TaskStatus.PENDING] and _ANNOTATIONS & job.annotations.keys():
                rules = rules_of(job.annotations, frozenset(job.roles))
                if rules is not None:
                    tasks = sorted(job.tasks.values(), key=lambda task: task.order())
                    buckets = self._jobs[job.key] = Buckets(tasks, rules)
                    self._order.update(
                        (uid, (-bucket.left, bucket.index)) for uid, bucket in buckets.of.items()
                    )
        if self._jobs:
            hooks.trait(_TRAIT, self._trait)
            hooks.task_order(self._place)
            hooks.cross_node_predicate(self._one_by_one, reasons=[Reason("never given")])
            hooks.cross_node_score(self._score, weight=self._weight)
            hooks.moved(self._moved)

    def _trait(self, task: Task) -> str:
        buckets = self._jobs.get(task.job_key)
        bucket = buckets.of.get(task.uid) if buckets else None
        return f"{bucket.index} {task.role} {task.job_key}" if bucket else ""

    def _place(self, task: Task) -> tuple[Any, ...]:
        """Order tasks: larger buckets first, then the roles that come first in a bucket."""
        found = self._order.get(task.uid)
        if found is None:
            return (1,)
        first, kind = self._jobs[task.job_key].rules.order[task.role]
        return (0, *found, -first, -kind)

    def _bucket(self, task_class: TaskClass) -> tuple[Buckets, Bucket, str] | None:
        index, _, rest = task_class.traits.get(_TRAIT, "").partition(" ")
        role, _, key = rest.partition(" ")
        buckets = self._jobs.get(key)
        return (buckets, buckets.all[int(index)], role) if buckets else None

    def _one_by_one(self, task_class: TaskClass) -> CrossNodeVerdict | None:
        if self._bucket(task_class) is None:
            return None
        size = len(self._cluster.node_names)
        return CrossNodeVerdict(lambda: np.zeros(size, dtype=np.uint8), one_by_one=True)

    def _score(self, task_class: TaskClass) -> CrossNodeScore | None:
        found = self._bucket(task_class)
        if found is None:
            return None
        buckets, bucket, role = found
        nodes = self._cluster.nodes

        def score(_: BoolArray) -> FloatArray:
            room = nodes.allocatable - nodes.used + nodes.releasing
            numbers = buckets.scores(bucket, role, task_class.request, room, nodes.column)
            result: FloatArray = np.multiply(numbers, _MAX / max(1, buckets.largest))
            return result

        return score

    def _moved(self, _: Job, task_class: TaskClass, columns: IntArray, counts: IntArray) -> None:
        found = self._bucket(task_class)
        if found is None:
            return
        buckets, bucket, role = found
        for column, count in zip(columns.tolist(), counts.tolist(), strict=True):
            name = self._cluster.node_names[column]
            bucket.settle(name, task_class.request, count)
            buckets.placed.setdefault(name, Counter())[role] += count
