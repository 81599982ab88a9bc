"""Reads the jobs of a period from the database, page by page, with what each has used."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import String, and_, cast, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from services.accounting.adapters import report_query
from services.accounting.adapters.report_query import ReportQuery
from services.accounting.books.rows import Allocation, JobRow, amounts_of, in_units
from services.accounting.schema import ALLOCATIONS, JOBS
from shared.api.time import format_seconds
from shared.api.usage_reports import RecordedJob, RecordedPod
from shared.model.resources import PODS
from shared.runtime.errors import Rejected

PODS_MAX: Final = 1000
"""Most pods of all jobs of one page."""


async def recorded_jobs(
    connection: AsyncConnection, query: ReportQuery
) -> tuple[list[RecordedJob], str]:
    """Return the jobs that existed in a period, and the mark of the next page or "".

    The last submitted comes first. Raises Rejected for a mark of another report.
    """
    jobs, limit = JOBS.c, query.spec.limit
    wanted = [
        jobs.submitted < query.until_s,
        or_(jobs.ended.is_(None), jobs.ended >= query.since_s),
        *query.only(JOBS),
    ]
    if query.spec.job:
        wanted.append(jobs.name == query.spec.job)
    if query.after:
        wanted.append(_is_behind(query))
    ordered = select(JOBS).where(*wanted).order_by(jobs.submitted.desc(), jobs.uid.desc())
    found = await connection.execute(ordered.limit(limit + 1))
    rows = [JobRow(**row) for row in found.mappings()]
    following = ""
    if len(rows) > limit:
        rows = rows[:limit]
        following = report_query.mark((rows[-1].submitted, rows[-1].uid))
    uids = [row.uid for row in rows]
    used = await _used(connection, uids, query.now)
    pods = await _pods(connection, uids) if query.spec.job else {}
    return [_job(row, *used.get(row.uid, (0, {})), pods.get(row.uid, ())) for row in rows], (
        following
    )


def _is_behind(query: ReportQuery) -> Any:  # noqa: ANN401 - a condition of SQLAlchemy
    jobs = JOBS.c
    match query.after:
        case (float() as submitted, str() as uid):
            same = and_(jobs.submitted == submitted, jobs.uid < uid)
            return or_(jobs.submitted < submitted, same)
        case _:
            raise Rejected("it is not the `next` of this report", field="spec.after")


async def _used(
    connection: AsyncConnection, uids: Sequence[str], now: float
) -> dict[str, tuple[int, dict[str, float]]]:
    """Return the pods and resource-hours of jobs by their uids."""
    row = ALLOCATIONS.c
    alike = (row.job_uid, row.cpu_milli, row.memory_bytes, cast(row.scalars, String))
    seconds = func.sum(func.coalesce(row.ended, now) - row.started)
    found = await connection.execute(
        select(*alike, func.count(), seconds).where(row.job_uid.in_(uids)).group_by(*alike)
    )
    used: dict[str, tuple[int, dict[str, float]]] = {}
    for uid, cpu_milli, memory_bytes, scalars, count, held_s in found:
        pods, amounts = used.get(uid, (0, {}))
        others = msgspec.json.decode(scalars)
        for name, amount in ((PODS, 1000), *amounts_of(cpu_milli, memory_bytes, others)):
            hours = in_units(name, amount) * held_s / 3600
            amounts[name] = round(amounts.get(name, 0.0) + hours, 6)
        used[uid] = (pods + count, amounts)
    return used


async def _pods(connection: AsyncConnection, uids: Sequence[str]) -> dict[str, list[RecordedPod]]:
    row = ALLOCATIONS.c
    ordered = select(ALLOCATIONS).where(row.job_uid.in_(uids)).order_by(row.started, row.pod_uid)
    pods: dict[str, list[RecordedPod]] = {}
    for found in (await connection.execute(ordered.limit(PODS_MAX))).mappings():
        pod = Allocation(**found)
        amounts = amounts_of(pod.cpu_milli, pod.memory_bytes, pod.scalars)
        pods.setdefault(pod.job_uid, []).append(
            RecordedPod(
                name=pod.pod,
                node=pod.node,
                started=format_seconds(pod.started),
                ended=_time(pod.ended),
                reason=pod.reason,
                resources={name: in_units(name, amount) for name, amount in amounts},
            )
        )
    return pods


def _job(
    row: JobRow, pod_count: int, used: dict[str, float], pods: Sequence[RecordedPod]
) -> RecordedJob:
    return RecordedJob(
        namespace=row.namespace,
        name=row.name,
        uid=row.uid,
        kind=row.kind,
        queue=row.queue,
        user=row.user,
        phase=row.phase,
        reason=row.reason,
        submitted=format_seconds(row.submitted),
        admitted=_time(row.admitted),
        started=_time(row.started),
        ended=_time(row.ended),
        restarts=row.restarts,
        min_member=row.min_member,
        requested={name: in_units(name, amount) for name, amount in row.requested.items()},
        waits={gate: round(seconds, 3) for gate, seconds in row.waits.items()},
        pod_count=pod_count,
        used=used,
        pods=tuple(pods),
    )


def _time(unix_s: float | None) -> str | None:
    return None if unix_s is None else format_seconds(unix_s)
