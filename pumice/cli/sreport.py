"""Report usage as Slurm's sreport does: an account is a queue.

`cluster AccountUtilizationByUser` by queue and user, `user TopUsage` the users with most usage. The
same without Slurm's names: pumice report. See docs/from-slurm.md.
"""

import argparse
from typing import Final, NamedTuple

from pumice.local.errors import WrongSettingError
from pumice.queries import slurm
from pumice.queries.client import QueryClient
from pumice.queries.output import connected
from pumice.queries.reports import fetch, moment_of, number
from pumice.queries.slurm import TRES, SlurmColumn
from shared.api.usage_reports import LIMIT_MAX, USAGE, UsageReportSpec

_ACCOUNTS: Final = ("cluster", "accountutilizationbyuser")
_TOP: Final = ("user", "topusage")
_PER_HOUR: Final = {"seconds": 3600.0, "minutes": 60.0, "hours": 1.0}
_TOP_COUNT: Final = 10


class _Used(NamedTuple):
    account: str
    login: str
    tres: str
    used: float


_ACCOUNT: Final = SlurmColumn("Account", lambda row: row.account, 20)
_LOGIN: Final = SlurmColumn("Login", lambda row: row.login, 20)
_USAGE: Final = (
    SlurmColumn("TRES Name", lambda row: row.tres, 14),
    SlurmColumn("Used", lambda row: number(round(row.used, 3))),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.add_argument("kind", metavar="{cluster,user}")
    parser.add_argument("report", metavar="{AccountUtilizationByUser,TopUsage}")
    parser.add_argument("options", nargs="*", metavar="start=TIME end=TIME accounts=QUEUE users=U")
    parser.add_argument("-t", "--time", default="minutes", help="seconds, minutes or hours")
    parser.add_argument("-T", "--tres", default="cpu", help="cpu, mem, gres/gpu or a resource")
    slurm.add_layout(parser)


async def run(args: argparse.Namespace) -> int:
    """Print the report. Raises WrongSettingError for an unknown one."""
    name = (args.kind.lower(), args.report.lower())
    if name not in (_ACCOUNTS, _TOP):
        raise WrongSettingError(
            "there are cluster AccountUtilizationByUser and user TopUsage; pumice report has more"
        )
    if args.time.lower() not in _PER_HOUR:
        raise WrongSettingError(f"-t {args.time}: use seconds, minutes or hours")
    options = _options(args.options)
    return await connected(args, lambda client: _print(args, client, options, top=name == _TOP))


def _options(words: list[str]) -> dict[str, str]:
    """Return the options `NAME=VALUE` by name. Raises WrongSettingError."""
    found = {}
    for word in words:
        name, _, value = word.partition("=")
        if name.lower() not in ("start", "end", "accounts", "users", "topcount"):
            raise WrongSettingError(f"{word!r}: use start=, end=, accounts=, users= or topcount=")
        try:
            found[name.lower()] = moment_of(value) if name.lower() in ("start", "end") else value
        except argparse.ArgumentTypeError as error:
            raise WrongSettingError(str(error)) from error
    return found


async def _print(
    args: argparse.Namespace, client: QueryClient, options: dict[str, str], *, top: bool
) -> int:
    spec = UsageReportSpec(
        report=USAGE,
        by=("queue", "user"),
        since=options.get("start", moment_of("now-1days")),
        until=options.get("end"),
        queue=options.get("accounts", ""),
        user=options.get("users", ""),
        limit=LIMIT_MAX,
    )
    wanted = {TRES.get(name, name): name for name in args.tres.split(",")}
    factor = _PER_HOUR[args.time.lower()]
    rows = [
        _Used(
            row.group["queue"],
            row.group["user"],
            wanted[row.group["resource"]],
            row.values["amountHours"] * factor,
        )
        for row in (await fetch(client, spec)).rows
        if row.group["resource"] in wanted
    ]
    columns = [_ACCOUNT, _LOGIN, *_USAGE]
    if top:
        count = options.get("topcount", "")
        rows.sort(key=lambda row: (-row.used, row))
        rows = rows[: int(count) if count.isdecimal() else _TOP_COUNT]
        columns = [_LOGIN, _ACCOUNT, *_USAGE]
    slurm.write(args, columns, rows)
    return 0
