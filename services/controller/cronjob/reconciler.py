"""Reconciles CronJobs: carries out the steps of `cronjob.sync`.

A pass is due when something about the CronJob changed and at its next due time, which waits in the
work queue. The replica that takes over a partition reconciles all of it first, so that a due time
that passed meanwhile is found as a missed one.
"""

from typing import Final

from typing_extensions import override

from services.controller.adapters.reconciler import ControllerContext, KindReconciler
from services.controller.adapters.writer import namespace_ends
from services.controller.cronjob import steps
from services.controller.cronjob.jobs import due_of
from services.controller.cronjob.sync import sync
from shared.api import kinds
from shared.api.batch import Job
from shared.api.cron import CronJob
from shared.kube.errors import AlreadyExists
from shared.runtime.errors import Rejected
from shared.runtime.workqueue import WorkQueue

_CHECK_S: Final = 300.0
"""Maximum interval of passes, because the wall clock may be set while the work queue waits."""
_REQUEUE_AFTER_S: Final = 30.0
"""Delay before a refused request is sent again: thousands may be due in one minute."""
UNPARSEABLE: Final = "UnParseableCronJobSchedule"


class CronJobReconciler(KindReconciler):
    """Reconciles CronJobs."""

    name = kinds.CRONJOB.token
    kind = kinds.CRONJOB

    def __init__(self, manager: ControllerContext, queue: WorkQueue[str], *, workers: int) -> None:
        super().__init__(manager, queue, workers=workers)
        self._faults = manager.env.faults

    @override
    async def reconcile(self, key: str) -> None:
        """Reconcile one CronJob. Raises an error of `shared.runtime.errors` to be called again."""
        cron = self._informers.crons.get(key)
        if cron is None:
            return
        outcome = await self._drive(cron)
        if outcome.invalid:
            self._log.warning("cronjob_invalid", cronjob=key, reason=outcome.invalid)
        if outcome.unreported:
            message = f"unparseable schedule for cronjob: {cron.spec.schedule}: {outcome.invalid}"
            self._record_event(
                cron, steps.RecordCronJobEvent(reason=UNPARSEABLE, message=message, warning=True)
            )
        if outcome.requeue_after_s is not None:
            self.add(key, min(outcome.requeue_after_s, _CHECK_S))
        if outcome.failed:
            self._log.warning("cronjob_refused", cronjob=key, reason=outcome.failed)
            self.add(key, _REQUEUE_AFTER_S)

    async def _drive(self, cron: CronJob) -> steps.SyncResult:
        jobs = self._informers.jobs_of(cron.metadata)
        generator = sync(cron, jobs, now=self._clock.now())
        result: steps.StepResult = None
        while True:
            try:
                step = generator.send(result)
            except StopIteration as stop:
                outcome: steps.SyncResult = stop.value
                return outcome
            try:
                result = await self._carry_out(cron, step)
            except Rejected as error:
                result = steps.Failed(reason=str(error), namespace_ends=namespace_ends(error))

    async def _carry_out(self, cron: CronJob, step: steps.Step) -> steps.StepResult:
        match step:
            case steps.RecordCronJobEvent():
                self._record_event(cron, step)
            case steps.ReadJob():
                return await self._writer.get_job(cron.metadata.namespace, step.name)
            case steps.CreateJob():
                return await self._make(cron, step.job)
            case steps.DeleteJob():
                await self._writer.delete(kinds.JOB, step.job.metadata, propagation="Background")
                self._faults.point("controller.after-cron-delete")
                self._log.info(
                    "cronjob_job_deleted", cronjob=cron.metadata.key, job=step.job.metadata.name
                )
            case steps.WriteCronJobStatus():
                meta = cron.metadata
                await self._writer.patch_status(kinds.CRONJOB, meta, cron.status, step.status)
                self._faults.point("controller.after-cron-status")
        return None

    async def _make(self, cron: CronJob, job: Job) -> steps.StepResult:
        try:
            made = await self._writer.create_job(job)
        except AlreadyExists:
            return steps.NameTaken()
        self._faults.point("controller.after-cron-create")
        if (due := due_of(made)) is not None:
            self._metrics.cron_lateness.observe(max(0.0, self._clock.now() - due))
        self._log.info("cronjob_started", cronjob=cron.metadata.key, job=made.metadata.name)
        return made

    def _record_event(self, cron: CronJob, event: steps.RecordCronJobEvent) -> None:
        self._recorder.object_event(
            kinds.CRONJOB,
            cron.metadata,
            event.reason,
            event.message,
            occasion=event.occasion,
            warning=event.warning,
        )
