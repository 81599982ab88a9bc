"""Bundles of victims for whole gangs (A08): a job's surplus tasks, or its whole gang.

Arithmetic over the records, without a session: which of a job's tasks can be evicted while its gang
keeps its minimum, and how much a bundle gains for a job that needs room. The actions gangpreempt
and gangreclaim choose among bundles, never among single tasks.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from pumice.plugins import IntArray
from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.jobs.subjobs import SubJob
from services.scheduler.engine.resources.amounts import total_of
from services.scheduler.engine.tasks.task import Task
from shared.model.status import HOLDS_RESOURCES, READY


class Bundle(NamedTuple):
    """Tasks of one job that are evicted together."""

    whole: bool
    """Whether evicting them ends the job's gang; else they are surplus tasks."""
    job: Job
    tasks: Sequence[Task]
    """Least important first, then by cost and uid."""

    @property
    def freed(self) -> IntArray:
        """Amounts that its tasks hold."""
        return total(self.tasks)

    @property
    def cost(self) -> int:
        """Sum of what the evictions of its tasks cost."""
        return sum(map(self.job.eviction_cost, self.tasks))

    def worth(self, need: IntArray) -> float:
        """Return gain per loss, both measured by the need; infinite for surplus.

        Gain beyond the need does not count; the loss is all of the job's tasks.
        """
        named = need > 0
        if not self.whole:
            return math.inf
        lost = float((total(self.job.tasks.values())[named] / need[named]).sum())
        gained = float((self.freed[named] / need[named]).clip(max=1.0).sum())
        return gained / lost if lost else math.inf


def total(tasks: Iterable[Task]) -> IntArray:
    """Return the sum of the tasks' requests; `tasks` is not empty."""
    requests = [task.task_class.request for task in tasks]
    return total_of(requests, requests[0])


def bundles(job: Job, tasks: Collection[Task]) -> list[Bundle]:
    """Return the bundles of some of a job's running tasks: the surplus, and the rest.

    If a job has less than its minimum, all of its tasks are surplus. One that is disrupted together
    has one bundle, with all of its tasks.
    """
    if not tasks or (job.disrupted_together and not is_whole(job, {task.uid for task in tasks})):
        return []
    ordered = sorted(tasks, key=lambda task: (task.priority, job.eviction_cost(task), task.uid))
    if job.disrupted_together:
        return [Bundle(whole=True, job=job, tasks=ordered)]
    slack = _Slack(job)
    if slack.tasks < 0:
        return [Bundle(whole=False, job=job, tasks=ordered)]
    spared: list[Task] = []
    rest: list[Task] = []
    for task in ordered:
        (spared if slack.spend(task) else rest).append(task)
    found = (Bundle(whole=False, job=job, tasks=spared), Bundle(whole=True, job=job, tasks=rest))
    return [bundle for bundle in found if bundle.tasks]


def is_whole(job: Job, uids: Collection[str]) -> bool:
    """Tell whether all tasks of a job that hold resources are among these."""
    return all(
        task.uid in uids
        for status, tasks in enumerate(job.by_status)
        if HOLDS_RESOURCES[status]
        for task in tasks.values()
    )


def are_surplus(job: Job, tasks: Iterable[Task]) -> bool:
    """Tell whether a job keeps all its minima without these tasks."""
    slack = _Slack(job)
    return all(slack.spend(task) for task in tasks)


def permitted(found: Iterable[Bundle], uids: Collection[str]) -> list[Bundle]:
    """Return bundles limited to the permitted tasks; a whole gang needs all its tasks."""
    left = []
    for bundle in found:
        tasks = [task for task in bundle.tasks if task.uid in uids]
        if tasks and (not bundle.whole or len(tasks) == len(bundle.tasks)):
            left.append(bundle._replace(tasks=tasks))
    return left


class _Slack:
    """Tasks of a job above its minima: total, per role, and whole subgroups per policy."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.tasks = job.ready_count - job.min_available
        self._roles: dict[str, int] = {}
        if job.role_minima_count:
            self._roles = {
                role: job.role_count(role, *READY) + job.role_best_effort(role) - minimum
                for role, minimum in job.min_task_member.items()
            }
        self._policies: dict[str, int] = {}
        self._broken: set[str] = set()
        self._has_subgroups = job.sub_jobs is not None and bool(job.sub_jobs.policies)
        if self._has_subgroups:
            self._count_subgroups()

    def _count_subgroups(self) -> None:
        sub_jobs = self._job.sub_jobs
        assert sub_jobs is not None, f"{self._job.key} has no subgroups"
        for policy, minimum in sub_jobs.minima().items():
            self._policies[policy] = -minimum
        for sub in sub_jobs.by_id().values():
            if sub.missing:
                self._broken.add(sub.id)
            else:
                self._policies[sub.policy] = self._policies.get(sub.policy, 0) + 1

    def _sub(self, task: Task) -> SubJob | None:
        if not self._has_subgroups or self._job.sub_jobs is None:
            return None
        return self._job.sub_jobs.of_task(task)

    def spend(self, task: Task) -> bool:
        """Remove a task if all minima are kept; a subgroup that lost a task may lose all."""
        sub = self._sub(task)
        breaks = sub is not None and sub.id not in self._broken
        policy = sub.policy if sub is not None else ""
        if self.tasks <= 0 or self._roles.get(task.role, 1) <= 0:
            return False
        if breaks and self._policies.get(policy, 0) <= 0:
            return False
        self.tasks -= 1
        if task.role in self._roles:
            self._roles[task.role] -= 1
        if sub is not None and breaks:
            self._broken.add(sub.id)
            self._policies[policy] -= 1
        return True
