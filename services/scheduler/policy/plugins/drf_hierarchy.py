"""drf with `enableHierarchy` (PL04): queues by hierarchical dominant share.

Queues say where they are with `volcano.sh/hierarchy` (`root/eng/dev`) and what each level weighs
with `volcano.sh/hierarchy-weights` (`100/50/50`); weights below 1 count as 1.
"""

import functools
from collections.abc import Sequence

from pumice.plugins import Cluster, Hooks, IntArray, Job, Queue, Task, TaskClass
from services.scheduler.engine.resources.amounts import total_of
from services.scheduler.policy.hierarchical_shares import Path, Tree
from shared.api import keys


class Hierarchy:
    """The order of queues, and who may be reclaimed from."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._tree = Tree(cluster.total)
        self._queues = cluster.queues
        for name in self._queues:
            for job in cluster.jobs_of(name):
                self._admit(job)

    def contribute(self, hooks: Hooks) -> None:
        """Add the hierarchical rules."""
        by_share = functools.cmp_to_key(self._compare)
        hooks.queue_order(by_share)
        hooks.reclaimable(self._stays_behind)
        hooks.changed(self._changed)

    def _admit(self, job: Job) -> None:
        wanted = total_of((t.task_class.request for t in job.tasks.values()), job.allocated)
        queue = self._queues[job.queue]
        self._tree.admit(path_of(queue), weights_of(queue), job.key, wanted)
        self._hold(job, job.allocated)

    def _compare(self, left: Queue, right: Queue) -> int:
        difference = self._tree.compare(path_of(left), path_of(right))
        return (difference > 0) - (difference < 0)

    def _changed(self, job: Job, task_class: TaskClass, count: int) -> None:
        self._hold(job, count * task_class.request)

    def _stays_behind(self, taker: Task, candidates: Sequence[Task]) -> list[Task]:
        """Return the tasks without which their queue still goes after the taker's queue with it."""
        own = self._cluster.job_of(taker)
        home = self._queues.get(own.queue) if own else None
        if own is None or home is None:
            return []
        victims = []
        self._hold(own, taker.task_class.request)
        for task in candidates:
            job = self._cluster.job_of(task)
            queue = self._queues.get(job.queue) if job else None
            if job is None or queue is None:
                continue
            self._hold(job, -task.task_class.request)
            if self._compare(home, queue) < 0:
                victims.append(task)
            self._hold(job, task.task_class.request)
        self._hold(own, -taker.task_class.request)
        return victims

    def _hold(self, job: Job, amounts: IntArray) -> None:
        """Count amounts for a job, or take them back with negative ones."""
        self._tree.hold(path_of(self._queues[job.queue]), job.key, amounts)


def path_of(queue: Queue) -> Path:
    """Return a queue's place, from the root down; a queue that says nothing is the root."""
    return tuple(queue.annotations.get(keys.HIERARCHY, "").split("/"))


def weights_of(queue: Queue) -> list[float]:
    """Return the weights of the levels of a queue's place."""
    return [_weight(text) for text in queue.annotations.get(keys.HIERARCHY_WEIGHTS, "").split("/")]


def _weight(text: str) -> float:
    try:
        return max(1.0, float(text))
    except ValueError:
        return 1.0
