"""Show queues: `tree` their shares along the hierarchy, `line QUEUE` the jobs that wait in one.

The line of a queue names jobs of all namespaces and takes a right for the whole cluster. Exit
codes: docs/cli.md.
"""

import argparse

import msgspec

from pumice.answers import jobs, text
from pumice.answers.asking import Items, Watched
from pumice.answers.output import add_output, add_place, show
from shared.api.visibility import QueueTree


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    shown = parser.add_subparsers(dest="shown", required=True, metavar="{tree,line}")
    tree = shown.add_parser("tree", help="deserved, guaranteed and allocated amounts of each queue")
    line = shown.add_parser("line", help="the jobs that wait in a queue, by their place")
    line.add_argument("queue", metavar="QUEUE")
    for each in (tree, line):
        add_place(each)
        add_output(each)


async def run(args: argparse.Namespace) -> int:
    """Print the tree or the line."""
    wide = args.output == "wide"
    if args.shown == "line":
        tell_line = jobs.line(everywhere=True, wide=wide)
        jobs_in_line = Watched("/pendingjobs", queue=args.queue, is_hint=True)
        return await show(
            args, lambda client: client.line(args.queue), tell_line, watched=lambda _: jobs_in_line
        )

    def tell(raw: bytes, _: float) -> tuple[str, int]:
        return text.tree(msgspec.json.decode(raw, type=Items[QueueTree]).items, wide=wide), 0

    trees = Watched("/queuetrees")
    return await show(args, lambda client: client.get(trees.path), tell, watched=lambda _: trees)
