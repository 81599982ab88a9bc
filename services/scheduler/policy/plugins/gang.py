"""gang (PL01): a job starts with its whole minimum or not at all, and is not evicted below it.

With `belowMinimumFirst`, which Volcano does not have, gangs that have lost pods come before those
that have not started: else a fair order gives what they lost to others, and what they still hold is
of no use (volcano#5805).
"""

from collections.abc import Sequence

from pumice.plugins import Arguments, Cluster, Condition, Hooks, Invalid, Job, SubJob, Task, Vote
from services.scheduler.policy.arguments import boolean
from shared.model.status import READY, SCHEDULED, VALID, TaskStatus

_PIPELINED = (*READY, TaskStatus.PIPELINED)


class Gang:
    """Validity, readiness and order of gangs; only surplus tasks are victims."""

    name = "gang"

    def __init__(self, arguments: Arguments) -> None:
        """Take `belowMinimumFirst`."""
        self._below_minimum_first = boolean(arguments, "belowMinimumFirst", default=False)

    def contribute(self, hooks: Hooks, cluster: Cluster) -> None:
        """Add the gang's rules."""

        def from_surplus(_: Task, candidates: Sequence[Task]) -> list[Task]:
            left: dict[str, int] = {}
            victims = []
            for task in candidates:
                job = cluster.job_of(task)
                if job is None:
                    continue
                spare = left.setdefault(job.key, job.ready_count - job.min_available)
                if spare > 0:
                    left[job.key] = spare - 1
                    victims.append(task)
            return victims

        hooks.job_valid(_invalidity)
        hooks.job_order(_below_minimum_first if self._below_minimum_first else _ready_last)
        hooks.job_ready(_missing)
        hooks.job_pipelined(_pipelined)
        hooks.job_starving(_starving)
        hooks.preemptable(from_surplus, among=lambda _, job: _has_surplus(job))
        hooks.reclaimable(from_surplus, among=_has_surplus)
        hooks.evictable(_anyone)
        hooks.sub_job_order(lambda sub: not sub.missing)
        hooks.sub_job_ready(lambda sub: sub.missing)
        hooks.sub_job_pipelined(_sub_pipelined)
        hooks.conditions(lambda job: _condition(job, cluster))


def _has_surplus(job: Job) -> bool:
    return job.ready_count > job.min_available


def _invalidity(job: Job) -> Invalid | None:
    if job.roles_short_of(*VALID, best_effort=False):
        return Invalid(
            "NotEnoughPodsOfTask", "Not enough valid pods of each task for gang-scheduling"
        )
    if job.short_policies(exists=True):
        return Invalid(
            "NotEnoughPodsOfTask", "Not enough valid subGroups of each task for gang-scheduling"
        )
    valid = job.valid_count
    if valid < job.min_available:
        return Invalid(
            "NotEnoughTasks",
            f"Not enough valid tasks for gang-scheduling, valid: {valid}, min: {job.min_available}",
        )
    return None


def _ready_last(job: Job) -> bool:
    return job.is_ready


def _below_minimum_first(job: Job) -> int:
    """Order a gang that runs below its minimum, then one that has not started, then the others."""
    if job.is_ready:
        return 2
    return 0 if job.ready_count else 1


def _missing(job: Job) -> int:
    counted = job.ready_count + job.pending_best_effort
    of_roles = sum(job.roles_short_of(*READY, best_effort=True).values())
    of_policies = job.short_policies()
    return max(0, job.min_available - counted, of_roles, of_policies)


def _pipelined(job: Job) -> Vote:
    counted = job.waiting_count + job.ready_count + job.pending_best_effort
    if counted < job.min_available or job.roles_short_of(*_PIPELINED, best_effort=True):
        return Vote.REJECT
    if job.short_policies(pipelined=True):
        return Vote.REJECT
    return Vote.PERMIT


def _sub_pipelined(sub: SubJob) -> Vote:
    return Vote.PERMIT if sub.is_pipelined else Vote.REJECT


def _condition(job: Job, cluster: Cluster) -> Condition | None:
    """Return the desired condition of a PodGroup (D01); None while it has no tasks."""
    if not job.tasks:
        return None
    if job.is_ready:
        return Condition("Scheduled", "True", "tasks in gang are ready to be scheduled")
    if _only_waits_for_the_end(job):
        return None
    schedulable = cluster.schedulable(job)
    missing = job.min_available - schedulable
    if missing <= 0:  # enough pods, but not enough of a role or a subgroup
        missing = job.task_count - schedulable
    return Condition(
        "Unschedulable",
        "True",
        "NotEnoughResources",
        f"{missing}/{job.task_count} tasks in gang unschedulable: {cluster.fit_error(job)}",
    )


def _only_waits_for_the_end(job: Job) -> bool:
    """Tell whether the gang is complete except for terminating tasks."""
    leaving = sum(bool(task.node) for task in job.by_status[TaskStatus.RELEASING].values())
    if not leaving or job.by_status[TaskStatus.PENDING] or job.waiting_count:
        return False
    scheduled = sum(len(job.by_status[status]) for status in SCHEDULED)
    return scheduled + leaving >= job.min_available


def _anyone(_: object, candidates: Sequence[Task]) -> Sequence[Task]:
    """Return all: actions that evict for whole gangs check the minima of gangs themselves."""
    return candidates


def _starving(job: Job) -> bool:
    return job.waiting_count + job.ready_count < job.min_available
