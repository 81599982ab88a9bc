"""`python -m services.accounting.report`: sums of usage, for those who may read the database."""

import argparse
import asyncio
import csv
import datetime as dt
import os
import sys
from collections.abc import Sequence
from typing import Final

import msgspec

from services.accounting.adapters.database import engine_of
from services.accounting.adapters.reports import GROUPS, UsageReports, UsageSum
from services.accounting.settings import AccountingSettings
from shared.runtime.clock import SystemClock
from shared.runtime.errors import Rejected
from shared.runtime.values import Secret

_PASSWORD: Final = "PUMICE_DATABASE_PASSWORD"  # noqa: S105 - the name of a variable


def main(argv: Sequence[str] | None = None) -> int:
    """Print the usage since a day; return the exit code."""
    args = _parser().parse_args(argv)
    by = args.by.split(",")
    try:
        found = asyncio.run(_read(args.database, by, args.since))
    except (Rejected, ValueError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    if args.output == "json":
        lines = [{**dict(zip(by, row.group, strict=True)), **_amount(row)} for row in found]
        sys.stdout.write(msgspec.json.encode(lines).decode() + "\n")
    else:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow([*by, "resource", "amountHours"])
        writer.writerows([*row.group, *_amount(row).values()] for row in found)
    return 0


def _amount(row: UsageSum) -> dict[str, str | float]:
    return {"resource": row.resource, "amountHours": round(row.amount_hours, 3)}


async def _read(database: str, by: Sequence[str], since: dt.date) -> list[UsageSum]:
    engine = engine_of(database, Secret(os.environ.get(_PASSWORD, "")))
    begin = dt.datetime.combine(since, dt.time(), tzinfo=dt.UTC).timestamp()
    try:
        return await UsageReports(engine).usage(by, since_s=begin, until_s=SystemClock().now())
    finally:
        await engine.dispose()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m services.accounting.report")
    parser.add_argument(
        "--database", default=AccountingSettings().database, help="URL of the database"
    )
    parser.add_argument(
        "--by", default="queue", metavar="NAMES", help=f"some of {','.join(GROUPS)}"
    )
    parser.add_argument(
        "--since", type=dt.date.fromisoformat, required=True, metavar="DAY", help="first day (UTC)"
    )
    parser.add_argument("-o", dest="output", choices=("csv", "json"), default="csv")
    return parser


if __name__ == "__main__":
    sys.exit(main())
