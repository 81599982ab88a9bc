"""CronJobs: a schedule, a time zone and a name that jobs can be made by (W60).

⚠ As in Volcano the job template is not validated here, but each job is when it is created. The
author is warned of unknown fields, because a later warning reaches no person.
"""

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final

from services.admission.rules.fields import unknown_fields
from services.admission.rules.review import (
    AdmissionRequest,
    ReviewFacts,
    Terms,
    Verdict,
    read,
    refused,
)
from shared.api.base import Json
from shared.api.cron import CRON_NAME_MAX, CRON_NAME_TOO_LONG, CronJob, CronJobSpec
from shared.jobs.problems import Problem, Problems, unqualified
from shared.model import schedules

_UNKNOWN_FIELDS_MAX: Final = 20
_ZONE_PART: Final = re.compile(r"[A-Za-z.\-_0-9+]{1,14}")


def validate(request: AdmissionRequest, facts: ReviewFacts, terms: Terms) -> Verdict:
    """Refuse a CronJob that could make no jobs."""
    del terms
    cron = read(request, CronJob, "CREATE", "UPDATE")
    if isinstance(cron, Verdict):
        return cron
    if found := list(cron_problems(cron)):
        return refused(found)
    return Verdict(
        hints=list(islice(_unknown_field_problems(request.object, facts), _UNKNOWN_FIELDS_MAX))
    )


def _unknown_field_problems(stated: Json, facts: ReviewFacts) -> Iterator[str]:
    """Yield warnings of fields in the template of its jobs, as the API server would say them."""
    spec = stated.get("spec")
    template = spec.get("jobTemplate") if isinstance(spec, dict) else None
    job = template.get("spec") if isinstance(template, dict) else None
    if isinstance(job, dict):
        for path in unknown_fields(job, facts.schemas, at="spec.jobTemplate.spec"):
            yield f'unknown field "{path}"'


def cron_problems(cron: CronJob) -> Problems:
    """Return what is wrong with a CronJob."""
    yield from spec_problems(cron.spec)
    if cron.metadata.name or not cron.metadata.generate_name:
        yield from name_problems(cron.metadata.name)


def spec_problems(spec: CronJobSpec) -> Problems:
    """Return what is wrong with the schedule and its time zone."""
    at = "spec.schedule"
    if not spec.schedule:
        yield Problem(at, "schedule is required, but got empty")
    elif schedules.names_zone(spec.schedule):
        yield Problem(
            at,
            "schedule should not contain TZ or CRON_TZ, TZ should only be set in the timeZone"
            " field",
        )
    else:
        try:
            schedules.parse(spec.schedule)
        except ValueError as error:
            yield Problem(at, f"schedule is not a valid cron expression: {error}")
    if spec.time_zone is not None:
        yield from _zone(spec.time_zone)


def _zone(name: str) -> Problems:
    at = "spec.timeZone"
    if not name:
        yield Problem(at, "timeZone must be nil or non-empty string, got empty string")
        return
    if name.lower() == "local":
        yield Problem(
            at, "timeZone can't be Local, and must be defined in https://www.iana.org/time-zones"
        )
        return
    invalid = [
        part
        for part in name.split("/")
        if part in {".", ".."} or part.startswith("-") or not _ZONE_PART.fullmatch(part)
    ]
    if invalid:
        yield Problem(at, f"unknown timeZone {name!r}")
        return
    try:
        schedules.zone(name)
    except ValueError:
        yield Problem(
            at, f"invalid timeZone {name!r}: must be defined in https://www.iana.org/time-zones"
        )


def name_problems(name: str) -> Problems:
    """Return why jobs could not be named after a CronJob."""
    at = "metadata.name"
    if len(name) > CRON_NAME_MAX:
        yield Problem(at, CRON_NAME_TOO_LONG)
    elif why := unqualified(name):
        yield Problem(at, f'invalid cronJob name "{name}": {why}')
