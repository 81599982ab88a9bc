"""Columns, times and states as Slurm's sacct, sreport and sshare print them.

Sources: https://slurm.schedmd.com/sacct.html, sreport.html and sshare.html.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from pumice.local.errors import WrongSettingError
from pumice.queries.reports import number
from shared.api.time import read
from shared.api.usage_reports import RecordedJob, RecordedPod

T = TypeVar("T")

TRES: Final = {"gres/gpu": "nvidia.com/gpu", "mem": "memory"}
"""Trackable resources of Slurm under another name; others have the name that they have here."""
_DEADLINE: Final = "JobDeadlineExceeded"
_STATES: Final = {
    "Aborted": "CANCELLED",
    "Aborting": "COMPLETING",
    "Completing": "COMPLETING",
    "Inqueue": "PENDING",
    "Restarting": "REQUEUED",
    "Terminated": "CANCELLED",
    "Terminating": "COMPLETING",
}
_POD_STATES: Final = {"Deleted": "CANCELLED", "Evicted": "PREEMPTED", "Unobserved": "COMPLETED"}


class SlurmColumn(NamedTuple):
    """One column: its name, how to read it, and its width."""

    name: str
    cell: Callable[..., str]
    width: int = 12


def add_layout(parser: argparse.ArgumentParser) -> None:
    """Add the flags that the three commands share."""
    parser.add_argument("-P", "--parsable2", action="store_true", help="separate columns by |")
    parser.add_argument("-n", "--noheader", action="store_true", help="print no heading")
    parser.set_defaults(namespace="")
    parser.add_argument("--kubeconfig", default="", metavar="FILE")
    parser.add_argument("--context", default=None, help="of the kubeconfig, default: the current")


def chosen(named: str, columns: Sequence[SlurmColumn]) -> list[SlurmColumn]:
    """Return the columns that a user names, `JobID,State%20`. Raises WrongSettingError."""
    known = {column.name.lower(): column for column in columns}
    found = []
    for name in filter(None, named.split(",")):
        own, _, width = name.partition("%")
        column = known.get(own.lower())
        if column is None or (width and not width.lstrip("-").isdecimal()):
            words = ", ".join(column.name for column in columns)
            raise WrongSettingError(f"there is no column {name!r}; there are {words}")
        found.append(column._replace(width=abs(int(width))) if width else column)
    return found


def write(args: argparse.Namespace, columns: Sequence[SlurmColumn], rows: Sequence[T]) -> None:
    """Print rows in columns of their widths, or separated by |."""
    lines = [[column.cell(row) for column in columns] for row in rows]
    widths = [column.width for column in columns]
    if not args.noheader:
        heads = [column.name for column in columns]
        lines = [heads, *([] if args.parsable2 else [["-" * width for width in widths]]), *lines]
    for line in lines:
        if args.parsable2:
            sys.stdout.write("|".join(line) + "\n")
        else:
            cells = zip(line, widths, strict=True)
            text = " ".join(f"{_cut(cell, width):>{width}}" for cell, width in cells)
            sys.stdout.write(text.rstrip() + "\n")


def _cut(cell: str, width: int) -> str:
    return cell if len(cell) <= width else cell[: width - 1] + "+"


def state_of(job: RecordedJob) -> str:
    """Return the state of a job in Slurm's words."""
    if job.phase == "Terminated" and job.reason == _DEADLINE:
        return "TIMEOUT"
    return _STATES.get(job.phase, job.phase.upper() or "UNKNOWN")


def state_of_pod(pod: RecordedPod) -> str:
    """Return the state of a pod in Slurm's words."""
    return _POD_STATES.get(pod.reason, pod.reason.upper()) or "RUNNING"


def seconds_between(begin: str | None, end: str | None, now_s: float) -> int:
    """Return the seconds from a time to another one, or until now; 0 without a begin."""
    begin_s, end_s = read(begin), read(end)
    return 0 if begin_s is None else max(0, int((now_s if end_s is None else end_s) - begin_s))


def duration(seconds: int) -> str:
    """Return a time as [DAYS-]HH:MM:SS."""
    days, rest = divmod(seconds, 86_400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def tres(found: Mapping[str, float]) -> str:
    """Return amounts under Slurm's names: `cpu=4,gres/gpu=8`."""
    names = {here: there for there, here in TRES.items()}
    return ",".join(f"{names.get(name, name)}={number(x)}" for name, x in sorted(found.items()))


def moment(time: str | None) -> str:
    """Return a time as Slurm prints it, in UTC."""
    return time.removesuffix("Z") if time else "Unknown"
