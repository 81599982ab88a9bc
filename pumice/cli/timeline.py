"""Tell the life of a job: admitted, each wait with its reason, placed, running, evicted, ended.

Also of a job that is gone, for as long as its events are kept. Exit codes: docs/cli.md.
"""

import argparse

from pumice.queries import jobs
from pumice.queries.output import add_output, add_target, show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.add_argument(
        "job", metavar="JOB", help="[NAMESPACE/]NAME, or [NAMESPACE/]KIND/NAME of a workload"
    )
    add_target(parser)
    add_output(parser)


async def run(args: argparse.Namespace) -> int:
    """Print the timeline."""
    return await show(
        args,
        lambda client: client.of_job("timelines", args.job),
        jobs.timeline,
        watched=lambda client: client.changes_of(args.job),
    )
