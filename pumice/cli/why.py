"""Tell why a job waits: each gate that it passes or not, what is short, and who holds it.

Without JOB all jobs that wait are listed, each with the gate that stops it. JOB is the name of a
Job, of a PodGroup, or of a pod. Exit codes: docs/cli.md.
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
    """Print the explanation, or the list."""
    if not args.job:
        wide, everywhere = args.output == "wide", args.all_namespaces
        return await show(args, Asker.pending, jobs.line(everywhere=everywhere, wide=wide))
    return await show(args, lambda asker: asker.of_job("explanations", args.job), jobs.why)
