"""Deletes finished jobs after their time to live (J38, G01).

A job waits in the work queue until it is due. Then it is read from the API server, because our copy
may be late: a job that was resumed, or got more time, is kept. Dependents are deleted first
(foreground propagation), so that no pod outlives its job.

A job of a CronJob or a JobFlow waits until its owner's status records its end: the owner's
controller may be late, and would create a missing job again.
"""

from collections.abc import Iterable

from typing_extensions import override

from services.controller.adapters.reconciler import Reconciler
from services.controller.adapters.store import Touched
from services.controller.cronjob import sync as cronjobs
from services.controller.jobflow import status as jobflows
from shared.api import kinds, time
from shared.api.batch import FINISHED, Job
from shared.api.cron import CronJob
from shared.api.flow import JobFlow
from shared.contracts.subjects import split_key


class GarbageReconciler(Reconciler):
    """Reconciles finished jobs; keys are jobs."""

    name = "collector"

    @override
    def keys(self) -> Iterable[str]:
        return self._informers.jobs

    @override
    def enqueue(self, touched: Touched) -> None:
        """Add jobs, and those of an owner that has changed."""
        for key in touched.of(kinds.JOB):
            self.add(key)
        for kind in (kinds.CRONJOB, kinds.JOBFLOW):
            for key in touched.of(kind):
                owner = self._informers.by_kind[kind.token].get(key)
                for job in self._informers.jobs_of(owner.metadata) if owner is not None else ():
                    self.add(job.metadata.key)

    @override
    def add(self, key: str, after_s: float = 0.0) -> None:
        """Queue a job with a time to live, if this replica owns it."""
        record = self._informers.jobs.get(key)
        if record is not None and record.job.spec.ttl_seconds_after_finished is not None:
            super().add(key, after_s)

    @override
    async def reconcile(self, key: str) -> None:
        """Delete one job if it is due. Raises an error of `shared.runtime.errors` to retry."""
        record = self._informers.jobs.get(key)
        if record is None or not self._is_due(key, record.job) or not self._is_recorded(record.job):
            return
        fresh = await self._writer.get_job(*split_key(key))
        same = fresh is not None and fresh.metadata.uid == record.uid
        if fresh is not None and same and self._is_due(key, fresh) and self._is_recorded(fresh):
            await self._writer.delete(
                kinds.JOB, fresh.metadata, propagation="Foreground", lingers=True
            )
            self._log.info("job_collected", job=key, phase=fresh.status.state.phase)

    def _is_due(self, key: str, job: Job) -> bool:
        """Whether a job is due; one that will be is added again then."""
        due = due_at(job)
        if due is None:
            return False
        left_s = due - self._clock.now()
        if left_s > 0.0:
            self.add(key, left_s)
        return left_s <= 0.0

    def _is_recorded(self, job: Job) -> bool:
        """Whether no owner needs a job any more; a change of the owner adds it again."""
        match self._informers.owner_of(job):
            case CronJob() as cron:
                return cronjobs.has_recorded(cron, job)
            case JobFlow() as flow:
                return jobflows.has_recorded(flow, job)
            case None:
                return True


def due_at(job: Job) -> float | None:
    """Return the Unix time at which a job is to be deleted, None for never or not yet known.

    `ttlSecondsAfterFinished` runs from the job's entry into Completed, Failed or Terminated. An
    Aborted job is not finished, since it can be resumed (G01 ⚠). The time follows from the object
    alone, so a new process deletes at the same time. An unreadable time counts as none.
    """
    ttl_s, state = job.spec.ttl_seconds_after_finished, job.status.state
    since = time.read(state.last_transition_time)
    if ttl_s is None or state.phase not in FINISHED or since is None:
        return None
    if job.metadata.deletion_timestamp is not None:
        return None
    return since + ttl_s
