"""Show which pods would have to move so that waiting jobs start, and at what cost; or move them.

`--plan`, the default, changes nothing. `--apply` approves exactly these moves for five minutes; the
scheduler makes them if its configuration has the action defrag. Exit code 3 when no move helps.
"""

import argparse
import sys
import time
from typing import Any, Final
from urllib.parse import quote

import msgspec

from pumice.queries import text
from pumice.queries.client import FAILED, NEGATIVE_RESULT, QueryClient, QueryError
from pumice.queries.output import add_output, add_target, connected, formatted
from shared.api import keys
from shared.api.scheduling import ROOT_QUEUE
from shared.api.visibility import API_VERSION, WhatIfStatus
from shared.jobs.defrag import approval
from shared.kube.wire import MERGE_PATCH, Request

_ROOT: Final = f"/apis/scheduling.volcano.sh/v1beta1/queues/{quote(ROOT_QUEUE)}"


class _Answer(msgspec.Struct, frozen=True):
    """The result of a WhatIf."""

    status: WhatIfStatus


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--plan", action="store_true", help="show the moves (default)")
    what.add_argument("--apply", action="store_true", help="have the scheduler make them")
    parser.add_argument("--max-moves", type=int, default=20, metavar="N", help="default: 20")
    parser.add_argument(
        "--max-cost", type=float, metavar="COST", help="largest sum of eviction costs"
    )
    add_target(parser)
    add_output(parser, stored=False)


async def run(args: argparse.Namespace) -> int:
    """Print the moves, and approve them where that is asked for."""
    return await connected(args, lambda client: _run(args, client))


async def _run(args: argparse.Namespace, client: QueryClient) -> int:
    asked: dict[str, Any] = {"maxMoves": args.max_moves}
    if args.max_cost is not None:
        asked["maxCost"] = args.max_cost
    spec = {"defragment": asked}
    body = {"apiVersion": API_VERSION, "kind": "WhatIf", "metadata": {}, "spec": spec}
    raw = await client.create("whatifs", body)
    status = msgspec.json.decode(raw, type=_Answer).status
    sys.stdout.write(formatted(args.output, raw, text.moves(status)))
    if not status.moves:
        return NEGATIVE_RESULT
    if args.apply:
        await _approve(client, status)
    return 0


async def _approve(client: QueryClient, status: WhatIfStatus) -> None:
    """Approve moves by an annotation of the root queue. Raises QueryError."""
    if not status.makes_moves:
        raise QueryError(
            "the scheduler makes no moves: add the action defrag to its configuration", code=FAILED
        )
    if status.hidden or status.remaining:
        raise QueryError(
            "some of the moves are in namespaces that you may not see: nobody approves what he "
            "does not see",
            code=FAILED,
        )
    now_s = time.time()  # noqa: TID251 - the scheduler compares it with its clock
    approved = approval((move.uid for move in status.moves), now=now_s)
    body = {"metadata": {"annotations": {keys.DEFRAG: approved}}}
    await client.send(
        Request(
            method="PATCH",
            path=_ROOT,
            body=msgspec.json.encode(body),
            content_type=MERGE_PATCH,
        )
    )
    sys.stdout.write("approved: the scheduler makes these moves within five minutes\n")
