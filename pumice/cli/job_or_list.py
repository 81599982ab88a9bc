"""The shape of `why` and `when`: an answer about one job or, without JOB, the jobs that wait."""

import argparse

from pumice.answers import jobs
from pumice.answers.asking import Asker, Watched
from pumice.answers.output import Tell, add_output, add_place, show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of both commands."""
    parser.add_argument("job", metavar="JOB", nargs="?", default="", help="NAME or NAMESPACE/NAME")
    add_place(parser, everywhere="list the jobs of all namespaces")
    add_output(parser)


async def answer(args: argparse.Namespace, plural: str, tell: Tell, *, watched: bool) -> int:
    """Print the answer of a resource about the job, or the list; `watched`: it has a watch."""
    if not args.job:
        wide, everywhere = args.output == "wide", args.all_namespaces
        tell_line = jobs.line(everywhere=everywhere, wide=wide)
        return await show(args, Asker.pending, tell_line, watched=Asker.waiting)

    def follow(asker: Asker) -> Watched | None:
        return asker.waiting(args.job) if watched else None

    return await show(args, lambda asker: asker.of_job(plural, args.job), tell, watched=follow)
