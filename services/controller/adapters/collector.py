"""Deletes finished jobs when their time is up (J38, G01).

A job waits in the mailbox until it is due. Then the API server's own copy is asked, because ours
may be late: a job that was resumed, or given more time, is left alone. What hangs on a job goes
first (foreground propagation), so that no pod outlives the name of its job.

A job of a CronJob or a JobFlow waits until its owner's status tells of its end: whoever keeps the
owner may be late or dead, and would take a job that is gone for one that was never made.
"""

from typing_extensions import override

from services.controller.adapters.keeper import Frame, Keeper
from services.controller.adapters.replica import Replica
from services.controller.adapters.touched import Touched
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
from shared.runtime.logs import Logger


class Collector(Keeper):
    """The keeper of finished jobs; keys are jobs."""

    def __init__(
        self,
        frame: Frame,
        kube: Kube,
        replica: Replica,
        *,
        clock: Clock,
        metrics: ControllerMetrics,
        log: Logger,
    ) -> None:
        super().__init__("collector", replica.jobs, frame)
        self._kube = kube
        self._replica = replica
        self._clock = clock
        self._metrics = metrics
        self._log = log

    @override
    def touch(self, touched: Touched) -> None:
        """Have jobs looked at, and those of an owner that has changed."""
        for key in touched.jobs:
            self.poke(key)
        for place in touched.others:
            for job in self._replica.holdings.jobs_at(place):
                self.poke(job.metadata.key)

    @override
    def poke(self, key: str, after_s: float = 0.0) -> None:
        """Have a job looked at that may be deleted some day, if it is ours."""
        record = self._replica.jobs.get(key)
        if record is not None and record.job.spec.ttl_seconds_after_finished is not None:
            super().poke(key, after_s)

    @override
    async def bring_about(self, key: str) -> None:
        """Delete one job if it is due. Raises any of the errors of a seam to be called again."""
        record = self._replica.jobs.get(key)
        if record is None or not self._is_due(key, record.job) or not self._is_noted(record.job):
            return
        namespace, name = split_key(key)
        fresh: Job = kinds.decode(kinds.JOB, await self._kube.get(kinds.JOB, namespace, name))
        same = fresh.metadata.uid == record.uid
        if same and self._is_due(key, fresh) and self._is_noted(fresh):
            await self._delete(fresh)

    def _is_due(self, key: str, job: Job) -> bool:
        """Whether a job is due; one that will be is looked at again then."""
        due = due_at(job)
        if due is None:
            return False
        left_s = due - self._clock.now()
        if left_s > 0.0:
            self.poke(key, left_s)
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
