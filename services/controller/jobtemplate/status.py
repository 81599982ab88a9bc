"""The status of a template (F05)."""

from collections.abc import Iterable

from shared.api.batch import Job
from shared.api.flow import JobTemplateStatus


def status_of(jobs: Iterable[Job]) -> JobTemplateStatus:
    """Return the status of a template that these jobs say they were made from."""
    names = sorted(f"{job.metadata.namespace}.{job.metadata.name}" for job in jobs)
    return JobTemplateStatus(job_depends_on_list=tuple(names))
