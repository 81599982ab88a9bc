"""Tell why a job waits: each gate that it passes or not, what is short, and who holds it.

Without JOB all jobs that wait are listed, each with the gate that stops it. JOB is the name of a
Job, of a PodGroup, or of a pod. Exit codes: docs/cli.md.
"""

import argparse

from pumice.queries import jobs, text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    jobs.add_arguments(parser)


async def run(args: argparse.Namespace) -> int:
    """Print the explanation, or the list."""
    return await jobs.print_result(args, "explanations", jobs.why, table=text.pending, is_hint=True)
