"""Results for jobs: why they wait, when they start, and their timeline.

`why` and `when` show one job or, without JOB, list the pending jobs.
"""

import argparse
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from pumice.queries import text
from pumice.queries.client import NEGATIVE_RESULT, Items, QueryClient, WatchTarget
from pumice.queries.output import Render, add_output, add_target, show
from shared.api.visibility import Explanation, PendingJob, Timeline

TextAndCode = tuple[str, int]


class JobTable(Protocol):
    """A list of jobs that wait as text."""

    def __call__(
        self, jobs: Sequence[PendingJob], now_s: float, *, everywhere: bool, wide: bool
    ) -> str:
        """Return the table."""


def why(raw: bytes, now_s: float) -> TextAndCode:
    """Render why one job waits."""
    return text.explanation(msgspec.json.decode(raw, type=Explanation), now_s), 0


def when(raw: bytes, now_s: float) -> TextAndCode:
    """Render when one job starts; exit code 3 when that is not known."""
    found = msgspec.json.decode(raw, type=PendingJob)
    return text.when(found, now_s), 0 if text.is_known(found.expected_start) else NEGATIVE_RESULT


def job_table(
    *, everywhere: bool, wide: bool, table: JobTable = text.pending
) -> Callable[[bytes, float], TextAndCode]:
    """Return a renderer for a list of pending jobs."""

    def render(raw: bytes, now_s: float) -> TextAndCode:
        jobs = msgspec.json.decode(raw, type=Items[PendingJob]).items
        return table(jobs, now_s, everywhere=everywhere, wide=wide), 0

    return render


def timeline(raw: bytes, now_s: float) -> TextAndCode:
    """Render the timeline of one job."""
    return text.timeline(msgspec.json.decode(raw, type=Timeline), now_s), 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `why` and `when`."""
    parser.add_argument(
        "job",
        metavar="JOB",
        nargs="?",
        default="",
        help="[NAMESPACE/]NAME, or [NAMESPACE/]KIND/NAME of a workload",
    )
    add_target(parser, everywhere="list the jobs of all namespaces")
    add_output(parser)


async def print_result(
    args: argparse.Namespace, plural: str, render: Render, *, table: JobTable, is_hint: bool
) -> int:
    """Print the result for the job, or the list; `is_hint` as in `WatchTarget`."""
    if not args.job:
        wide, everywhere = args.output == "wide", args.all_namespaces
        render_table = job_table(everywhere=everywhere, wide=wide, table=table)
        return await show(
            args, QueryClient.pending, render_table, watched=QueryClient.pending_target
        )

    def follow(client: QueryClient) -> WatchTarget:
        return client.pending_target(args.job, is_hint=is_hint)

    return await show(args, lambda client: client.of_job(plural, args.job), render, watched=follow)
