"""Show shares and usage as Slurm's sshare does: an account is a queue.

Usage is what accounting published last, decayed until now; the numbers are those by which the
plugin fairshare orders. See docs/from-slurm.md.
"""

import argparse
from typing import Final

from pumice.queries import slurm
from pumice.queries.client import QueryClient
from pumice.queries.output import connected
from pumice.queries.reports import fetch, number
from pumice.queries.slurm import SlurmColumn
from shared.api.usage_reports import LIMIT_MAX, SHARES, UsageReportSpec

COLUMNS: Final = (
    SlurmColumn("Account", lambda row: f"{' ' * row.depth}{row.queue}".ljust(20), 20),
    SlurmColumn("User", lambda row: row.user, 20),
    SlurmColumn("RawShares", lambda row: number(row.raw_shares)),
    SlurmColumn("NormShares", lambda row: f"{row.norm_shares:.6f}"),
    SlurmColumn("RawUsage", lambda row: f"{row.raw_usage:.0f}"),
    SlurmColumn("NormUsage", lambda row: f"{row.norm_usage:.6f}"),
    SlurmColumn("EffectvUsage", lambda row: f"{row.effective_usage:.6f}"),
    SlurmColumn("FairShare", lambda row: f"{row.fair_share:.6f}" if row.user else ""),
)
_LONG: Final = frozenset({"NormUsage"})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.add_argument("-a", "--all", action="store_true", help="all users (default: mine)")
    parser.add_argument("-l", "--long", action="store_true", help="more columns")
    parser.add_argument("-u", "--users", default="", metavar="USER", help="of this user")
    parser.add_argument("-A", "--accounts", default="", metavar="QUEUE", help="in this queue")
    slurm.add_layout(parser)


async def run(args: argparse.Namespace) -> int:
    """Print the shares."""
    return await connected(args, lambda client: _print(args, client))


async def _print(args: argparse.Namespace, client: QueryClient) -> int:
    spec = UsageReportSpec(
        report=SHARES,
        mine=not (args.all or args.users or args.accounts),
        user=args.users,
        queue=args.accounts,
        limit=LIMIT_MAX,
    )
    columns = [column for column in COLUMNS if args.long or column.name not in _LONG]
    if args.parsable2:
        columns[0] = columns[0]._replace(cell=lambda row: f"{' ' * row.depth}{row.queue}")
    slurm.write(args, columns, (await fetch(client, spec)).shares)
    return 0
