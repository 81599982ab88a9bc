"""The jobs of a CronJob: their names and content, and due times of existing ones (X01, X03)."""

from datetime import datetime

from shared.api import keys, kinds, time
from shared.api.batch import FINISHED, Job
from shared.api.cron import CronJob, ObjectReference
from shared.api.meta import ObjectMeta
from shared.jobs.users import with_user_of
from shared.model import schedules


def name_at(cron: CronJob, due: int) -> str:
    """Return the name of the job due at that time: the same in every process (X01)."""
    return f"{cron.metadata.name}-{due // 60}"


def job_at(cron: CronJob, due: int) -> Job:
    """Return the job due at that time."""
    meta, template = cron.metadata, cron.spec.job_template
    stamp = _local_time(due, cron.spec.time_zone or "")
    return Job(
        metadata=ObjectMeta(
            name=name_at(cron, due),
            namespace=meta.namespace,
            labels=template.metadata.labels,
            annotations={
                **with_user_of(meta.annotations, template.metadata.annotations),
                keys.CRON_SCHEDULED: stamp,
            },
            owner_references=(kinds.CRONJOB.controller_reference(meta),),
        ),
        spec=template.spec,
    )


def _local_time(due: int, zone: str) -> str:
    shown = datetime.fromtimestamp(due, schedules.zone(zone)).isoformat()
    return shown.removesuffix("+00:00") + "Z" if shown.endswith("+00:00") else shown


def due_of(job: Job) -> float | None:
    """Return the due time of a job, None if it has none."""
    stamp = job.metadata.annotations.get(keys.CRON_SCHEDULED, "")
    try:
        return time.parse(stamp)
    except ValueError:
        return None


def is_finished(job: Job) -> bool:
    """Whether a job has reached a final phase."""
    return job.status.state.phase in FINISHED


def reference(job: Job) -> ObjectReference:
    """Return the entry of a job in the list of active jobs."""
    meta = job.metadata
    return ObjectReference(
        api_version=kinds.JOB.api_version,
        kind=kinds.JOB.kind,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
    )


def age_order(job: Job) -> tuple[str, str]:
    """Return the sort key of jobs by age, the oldest first."""
    return (job.metadata.creation_timestamp or "", job.metadata.name)
