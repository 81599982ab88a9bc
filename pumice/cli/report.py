"""Report what jobs used and how long they waited: usage, jobs, waits, efficiency.

The figures come from accounting. You see your own usage; that of others takes a right. Columns,
units and rights: docs/usage-reports.md.
"""

import argparse

from pumice.queries.client import QueryClient
from pumice.queries.output import add_target, connected
from pumice.queries.reports import Row, add_period, fetch, spec_of, write
from shared.api.usage_reports import GROUPS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.add_argument("report", choices=tuple(GROUPS))
    parser.add_argument(
        "--by",
        default="queue",
        metavar="NAMES",
        help="some of queue,user,namespace,day; phase for jobs, gate for waits (default: queue)",
    )
    add_period(parser)
    add_target(parser)


async def run(args: argparse.Namespace) -> int:
    """Print the report."""
    return await connected(args, lambda client: _print(args, client))


async def _print(args: argparse.Namespace, client: QueryClient) -> int:
    by = tuple(filter(None, args.by.split(",")))
    status = await fetch(client, spec_of(args, args.report, by=by))
    rows: list[Row] = [{**row.group, **row.values} for row in status.rows]
    heads = dict.fromkeys((*by, *(head for row in rows for head in row)))
    write(tuple(heads), rows, args.output)
    return 0
