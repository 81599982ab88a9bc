"""Deletes finished jobs when their time is up (J38, G01).

A job waits in the mailbox until it is due. Then the API server's own copy is asked, because ours
may be late: a job that was resumed, or given more time, is left alone. What hangs on a job goes
first (foreground propagation), so that no pod outlives the name of its job.

A job of a CronJob or a JobFlow waits until its owner's status tells of its end: whoever keeps the
owner may be late or dead, and would take a job that is gone for one that was never made.
"""

from collections.abc import Callable
from typing import Final

from services.controller.adapters.ownership import Ownership
from services.controller.adapters.replica import Replica, Touched
from services.controller.cronjob import sync as cronjobs
from services.controller.job.ttl import due_at
from services.controller.jobflow import status as jobflows
from services.controller.metrics import ControllerMetrics
from shared.api import kinds
from shared.api.batch import Job
from shared.api.cron import CronJob
from shared.api.flow import JobFlow
from shared.contracts.subjects import split_key
from shared.kube.client import Kube
from shared.runtime.clock import Clock
from shared.runtime.errors import Gone, Rejected, Retryable
from shared.runtime.logs import Logger
from shared.runtime.mailbox import Mailbox


class Collector:
    """The handler of the mailbox of finished jobs; keys are jobs."""

    name: Final = "collector"

    def __init__(
        self,
        kube: Kube,
        replica: Replica,
        *,
        ownership: Ownership,
        mailbox: Mailbox[str],
        is_synced: Callable[[], bool],
        workers: int,
        clock: Clock,
        metrics: ControllerMetrics,
        log: Logger,
    ) -> None:
        self._kube = kube
        self._replica = replica
        self._ownership = ownership
        self._mailbox = mailbox
        self._is_synced = is_synced
        self._workers = workers
        self._clock = clock
        self._metrics = metrics
        self._log = log
        ownership.on_change(lambda _: self.touch_all())

    async def run(self) -> None:
        """Collect jobs for ever."""
        await self._mailbox.run(self.look, self._workers)

    def touch(self, touched: Touched) -> None:
        """Have jobs looked at that may be deleted some day."""
        for key in touched.jobs:
            self._poke(key)
        for place in touched.others:
            for job in self._replica.holdings.jobs_at(place):
                self._poke(job.metadata.key)

    def touch_all(self) -> None:
        """Have every job that this replica owns looked at."""
        for key in self._replica.jobs:
            self._poke(key)

    def _poke(self, key: str) -> None:
        record = self._replica.jobs.get(key)
        has_ttl = record is not None and record.job.spec.ttl_seconds_after_finished is not None
        if has_ttl and self._ownership.owns(key):
            self._mailbox.poke_later(key, 0.0)

    async def look(self, key: str) -> None:
        """Delete one job if it is due. Raises Retryable to be called again later."""
        record = self._replica.jobs.get(key)
        if record is None or not self._ownership.owns(key) or not self._is_synced():
            return  # everything is looked at once it is ours, and known
        if not self._is_due(key, record.job) or not self._is_noted(record.job):
            return
        namespace, name = split_key(key)
        with self._ownership.looking(key):
            try:
                answer = await self._kube.get(kinds.JOB, namespace, name)
                fresh: Job = kinds.decode(kinds.JOB, answer)
                same = fresh.metadata.uid == record.uid
                if same and self._is_due(key, fresh) and self._is_noted(fresh):
                    await self._delete(fresh)
            except Gone:
                return
            except Rejected as error:
                self._log.warning("job_not_collected", job=key, reason=str(error))
                raise Retryable(str(error)) from error

    def _is_due(self, key: str, job: Job) -> bool:
        """Whether a job is due; one that will be is looked at again then."""
        due = due_at(job)
        if due is None:
            return False
        left_s = due - self._clock.now()
        if left_s > 0.0:
            self._mailbox.poke_later(key, left_s)
        return left_s <= 0.0

    def _is_noted(self, job: Job) -> bool:
        """Whether nobody needs a job any more; a change of its owner has it looked at again."""
        match self._replica.holdings.owner_of(job):
            case CronJob() as cron:
                return cronjobs.has_noted(cron, job)
            case JobFlow() as flow:
                return jobflows.has_noted(flow, job)
            case None:
                return True

    async def _delete(self, job: Job) -> None:
        meta = job.metadata
        await self._kube.delete(
            kinds.JOB, meta.namespace, meta.name, uid=meta.uid, propagation="Foreground"
        )
        self._metrics.writes.labels("delete", kinds.JOB.token).inc()
        self._log.info("job_collected", job=meta.key, phase=job.status.state.phase)
