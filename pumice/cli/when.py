"""Tell when a waiting job is expected to start: half of the forecasts, nine of ten by then.

Without JOB all jobs that wait are listed with their expected start. Exit code 3 when the start of
the job is not known; all codes are in docs/cli.md.
"""

import argparse

from pumice.answers import jobs
from pumice.answers.asking import Asker
from pumice.answers.output import add_output, add_place, show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.add_argument("job", metavar="JOB", nargs="?", default="", help="NAME or NAMESPACE/NAME")
    add_place(parser, everywhere="list the jobs of all namespaces")
    add_output(parser)


async def run(args: argparse.Namespace) -> int:
    """Print the expected start, or the list."""
    if not args.job:
        wide, everywhere = args.output == "wide", args.all_namespaces
        return await show(args, Asker.pending, jobs.line(everywhere=everywhere, wide=wide))
    return await show(args, lambda asker: asker.of_job("pendingjobs", args.job), jobs.when)
