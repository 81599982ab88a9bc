"""Requests usage reports page by page, and prints their rows as a table, CSV, JSON or Parquet."""

import argparse
import csv
import datetime as dt
import io
import re
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from pumice.local.errors import WrongSettingError
from pumice.queries.client import ForbiddenError, QueryClient, QueryError
from pumice.queries.text import columns
from shared.api.usage_reports import LIMIT_MAX, UsageReport, UsageReportSpec, UsageReportStatus
from shared.api.visibility import API_VERSION

FORMATS: Final = ("table", "csv", "json", "parquet")
ROWS_MAX: Final = 100_000
"""Most rows that a command collects."""
_AGO: Final = re.compile(r"now(?:-(\d+)(hours?|days?|weeks?))?")

Row = Mapping[str, str | float | int]


def add_period(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the period and of the jobs that a report is about."""
    moment = "2026-11-01, 2026-11-01T12:00:00 (UTC), or now-7days"
    parser.add_argument("--since", type=moment_of, default=None, metavar="TIME", help=moment)
    parser.add_argument("--until", type=moment_of, default=None, metavar="TIME")
    parser.add_argument("--mine", action="store_true", help="my own usage only")
    parser.add_argument("--user", default="", help="of this user only")
    parser.add_argument("--queue", default="", help="in this queue only")
    parser.add_argument("-o", "--output", choices=FORMATS, default="table")


def moment_of(text: str) -> str:
    """Return an RFC 3339 time; a text that is none is an error of argparse."""
    now = dt.datetime.fromtimestamp(time.time(), dt.UTC)  # noqa: TID251 - of a person's query
    if found := _AGO.fullmatch(text):
        unit = f"{(found[2] or 'hour').removesuffix('s')}s"
        moment = now - dt.timedelta(**{unit: int(found[1] or 0)})
    else:
        try:
            moment = dt.datetime.fromisoformat(text)
        except ValueError as error:
            why = f"{text!r} is no time: write 2026-11-01, 2026-11-01T12:00:00 or now-7days"
            raise argparse.ArgumentTypeError(why) from error
    moment = moment.replace(tzinfo=moment.tzinfo or dt.UTC, microsecond=0)
    return moment.isoformat().replace("+00:00", "Z")


def spec_of(
    args: argparse.Namespace, report: str, *, by: Sequence[str] = (), job: str = ""
) -> UsageReportSpec:
    """Return the query that the flags of `add_period` mean."""
    return UsageReportSpec(
        report=report,
        by=tuple(by),
        since=args.since,
        until=args.until,
        mine=args.mine,
        user=args.user,
        queue=args.queue,
        namespace=args.namespace,
        job=job,
        limit=LIMIT_MAX,
    )


async def fetch(client: QueryClient, spec: UsageReportSpec) -> UsageReportStatus:
    """Return all pages of a report as one. Raises QueryError.

    Who may not see everything, and named nothing, gets the own usage, with a note on stderr.
    """
    try:
        whole = page = await _page(client, spec)
    except ForbiddenError:
        if spec.mine or spec.user or spec.queue or spec.namespace:
            raise
        sys.stderr.write("note: this is your own usage; you may not see that of others\n")
        spec = replace(spec, mine=True)
        whole = page = await _page(client, spec)
    while page.next:
        page = await _page(client, replace(spec, after=page.next))
        rows, jobs = (*whole.rows, *page.rows), (*whole.jobs, *page.jobs)
        whole = replace(whole, rows=rows, jobs=jobs, shares=(*whole.shares, *page.shares))
        if len(rows) + len(jobs) + len(whole.shares) >= ROWS_MAX:
            raise QueryError(f"the report has more than {ROWS_MAX} rows; choose a shorter time")
    for gap in whole.gaps:
        note = f"{gap.begin} to {gap.end} is approximate: {gap.reason}"
        sys.stderr.write(f"note: {note}\n")
    return whole


async def _page(client: QueryClient, spec: UsageReportSpec) -> UsageReportStatus:
    body = {"apiVersion": API_VERSION, "kind": "UsageReport", "spec": msgspec.to_builtins(spec)}
    raw = await client.create_in_cluster("/usagereports", body)
    return msgspec.json.decode(raw, type=UsageReport).status or UsageReportStatus()


def write(heads: Sequence[str], rows: Sequence[Row], output: str) -> None:
    """Print rows by their columns in a format of `FORMATS`. Raises WrongSettingError."""
    if output == "json":
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode() + "\n")
    elif output == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(heads)
        writer.writerows([number(row.get(head, "")) for head in heads] for row in rows)
    elif output == "parquet":
        _write_parquet(heads, rows)
    else:
        cells = [[number(row.get(head, "")) for head in heads] for row in rows]
        sys.stdout.write(columns([_title(head) for head in heads], cells) if rows else "no rows\n")


def _title(head: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", head).upper()


def number(value: str | float) -> str:
    """Return a value as text; a number without a fraction that is zero."""
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    return str(value)


def _write_parquet(heads: Sequence[str], rows: Sequence[Row]) -> None:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        words = "-o parquet needs pyarrow, which is not installed: pip install 'pumice[parquet]'"
        raise WrongSettingError(words) from error
    if sys.stdout.isatty():
        raise WrongSettingError("-o parquet writes bytes: redirect the output into a file")
    table = pa.table({head: [row.get(head) for row in rows] for head in heads})
    whole = io.BytesIO()
    parquet.write_table(table, whole)
    sys.stdout.buffer.write(whole.getvalue())
