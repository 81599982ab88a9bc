"""priority (PL02): higher priority first, and higher may preempt lower."""

from collections.abc import Sequence

from pumice.plugins import Arguments, Cluster, EvictionContext, EvictionKind, Hooks, Job, Task


class Priority:
    """Order by PriorityClass for jobs, by pod priority for tasks."""

    name = "priority"

    def __init__(self, arguments: Arguments) -> None:
        """Take no arguments."""

    def contribute(self, hooks: Hooks, cluster: Cluster) -> None:
        """Add the orders and the victims."""

        def lower(preemptor: Task, candidates: Sequence[Task]) -> list[Task]:
            own = cluster.job_of(preemptor)
            if own is None:
                return []
            victims = []
            for task in candidates:
                job = cluster.job_of(task)
                if job is None:
                    continue
                same = job.key == own.key
                if task.priority < preemptor.priority if same else job.priority < own.priority:
                    victims.append(task)
            return victims

        hooks.task_order(lambda task: -task.priority)
        hooks.job_order(lambda job: -job.priority)
        hooks.sub_job_order(lambda sub: -sub.priority)

        def lower_jobs(context: EvictionContext, candidates: Sequence[Task]) -> list[Task]:
            if context.kind is EvictionKind.GANG_RECLAIM:
                return list(candidates)  # between queues fairness decides, not priority
            most = context.job.priority - (context.kind is not EvictionKind.DEFRAGMENT)
            jobs = ((task, cluster.job_of(task)) for task in candidates)
            return [task for task, job in jobs if job and job.priority <= most]

        hooks.preemptable(lower, among=_may_give)
        hooks.evictable(lower_jobs)
        hooks.job_starving(_wants_more)


def _may_give(own: Job, other: Job) -> bool:
    return other.priority < own.priority or other.key == own.key


def _wants_more(job: Job) -> bool:
    return job.ready_count + job.waiting_count < job.task_count
