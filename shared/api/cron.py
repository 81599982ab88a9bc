"""CronJob (batch.volcano.sh): creates jobs by a schedule (C02).

`make crds` generates the CRD from this type. `shared.model.schedules` parses the schedule.
"""

import enum
from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, field

from shared.api.base import Count, Int64, Timestamp, View, default, doc
from shared.api.batch import JobSpec
from shared.api.meta import ObjectMeta

DEFAULT_SUCCEEDED_KEPT = 3
DEFAULT_FAILED_KEPT = 1
CRON_NAME_MAX = 63 - 11
"""Letters: a job's name is a label's value, and has a hyphen and the minute behind (X01)."""
CRON_NAME_TOO_LONG = (
    f"cronJob name must be no more than {CRON_NAME_MAX} characters to accommodate job name suffix"
    " (max 63 total)"
)


class ConcurrencyPolicy(enum.StrEnum):
    """Choice when a job is due while an earlier one still runs (X02)."""

    ALLOW = "Allow"
    FORBID = "Forbid"
    REPLACE = "Replace"


class TemplateMeta(View, frozen=True, kw_only=True):
    """Metadata that each job made from a template begins with."""

    name: Annotated[str, doc("Not used: names come from the CronJob and the time.")] = ""
    namespace: Annotated[str, doc("Not used: jobs are made beside their CronJob.")] = ""
    labels: Annotated[Mapping[str, str], doc("Labels of the jobs.")] = field(default_factory=dict)
    annotations: Annotated[Mapping[str, str], doc("Annotations of the jobs.")] = field(
        default_factory=dict
    )
    finalizers: Annotated[tuple[str, ...], doc("Not used.")] = ()


class CronJobTemplate(View, frozen=True, kw_only=True):
    """Template of each job."""

    metadata: Annotated[TemplateMeta, doc("Labels and annotations of the jobs.")] = TemplateMeta()
    spec: Annotated[JobSpec, doc("What the jobs ask for.")] = JobSpec()


class CronJobSpec(View, frozen=True, kw_only=True):
    """When jobs are made, and which (C02a)."""

    schedule: Annotated[str, doc("Five cron fields: minute hour day month weekday.")]
    time_zone: Annotated[
        str | None, doc("Time zone of the schedule, such as Europe/Berlin; the controller's own.")
    ] = None
    starting_deadline_seconds: (
        Annotated[Int64, Meta(ge=0), doc("How late a job may be made; no bound unless set.")] | None
    ) = None
    concurrency_policy: Annotated[
        ConcurrencyPolicy,
        default(ConcurrencyPolicy.ALLOW.value),
        doc("Whether a job may be made while an earlier one runs."),
    ] = ConcurrencyPolicy.ALLOW
    suspend: Annotated[bool, default(value=False), doc("No jobs are made for now.")] = False
    job_template: Annotated[CronJobTemplate, doc("What the jobs look like.")]
    successful_jobs_history_limit: Annotated[
        Count, default(DEFAULT_SUCCEEDED_KEPT), doc("Completed jobs that are kept.")
    ] = DEFAULT_SUCCEEDED_KEPT
    failed_jobs_history_limit: Annotated[
        Count, default(DEFAULT_FAILED_KEPT), doc("Failed jobs that are kept.")
    ] = DEFAULT_FAILED_KEPT


class ObjectReference(View, frozen=True, kw_only=True):
    """One object, by name and uid."""

    api_version: Annotated[str, doc("API version of the object.")] = ""
    kind: Annotated[str, doc("Kind of the object.")] = ""
    namespace: Annotated[str, doc("Namespace of the object.")] = ""
    name: Annotated[str, doc("Name of the object.")] = ""
    uid: Annotated[str, doc("UID of the object.")] = ""
    resource_version: Annotated[str, doc("Version of the object when it was noted.")] = ""
    field_path: Annotated[str, doc("Part of the object; empty for all of it.")] = ""


class CronJobStatus(View, frozen=True, kw_only=True):
    """Status of a CronJob."""

    active: Annotated[tuple[ObjectReference, ...], doc("Jobs that have not ended.")] = ()
    last_schedule_time: (
        Annotated[Timestamp, doc("Time of the schedule that a job was made for last.")] | None
    ) = None
    last_successful_time: Annotated[Timestamp, doc("When a job completed last.")] | None = None


class CronJob(View, frozen=True, kw_only=True):
    """A schedule and the jobs that are made by it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[CronJobSpec, doc("When jobs are made, and which.")] = CronJobSpec(
        schedule="", job_template=CronJobTemplate()
    )
    status: Annotated[CronJobStatus, doc("What came of it so far.")] = CronJobStatus()
