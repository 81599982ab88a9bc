"""Reconciles templates: the status of each lists the jobs that were made from it (F05)."""

from collections.abc import Iterable
from typing import Final

from typing_extensions import override

from services.controller.adapters.reconciler import KindReconciler
from services.controller.adapters.store import Touched
from shared.api import kinds
from shared.api.batch import Job
from shared.api.flow import JobTemplateStatus

_DEBOUNCE_S: Final = 1.0
"""Delay from a change of a job to the pass: each write lists all jobs, and many may change at once.
"""


class JobTemplateReconciler(KindReconciler):
    """Reconciles templates, each at most once a second."""

    name = kinds.JOBTEMPLATE.token
    kind = kinds.JOBTEMPLATE

    @override
    def enqueue(self, touched: Touched) -> None:
        for key in touched.of(self.kind):
            self.add(key, _DEBOUNCE_S)

    @override
    async def reconcile(self, key: str) -> None:
        template = self._informers.templates.get(key)
        if template is None:
            return
        status = status_of(self._informers.jobs_from(key))
        if status != template.status:
            await self._writer.patch_status(self.kind, template.metadata, template.status, status)


def status_of(jobs: Iterable[Job]) -> JobTemplateStatus:
    """Return the status of a template with these jobs."""
    names = sorted(f"{job.metadata.namespace}.{job.metadata.name}" for job in jobs)
    return JobTemplateStatus(job_depends_on_list=tuple(names))
