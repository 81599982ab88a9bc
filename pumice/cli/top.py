"""Show queues, gangs and nodes, live: what waits and why, what runs, how full everything is.

Parts that the user may not see, or that the cluster does not serve, are left out. Ctrl-C ends it;
`--once` prints one picture, and so does an output that is no terminal. Exit codes: docs/cli.md.
"""

import argparse
import asyncio
import sys
import time
from typing import Any, Final

import msgspec

from pumice.answers.asking import AnswerError, Asker, Items, collection
from pumice.answers.output import add_place, connected
from shared.api.visibility import NodeUse, PendingJob, QueueTree, RunningJob

_EVERY_S: Final = 2.0
_LONG: Final = 60
"""Least lines of a picture that is not kept on a screen."""


Part = tuple[str, str, Any, bool]

_PARTS: Final[tuple[Part, ...]] = (
    ("queues", "queuetrees", Items[QueueTree], False),
    ("waiting", "pendingjobs", Items[PendingJob], True),
    ("running", "runningjobs", Items[RunningJob], True),
    ("nodes", "nodeuses", Items[NodeUse], False),
)
"""Part of the picture, its resource, the type of its list, and whether it is of a namespace."""
_NEVER_MISSED: Final = frozenset({"queuetrees", "pendingjobs"})
"""Resources that each release of visibility serves."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    add_place(parser)
    parser.add_argument("--once", action="store_true", help="print one picture and end")


async def run(args: argparse.Namespace) -> int:
    """Show pictures until it is interrupted, or one."""
    once = args.once or not sys.stdout.isatty()
    return await connected(args, lambda asker: _show(asker, once=once, only=args.namespace))


async def _show(asker: Asker, *, once: bool, only: str) -> int:
    """Print pictures. Raises AnswerError if the first one cannot be had."""
    from rich.console import Console, RenderableType
    from rich.live import Live

    from pumice.answers.frame import Picture, frame

    console = Console()
    served = [part for part in _PARTS if await _is_served(asker, part[1])]
    found, troubles = await _parts(asker, served, only)
    if not found:
        raise AnswerError("; ".join(troubles))

    def picture() -> RenderableType:
        now_s = time.time()  # noqa: TID251 - ages for a person
        clock = time.strftime("%H:%M:%S", time.localtime(now_s))
        shown = Picture(host=asker.host, now_s=now_s, clock=clock, troubles=troubles, **found)
        return frame(shown, height=console.height if not once else max(console.height, _LONG))

    if once:
        console.print(picture())
        return 0
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(picture(), refresh=True)
            await asyncio.sleep(_EVERY_S)
            newer, troubles = await _parts(asker, served, only)
            found |= newer  # what cannot be had now stays as it was, above the reason


async def _is_served(asker: Asker, plural: str) -> bool:
    return plural in _NEVER_MISSED or await asker.is_served(plural)


async def _parts(asker: Asker, served: list[Part], only: str) -> tuple[dict[str, Any], list[str]]:
    """Return the parts that can be had, and why the others cannot."""
    found: dict[str, Any] = {}
    troubles: dict[str, None] = {}
    for name, plural, kind, namespaced in served:
        try:
            raw = await _ask(asker, plural, only=only if namespaced else "", namespaced=namespaced)
            found[name] = msgspec.json.decode(raw, type=kind).items
        except AnswerError as error:
            troubles[str(error)] = None
    return found, list(troubles)


async def _ask(asker: Asker, plural: str, *, only: str, namespaced: bool) -> bytes:
    """Return a list: of all namespaces, of the user's own one where all are not for this user."""
    if only or not namespaced:
        return await asker.get(collection(plural, only))
    try:
        return await asker.get(collection(plural))
    except AnswerError:
        return await asker.get(collection(plural, asker.namespace or "default"))
