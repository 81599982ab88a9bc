"""Failures of one job in one session, for rules and for messages to users (T11)."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.placement.candidates import FitErrors
from services.scheduler.engine.plan import JobExplanation, Shortage
from services.scheduler.engine.tasks.task import Task
from shared.model.status import HOLDS_RESOURCES, READY, TaskStatus


class UndonePlacement(NamedTuple):
    """Status and node of a task when its trial was undone."""

    status: TaskStatus
    node: str


class OverQuota(NamedTuple):
    """The resources that a queue lacks for tasks of one class."""

    queue: str
    short: tuple[str, ...]
    """Resources of which the whole cluster has too little as well."""
    shortages: tuple[Shortage, ...]

    def text(self, pod: str) -> str:
        """Return the message for a pod of that class."""
        text = f"queue {self.queue} has no share left for {pod}"
        return f"{text}: insufficient {', '.join(self.short)}" if self.short else text


class JobFailures:
    """Tasks that no node takes, roles that they belong to, and trials that were undone."""

    def __init__(self) -> None:
        self.by_task: dict[str, FitErrors] = {}
        self.over_quota: dict[str, OverQuota] = {}
        """Tasks that their queue has no share left for, by uid."""
        self.roles: set[str] = set()
        """Roles with a failed task; asked for membership, never iterated towards an outcome."""
        self.undone_placements: dict[str, UndonePlacement] = {}
        self.no_room: dict[str, str] = {}
        """Why tasks are allocated and not bound, by uid."""

    def begin_again(self) -> None:
        """Clear the failures of an attempt, because the job is attempted in another way now."""
        self.by_task.clear()
        self.over_quota.clear()
        self.roles.clear()

    def first(self, job: Job) -> tuple[Task, FitErrors] | None:
        """Return the first failed task of a job in its default order."""
        failed = [job.tasks[uid] for uid in self.by_task if uid in job.tasks]
        if not failed:
            return None
        task = min(failed, key=Task.order)
        return task, self.by_task[task.uid]

    def take_over(self, other: "JobFailures", pairs: Iterable[tuple[Task, Task]]) -> None:
        """Copy the failures of the first task of each pair, which are in `other`, to the second."""
        for former, own in pairs:
            if former.uid in other.by_task:
                self.by_task[own.uid] = other.by_task[former.uid]
                self.roles.add(own.role)
            if former.uid in other.undone_placements:
                self.undone_placements[own.uid] = other.undone_placements[former.uid]

    def standing(self, task: Task) -> TaskStatus:
        """Return a task's status and node, or those of the last undone trial."""
        attempt = self.undone_placements.get(task.uid)
        return attempt.status if attempt else task.status

    def schedulable(self, job: Job) -> int:
        """Return how many tasks are ready, or were ready in an undone trial (D01)."""
        pending = job.by_status[TaskStatus.PENDING].values()
        return job.ready_count + sum(HOLDS_RESOURCES[self.standing(task)] for task in pending)


def need_continue(job: Job, failed_roles: set[str]) -> bool:
    """Tell whether the other roles can still form a gang after these failed (A03).

    Not when every task is needed. Where minima per role add up to more than the job's, the roles
    left must suffice (T03); else no failed role may be short of its own minimum.
    """
    if job.min_available == job.task_count or job.task_count <= 1:
        return False
    if job.min_available < job.min_task_total:
        left = sum(
            counts[TaskStatus.PENDING]
            for role, counts in job.roles.items()
            if role not in failed_roles
        )
        return job.ready_count + left >= job.min_available
    return all(
        not job.min_task_member.get(role)
        or job.role_count(role, *READY) + job.role_best_effort(role) >= job.min_task_member[role]
        for role in failed_roles
    )


def fit_error(job: Job, failures: JobFailures) -> str:
    """Return the text of a gang's condition: counts per status, then the origin (D01, T11)."""
    counts = Counter[str]()
    for status in TaskStatus:
        if job.by_status[status]:
            counts[status.label] = len(job.by_status[status])
    counts["minAvailable"] = job.min_available
    state = "pod group is ready" if job.is_ready else "pod group is not ready"
    text = f"{state}, {_histogram(counts)}"
    pending = Counter(
        _pending_reason(failures.standing(task))
        for task in job.by_status[TaskStatus.PENDING].values()
    )
    if pending:
        text += f"; Pending: {_histogram(pending)}"
    origin = failures.first(job)
    if origin is not None:
        task, failure = origin
        text += f". Origin reason is {task.name}: {failure.text()}"
    return text


def _pending_reason(status: TaskStatus) -> str:
    if status is TaskStatus.ALLOCATED:
        return "Schedulable"
    if status in {TaskStatus.PENDING, TaskStatus.PIPELINED}:
        return "Unschedulable"
    return status.label


def _histogram(counts: Counter[str]) -> str:
    return ", ".join(sorted(f"{count} {name}" for name, count in counts.items()))


def explanation(
    job: Job,
    gate: str,
    message: str,
    failure: FitErrors | None = None,
    *,
    shortages: Sequence[Shortage] = (),
    budget: str = "",
) -> JobExplanation:
    """Return why a job was stopped at a gate."""
    return JobExplanation(
        job=job.key,
        job_uid=job.uid,
        queue=job.queue,
        owner_job=job.owner_job,
        gate=gate,
        message=message,
        nodes=failure.nodes if failure else 0,
        reasons=failure.reasons if failure else {},
        shortages=failure.shortages if failure else tuple(shortages),
        budget=budget,
    )
