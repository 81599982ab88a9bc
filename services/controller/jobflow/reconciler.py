"""Reconciles flows (F01 to F04).

The status is written before jobs are deleted and after nothing: a reconciliation that dies half-way
finds the same job names taken, and the jobs that ended noted.
"""

from typing import Final

from typing_extensions import override

from services.controller.adapters.reconciler import ControllerContext, KindReconciler
from services.controller.adapters.store import Touched
from services.controller.jobflow.plan import FlowEvent, plan
from shared.api import kinds
from shared.api.batch import Job
from shared.api.flow import FlowPhase, JobFlow, JobFlowStatus, JobTemplate
from shared.kube.errors import AlreadyExists
from shared.model.delayed_status import DelayedStatuses
from shared.runtime.errors import Rejected, Retryable
from shared.runtime.workqueue import WorkQueue

_FAILED: Final = "FailedCreate"
_REQUEUE_AFTER_S: Final = 30.0
"""Delay before a rejected job is created again: hundreds may wait for one queue."""
_FIRST_STATUS_S: Final = 1.0
"""Delay of the first status of a flow while none of its jobs has started."""


class JobFlowReconciler(KindReconciler):
    """Reconciles flows."""

    name = kinds.JOBFLOW.token
    kind = kinds.JOBFLOW

    def __init__(self, manager: ControllerContext, queue: WorkQueue[str], *, workers: int) -> None:
        super().__init__(manager, queue, workers=workers)
        self._faults = manager.env.faults
        self._waiting_for: dict[str, dict[str, None]] = {}
        """Key of a template that is not there → keys of the flows that name it."""
        self._missing: dict[str, set[str]] = {}
        """Key of a flow → keys of the templates that it waits for."""
        self._last_notes: dict[str, tuple[FlowEvent, ...]] = {}
        """Events of a flow's last pass: they are not repeated with each change of a job."""
        self._delayed = DelayedStatuses()
        """First statuses of flows that only say that these are Pending, by key of the flow."""

    @override
    def enqueue(self, touched: Touched) -> None:
        """Add flows: those that changed, and those that waited for a template."""
        super().enqueue(touched)
        for template in touched.of(kinds.JOBTEMPLATE):
            for key in self._waiting_for.pop(template, ()):
                self.add(key)

    @override
    async def reconcile(self, key: str) -> None:
        """Reconcile one flow. Raises an error of `shared.runtime.errors` to be called again."""
        flow = self._informers.flows.get(key)
        if flow is None:
            self._last_notes.pop(key, None)
            self._delayed.forget(key)
            self._await_templates(key, set())
            return
        jobs = self._informers.jobs_of(flow.metadata)
        found = plan(flow, jobs, self._templates(flow))
        for note in found.notes:
            if note not in self._last_notes.get(key, ()):
                self._record_event(flow, note.reason, note.message, warning=True)
        self._last_notes[key] = found.notes
        if found.status != flow.status and not self._may_wait(flow, found.status):
            await self._write(flow, found.status)
            self._faults.point("controller.after-flow-status")
        for job in found.delete:
            await self._writer.delete(kinds.JOB, job.metadata, propagation="Background")
        for job in found.create:
            await self._create(flow, job)

    def _may_wait(self, flow: JobFlow, status: JobFlowStatus) -> bool:
        """Whether to delay the first status of a flow while none of its jobs has started.

        It only says that the flow is Pending, and causes a Conflict in the next update by the
        client that created the flow. The flow is reconciled again after the delay.
        """
        key = flow.metadata.key
        if flow.status.state.phase is not None or status.state.phase is not FlowPhase.PENDING:
            self._delayed.forget(key)
            return False
        now = self._clock.monotonic()
        left_s = self._delayed.hold(key, FlowPhase.PENDING, now=now, delay_s=_FIRST_STATUS_S)
        if left_s:
            self.add(key, left_s)
        return left_s > 0.0

    def _templates(self, flow: JobFlow) -> dict[str, JobTemplate]:
        """Return the templates that a flow names, as far as there are any; await the others."""
        found, missing = {}, set()
        for entry in flow.spec.flows:
            key = f"{flow.metadata.namespace}/{entry.name}"
            template = self._informers.templates.get(key)
            if template is not None:
                found[entry.name] = template
            else:
                missing.add(key)
        self._await_templates(flow.metadata.key, missing)
        return found

    def awaited(self) -> set[str]:
        """Return the keys of the templates that flows wait for."""
        return set(self._waiting_for)

    def _await_templates(self, flow: str, missing: set[str]) -> None:
        """Reconcile a flow when one of these templates is created; replaces earlier ones."""
        for template in self._missing.pop(flow, set()) - missing:
            waiting = self._waiting_for.get(template, {})
            waiting.pop(flow, None)
            if not waiting:
                self._waiting_for.pop(template, None)
        for template in sorted(missing):
            self._waiting_for.setdefault(template, {})[flow] = None
        if missing:
            self._missing[flow] = missing

    async def _write(self, flow: JobFlow, status: JobFlowStatus) -> None:
        await self._writer.patch_status(kinds.JOBFLOW, flow.metadata, flow.status, status)
        was, phase = flow.status.state.phase, status.state.phase
        if phase is was:
            return
        self._log.info("jobflow_phase_changed", jobflow=flow.metadata.key, was=was, phase=phase)
        if phase is FlowPhase.SUCCEED:
            self._metrics.flows_succeeded.add(flow.metadata.namespace)
        elif phase is FlowPhase.FAILED:
            self._metrics.flows_failed.add(flow.metadata.namespace)

    async def _create(self, flow: JobFlow, job: Job) -> None:
        name = job.metadata.name
        try:
            await self._writer.create_job(job)
        except AlreadyExists:
            await self._report_taken_name(flow, job)
        except Rejected as error:
            self._record_event(flow, _FAILED, f"Error creating job {name}: {error}", warning=True)
            self._refused(flow, name, str(error))
        else:
            self._faults.point("controller.after-flow-create")
            self._record_event(flow, "SuccessfulCreate", f"Created job {name}")
            self._log.info("jobflow_started", jobflow=flow.metadata.key, job=name)

    async def _report_taken_name(self, flow: JobFlow, job: Job) -> None:
        """Record that a name is taken, unless by the flow's own job, which is not known yet."""
        meta = job.metadata
        found = await self._writer.get_job(meta.namespace, meta.name)
        if found is None:
            raise Retryable(f"job {meta.name} was there and is gone")
        if found.metadata.is_controlled_by(flow.metadata.uid):
            return  # it has been folded, and causes a reconciliation
        message = f"Job {meta.name} is there and does not belong to this JobFlow"
        self._record_event(flow, "ForeignJob", message, warning=True)
        self._refused(flow, meta.name, message)

    def _refused(self, flow: JobFlow, job: str, why: str) -> None:
        """Retry when the flow or one of its jobs changes, or a job's name may be free again."""
        self._log.warning("jobflow_not_started", jobflow=flow.metadata.key, job=job, reason=why)
        self.add(flow.metadata.key, _REQUEUE_AFTER_S)

    def _record_event(
        self, flow: JobFlow, reason: str, message: str, *, warning: bool = False
    ) -> None:
        self._recorder.object_event(kinds.JOBFLOW, flow.metadata, reason, message, warning=warning)
