"""Carries out what flows and templates need (F01 to F05).

The status is written before jobs are deleted and after nothing: a look that dies half-way finds the
same job names taken, and the jobs that ended noted.
"""

from typing import Final

from typing_extensions import override

from services.controller.adapters.keeper import Frame, KindKeeper
from services.controller.adapters.objects import Objects, Taken
from services.controller.adapters.recorder import Recorder
from services.controller.adapters.replica import Replica
from services.controller.adapters.touched import Touched
from services.controller.jobflow.plan import Note, plan
from services.controller.jobtemplate.status import status_of
from services.controller.metrics import ControllerMetrics
from shared.api import kinds
from shared.api.batch import Job
from shared.api.flow import FlowPhase, JobFlow, JobFlowStatus, JobTemplate
from shared.runtime.errors import Rejected, Retryable
from shared.runtime.faults import Faults
from shared.runtime.logs import Logger

_FAILED: Final = "FailedCreate"
_CALM_S: Final = 1.0
_ASK_AGAIN_S: Final = 30.0
"""A job that was refused is asked for again so much later: hundreds may wait for one queue."""


class JobFlows(KindKeeper):
    """The keeper of flows."""

    def __init__(
        self,
        frame: Frame,
        objects: Objects,
        replica: Replica,
        *,
        recorder: Recorder,
        faults: Faults,
        metrics: ControllerMetrics,
        log: Logger,
    ) -> None:
        super().__init__(kinds.JOBFLOW, replica.holdings.flows, frame)
        self._objects = objects
        self._replica = replica
        self._waiting_for: dict[str, dict[str, None]] = {}
        """Key of a template that is not there → keys of the flows that name it."""
        self._told: dict[str, tuple[Note, ...]] = {}
        """What was told of a flow at its last look: it is not told with each change of a job."""
        self._recorder = recorder
        self._faults = faults
        self._metrics = metrics
        self._log = log

    @override
    def touch(self, touched: Touched) -> None:
        """Have flows looked at: those that changed, and those that waited for a template."""
        super().touch(touched)
        for place in touched.others:
            if place.token == kinds.JOBTEMPLATE.token:
                for key in self._waiting_for.pop(place.key, ()):
                    self.poke(key)

    @override
    async def bring_about(self, key: str) -> None:
        """Do what one flow needs. Raises any of the errors of a seam to be called again."""
        holdings = self._replica.holdings
        flow = holdings.flows.get(key)
        if flow is None:
            self._told.pop(key, None)
            return
        jobs = holdings.jobs_of(flow.metadata.uid)
        found = plan(flow, jobs, self._templates(flow))
        for note in found.notes:
            if note not in self._told.get(key, ()):
                self._tell(flow, note.reason, note.message, warning=True)
        self._told[key] = found.notes
        if found.status != flow.status:
            await self._write(flow, found.status)
            self._faults.point("controller.after-flow-status")
        for job in found.delete:
            await self._objects.delete_job(job)
        for job in found.create:
            await self._create(flow, job)

    def _templates(self, flow: JobFlow) -> dict[str, JobTemplate]:
        """Return the templates that a flow names, as far as there are any; await the others."""
        found = {}
        for entry in flow.spec.flows:
            key = f"{flow.metadata.namespace}/{entry.name}"
            template = self._replica.holdings.templates.get(key)
            if template is not None:
                found[entry.name] = template
            else:
                self._waiting_for.setdefault(key, {})[flow.metadata.key] = None
        return found

    async def _write(self, flow: JobFlow, status: JobFlowStatus) -> None:
        await self._objects.write_status(kinds.JOBFLOW, flow.metadata, flow.status, status)
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
            await self._objects.create_job(job)
        except Taken:
            await self._see_who_has(flow, job)
        except Rejected as error:
            self._tell(flow, _FAILED, f"Error creating job {name}: {error}", warning=True)
            self._refused(flow, name, str(error))
        else:
            self._faults.point("controller.after-flow-create")
            self._tell(flow, "SuccessfulCreate", f"Created job {name}")
            self._log.info("jobflow_started", jobflow=flow.metadata.key, job=name)

    async def _see_who_has(self, flow: JobFlow, job: Job) -> None:
        """Say that a name is taken, unless it is our own job that we did not know of yet."""
        meta = job.metadata
        found = await self._objects.read_job(meta.namespace, meta.name)
        if found is None:
            raise Retryable(f"job {meta.name} was there and is gone")
        owner = found.metadata.controller
        if owner is not None and owner.uid == flow.metadata.uid:
            return  # it has been folded, and has us looked at again
        message = f"Job {meta.name} is there and does not belong to this JobFlow"
        self._tell(flow, "ForeignJob", message, warning=True)
        self._refused(flow, meta.name, message)

    def _refused(self, flow: JobFlow, job: str, why: str) -> None:
        """Come back when the flow or one of its jobs changes, or somebody else may have."""
        self._log.warning("jobflow_not_started", jobflow=flow.metadata.key, job=job, reason=why)
        self.poke(flow.metadata.key, _ASK_AGAIN_S)

    def _tell(self, flow: JobFlow, reason: str, message: str, *, warning: bool = False) -> None:
        self._recorder.tell_of(kinds.JOBFLOW, flow.metadata, reason, message, warning=warning)


class JobTemplates(KindKeeper):
    """The keeper of templates.

    A template is looked at a second after its jobs change: each write lists all of them, and a
    thousand may be made of it at once.
    """

    def __init__(self, frame: Frame, objects: Objects, replica: Replica) -> None:
        super().__init__(kinds.JOBTEMPLATE, replica.holdings.templates, frame)
        self._objects = objects
        self._replica = replica

    @override
    def touch(self, touched: Touched) -> None:
        """Have templates looked at soon."""
        for place in touched.others:
            if place.token == kinds.JOBTEMPLATE.token:
                self.poke(place.key, _CALM_S)

    @override
    async def bring_about(self, key: str) -> None:
        """Do what one template needs. Raises Retryable to be called again later."""
        holdings = self._replica.holdings
        template = holdings.templates.get(key)
        if template is None:
            return
        status = status_of(holdings.jobs_from(key))
        if status != template.status:
            await self._objects.write_status(
                kinds.JOBTEMPLATE, template.metadata, template.status, status
            )
