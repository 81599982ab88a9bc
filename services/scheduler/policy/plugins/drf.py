"""drf (PL04): the job with the smallest dominant share is served first."""

from collections.abc import Sequence

from pumice.plugins import Arguments, Cluster, Hooks, IntArray, Job, Task
from services.scheduler.policy.plugins.drf_hierarchy import Hierarchy
from services.scheduler.policy.shares import dominant_share

_DELTA = 1e-6
"""Shares nearer than this are equal."""


class Drf:
    """Dominant resource fairness between jobs, and between queues with `enableHierarchy`."""

    name = "drf"

    def __init__(self, arguments: Arguments) -> None:
        """Take no arguments."""

    def contribute(self, hooks: Hooks, cluster: Cluster) -> None:
        """Add the order and the victims; shares are computed from what a job holds when asked."""
        total = cluster.total

        def share(job: Job) -> float:
            return dominant_share(job.claimed, total)

        def keeps_lower(preemptor: Task, candidates: Sequence[Task]) -> list[Task]:
            own = cluster.job_of(preemptor)
            if own is None:
                return []
            mine = dominant_share(own.claimed + preemptor.task_class.request, total)
            left: dict[str, IntArray] = {}
            victims = []
            for task in candidates:
                job = cluster.job_of(task)
                if job is None:
                    continue
                left[job.key] = left.get(job.key, job.claimed) - task.task_class.request
                theirs = dominant_share(left[job.key], total)
                if mine < theirs or abs(mine - theirs) <= _DELTA:
                    victims.append(task)
            return victims

        hooks.job_share(share)
        hooks.job_order(share)
        hooks.preemptable(keeps_lower)
        if hooks.enabled("enableHierarchy"):
            Hierarchy(cluster).contribute(hooks)
