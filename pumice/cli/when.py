"""Tell when a waiting job is expected to start: half of the forecasts, nine of ten by then.

Without JOB all jobs that wait are listed with both, and with what the forecast goes by, or why it
knows no start. Exit code 3 when the start of
the job is not known; all codes are in docs/cli.md.
"""

import argparse

from pumice.queries import jobs, text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    jobs.add_arguments(parser)


async def run(args: argparse.Namespace) -> int:
    """Print the expected start, or the list."""
    return await jobs.print_result(args, "pendingjobs", jobs.when, table=text.starts, is_hint=False)
