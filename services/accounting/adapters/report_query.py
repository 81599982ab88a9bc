"""Checks the query of a usage report and completes it with times, groups and the page's begin."""

import base64
import math
from typing import Final, NoReturn

import msgspec
from sqlalchemy import ColumnElement, Table

from services.accounting.books.rows import DAY_S
from shared.api import usage_reports as reports
from shared.api.time import parse
from shared.api.usage_reports import UsageReportSpec
from shared.runtime.errors import Rejected

DEFAULT_S: Final = 30.0 * DAY_S
DAYS_MAX: Final = 1100
"""Longest time of one report."""

Key = tuple[str | float, ...]


class ReportQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A valid query."""

    spec: UsageReportSpec
    now: float
    since_s: float
    until_s: float
    """Not after `now`, unless `since_s` is."""
    after: Key = ()
    """Key of the last row of the page before."""

    @property
    def first_day(self) -> int:
        """Return the day in which the time begins, counted from 1970-01-01."""
        return int(self.since_s // DAY_S)

    @property
    def last_day(self) -> int:
        """Return the day in which it ends."""
        return math.ceil(self.until_s / DAY_S) - 1

    def only(self, table: Table) -> list[ColumnElement[bool]]:
        """Return the conditions on user, queue and namespace."""
        wanted = {name: getattr(self.spec, name) for name in ("user", "queue", "namespace")}
        return [table.c[name] == value for name, value in wanted.items() if value]


def read(spec: UsageReportSpec, now: float) -> ReportQuery:
    """Return the query that a spec means at `now` (Unix seconds). Raises Rejected."""
    if spec.report not in (*reports.GROUPS, reports.HISTORY):
        _refuse("report", f"{spec.report!r}: use one of {', '.join(reports.REPORTS)}")
    if not 1 <= spec.limit <= reports.LIMIT_MAX:
        _refuse("limit", f"{spec.limit}: use 1 to {reports.LIMIT_MAX}")
    groups = reports.GROUPS.get(spec.report)
    if groups is not None and (unknown := [name for name in spec.by if name not in groups]):
        _refuse("by", f"{unknown[0]!r}: {spec.report} is grouped by {', '.join(groups)}")
    if len(set(spec.by)) < len(spec.by):
        _refuse("by", "a group is named twice")
    if spec.job and spec.report != reports.HISTORY:
        _refuse("job", f"{spec.report} does not take a job; use the report {reports.HISTORY}")
    until_s = min(_time("until", spec.until, now), now)
    since_s = _time("since", spec.since, until_s - DEFAULT_S)
    if since_s >= until_s:
        _refuse("since", "it is not before the end of the report")
    if until_s - since_s > DAYS_MAX * DAY_S:
        _refuse("since", f"a report has {DAYS_MAX} days at most")
    return ReportQuery(
        spec=spec, now=now, since_s=since_s, until_s=until_s, after=_after(spec.after)
    )


def mark(key: Key) -> str:
    """Return the mark of a page that begins behind a key."""
    return base64.urlsafe_b64encode(msgspec.json.encode(key)).decode()


def _after(text: str) -> Key:
    if not text:
        return ()
    try:
        return msgspec.json.decode(
            base64.urlsafe_b64decode(text.encode()), type=tuple[str | float, ...]
        )
    except ValueError:  # binascii.Error and errors of msgspec as well
        _refuse("after", "it is not the `next` of a page")


def _time(field: str, text: str | None, default: float) -> float:
    if not text:
        return default
    try:
        return parse(text)
    except (ValueError, OverflowError) as error:
        raise Rejected(str(error), field=f"spec.{field}") from error


def _refuse(field: str, why: str) -> NoReturn:
    raise Rejected(why, field=f"spec.{field}")
