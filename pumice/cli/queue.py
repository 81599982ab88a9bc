"""Show queues: `tree` their shares along the hierarchy, `line QUEUE` the jobs that wait in one.

The line of a queue names jobs of all namespaces and takes a right for the whole cluster. Exit
codes: docs/cli.md.
"""

import argparse

import msgspec

from pumice.queries import jobs, text
from pumice.queries.client import Items, WatchTarget
from pumice.queries.output import add_output, add_target, show
from shared.api.visibility import QueueTree


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    shown = parser.add_subparsers(dest="shown", required=True, metavar="{tree,line}")
    tree = shown.add_parser("tree", help="deserved, guaranteed and allocated amounts of each queue")
    line = shown.add_parser("line", help="the jobs that wait in a queue, by their place")
    line.add_argument("queue", metavar="QUEUE")
    for each in (tree, line):
        add_target(each)
        add_output(each)


async def run(args: argparse.Namespace) -> int:
    """Print the tree of queues, or the jobs that wait in one."""
    wide = args.output == "wide"
    if args.shown == "line":
        render_jobs = jobs.job_table(everywhere=True, wide=wide)
        target = WatchTarget("/pendingjobs", queue=args.queue, is_hint=True)
        return await show(
            args,
            lambda client: client.pending_in_queue(args.queue),
            render_jobs,
            watched=lambda _: target,
        )

    def render(raw: bytes, _: float) -> tuple[str, int]:
        return text.tree(msgspec.json.decode(raw, type=Items[QueueTree]).items, wide=wide), 0

    trees = WatchTarget("/queuetrees")
    return await show(args, lambda client: client.get(trees.path), render, watched=lambda _: trees)
