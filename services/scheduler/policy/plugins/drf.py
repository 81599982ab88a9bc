"""drf (PL04): the job with the smallest dominant share is served first.

With `enableHierarchy` queues are ordered by the tree of `policy.hierarchical_shares` as well.
"""

import functools
from collections.abc import Sequence

from pumice.plugins import Arguments, Cluster, Hooks, IntArray, Job, Queue, Task, TaskClass
from services.scheduler.engine.resources.amounts import total_of
from services.scheduler.policy.hierarchical_shares import Path, Tree
from services.scheduler.policy.shares import dominant_share
from shared.api import keys


class Hierarchy:
    """The order of queues, and which tasks may be reclaimed."""

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
        desired = total_of((t.task_class.request for t in job.tasks.values()), job.allocated)
        queue = self._queues[job.queue]
        self._tree.admit(path_of(queue), weights_of(queue), job.key, desired)
        self._hold(job, job.allocated)

    def _compare(self, left: Queue, right: Queue) -> int:
        difference = self._tree.compare(path_of(left), path_of(right))
        return (difference > 0) - (difference < 0)

    def _changed(self, job: Job, task_class: TaskClass, count: int) -> None:
        self._hold(job, count * task_class.request)

    def _stays_behind(self, preemptor: Task, candidates: Sequence[Task]) -> list[Task]:
        """Return the victims after whose loss the preemptor's queue still comes before theirs."""
        own = self._cluster.job_of(preemptor)
        home = self._queues.get(own.queue) if own else None
        if own is None or home is None:
            return []
        victims = []
        self._hold(own, preemptor.task_class.request)
        for task in candidates:
            job = self._cluster.job_of(task)
            queue = self._queues.get(job.queue) if job else None
            if job is None or queue is None:
                continue
            self._hold(job, -task.task_class.request)
            if self._compare(home, queue) < 0:
                victims.append(task)
            self._hold(job, task.task_class.request)
        self._hold(own, -preemptor.task_class.request)
        return victims

    def _hold(self, job: Job, amounts: IntArray) -> None:
        """Count amounts for a job, or take them back with negative ones."""
        self._tree.hold(path_of(self._queues[job.queue]), job.key, amounts)


def path_of(queue: Queue) -> Path:
    """Return a queue's path from the root down; a queue without annotation is the root."""
    return tuple(queue.annotations.get(keys.HIERARCHY, "").split("/"))


def weights_of(queue: Queue) -> list[float]:
    """Return the weights of the levels of a queue's path."""
    return [_weight(text) for text in queue.annotations.get(keys.HIERARCHY_WEIGHTS, "").split("/")]


def _weight(text: str) -> float:
    try:
        return max(1.0, float(text))
    except ValueError:
        return 1.0


_DELTA = 1e-6
"""Shares that differ by less are equal."""


class Drf:
    """Dominant resource fairness between jobs, and between queues with `enableHierarchy`."""

    name = "drf"

    def __init__(self, arguments: Arguments) -> None:
        """Take no arguments."""

    def contribute(self, hooks: Hooks, cluster: Cluster) -> None:
        """Add job order and victims; shares are computed on demand from a job's allocation."""
        total = cluster.total

        def share(job: Job) -> float:
            return dominant_share(job.claimed, total)

        def keeps_lower(preemptor: Task, candidates: Sequence[Task]) -> list[Task]:
            own = cluster.job_of(preemptor)
            if own is None:
                return []
            preemptor_share = dominant_share(own.claimed + preemptor.task_class.request, total)
            left: dict[str, IntArray] = {}
            victims = []
            for task in candidates:
                job = cluster.job_of(task)
                if job is None:
                    continue
                left[job.key] = left.get(job.key, job.claimed) - task.task_class.request
                victim_share = dominant_share(left[job.key], total)
                if preemptor_share < victim_share or abs(preemptor_share - victim_share) <= _DELTA:
                    victims.append(task)
            return victims

        hooks.job_share(share)
        hooks.job_order(share)
        hooks.preemptable(keeps_lower)
        if hooks.enabled("enableHierarchy"):
            Hierarchy(cluster).contribute(hooks)
