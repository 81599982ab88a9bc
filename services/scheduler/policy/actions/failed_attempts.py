"""Cache of failed attempts: of many equal jobs only one is attempted.

A failed attempt was undone, so the ledger has its former version again. An equal job needs no
attempt at that version. It copies the failures of the other job for its messages.
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from msgspec import structs

from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.plan import JobExplanation
from services.scheduler.engine.session.session import Session
from services.scheduler.engine.tasks.task import Task
from shared.model.status import TaskStatus


class TaskSignature(NamedTuple):
    """The properties of a task that decide whether nodes can be cleared for it.

    At one version of the ledger tasks of one job with equal signatures fail equally, so only one of
    them is tried.
    """

    task_class: int
    priority: int
    pod_priority: int
    preempts: bool
    nominated: str

    @classmethod
    def of(cls, task: Task) -> "TaskSignature":
        """Return the signature of a task."""
        return cls(
            task.task_class.id, task.priority, task.pod_priority, task.preempts, task.nominated
        )


def attempt_key(session: Session, job: Job) -> tuple[Hashable, ...]:
    """Return the version of the ledger, and the fields of a job that plugins read."""
    return session.ledger.version, job.queue, job.namespace, job.priority


class _Attempt(NamedTuple):
    """A failed attempt."""

    job: Job
    tasks: Sequence[Task]
    is_explained: bool
    """Whether its explanation is about nodes, so that it applies to an equal job as well."""


class FailedAttempts:
    """Failed attempts of one action, by the version of the ledger and the signature of the job.

    Used only if plugins decide equally for equal jobs (`Session.equal_jobs_fail_equally`), and for
    jobs without pods that have a node, wait on one or are held back.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: dict[Hashable, _Attempt] = {}

    def would_fail(self, job: Job, tasks: Sequence[Task]) -> bool:
        """Tell whether an equal attempt has failed; if so, copy its failures to this job."""
        signature = self._signature(job, tasks) if self._known else None
        attempt = None if signature is None else self._known.get(signature)
        if attempt is None:
            return False
        session = self._session
        pairs = zip(attempt.tasks, tasks, strict=True)
        session.failures(job).take_over(session.failures(attempt.job), pairs)
        if attempt.is_explained:
            self._explain(job, session.explanations[attempt.job.key])
        return True

    def _explain(self, job: Job, why: JobExplanation) -> None:
        """Give a job the explanation of another, unless it has one."""
        own = structs.replace(
            why, job=job.key, job_uid=job.uid, queue=job.queue, owner_job=job.owner_job
        )
        self._session.explanations.setdefault(job.key, own)

    def learn(self, job: Job, tasks: Sequence[Task]) -> None:
        """Record that an attempt for these tasks has failed and been undone."""
        signature = self._signature(job, tasks)
        if signature is None or self._session.failures(job).over_quota:
            return
        why = self._session.explanations.get(job.key)
        is_explained = why is not None and why.gate == "predicate"
        self._known[signature] = _Attempt(job, tuple(tasks), is_explained)

    def _signature(self, job: Job, tasks: Sequence[Task]) -> Hashable | None:
        if not self._session.equal_jobs_fail_equally or job.sub_jobs is not None:
            return None
        if not len(tasks) == len(job.by_status[TaskStatus.PENDING]) == len(job.tasks):
            return None
        if any(task.gated or task.backoff_reason for task in tasks):
            return None
        return (
            *attempt_key(self._session, job),
            job.domain_key,
            job.min_available,
            job.min_task_total,
            tuple(sorted(job.min_task_member.items())),
            tuple((task.role, task.preemptable, TaskSignature.of(task)) for task in tasks),
        )
