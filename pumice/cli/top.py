"""Show queues, gangs and nodes, live: what waits and why, what runs, how full everything is.

Parts that the user may not see, or that the cluster does not serve, are left out. Ctrl-C ends it;
`--once` prints one picture, and so does an output that is no terminal; `-o wide` prints one with
every row, and `json`, `yaml` and `name` print its objects. Exit codes: docs/cli.md.
"""

import argparse
import asyncio
import sys
import time
from typing import Any, Final

import msgspec

from pumice.queries.client import Items, QueryClient, QueryError, collection
from pumice.queries.output import add_format, add_target, connected, formatted
from shared.api.visibility import NodeUse, PendingJob, QueueTree, RunningJob

_EVERY_S: Final = 2.0
_LONG: Final = 60
"""Least lines of a frame that is printed once."""
_WIDE: Final = (160, 1_000_000)
"""Least columns and lines of a wide frame."""


Part = tuple[str, str, Any, bool]

_PARTS: Final[tuple[Part, ...]] = (
    ("queues", "queuetrees", Items[QueueTree], False),
    ("waiting", "pendingjobs", Items[PendingJob], True),
    ("running", "runningjobs", Items[RunningJob], True),
    ("nodes", "nodeuses", Items[NodeUse], False),
)
"""Part of the frame, its resource, the type of its list, and whether it is namespaced."""
_NEVER_MISSED: Final = frozenset({"queuetrees", "pendingjobs"})
"""Resources that each release of visibility serves."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    add_target(parser, everywhere="jobs of all namespaces, or none (default: those you may see)")
    add_format(parser)
    parser.add_argument("--once", action="store_true", help="print one picture and end")


async def run(args: argparse.Namespace) -> int:
    """Draw frames until interrupted, or one frame, or print its objects."""
    show = _show if args.output in {"text", "wide"} else _list
    return await connected(args, lambda client: show(args, client))


async def _list(args: argparse.Namespace, client: QueryClient) -> int:
    """Print the objects of one frame. Raises QueryError if none can be had."""
    raws, errors = await _first(args, client, await _served(client))
    for error in errors:
        sys.stderr.write(f"note: {error}\n")
    items: list[dict[str, Any]] = []
    for raw in raws.values():
        whole = msgspec.json.decode(raw)
        about = {"kind": whole["kind"].removesuffix("List"), "apiVersion": whole["apiVersion"]}
        items += [about | item for item in whole["items"]]
    listed = {"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items}
    sys.stdout.write(formatted(args.output, msgspec.json.encode(listed), ""))
    return 0


async def _show(args: argparse.Namespace, client: QueryClient) -> int:
    """Draw frames. Raises QueryError if the first one cannot be had."""
    from rich.console import Console, ConsoleDimensions, RenderableType
    from rich.live import Live

    from pumice.queries.frame import FrameModel, frame

    console = Console()
    wide = args.output == "wide"
    once = wide or args.once or not sys.stdout.isatty()
    least_width, least_height = _WIDE if wide else (0, _LONG if once else 0)
    width, height = max(console.width, least_width), max(console.height, least_height)
    served = await _served(client)
    raws, errors = await _first(args, client, served)
    found = _decoded(raws)

    def draw() -> RenderableType:
        now_s = time.time()  # noqa: TID251 - ages for a person
        clock = time.strftime("%H:%M:%S", time.localtime(now_s))
        shown = FrameModel(host=client.host, now_s=now_s, clock=clock, errors=errors, **found)
        return frame(shown, height=height if once else console.height)

    if once:
        console.size = ConsoleDimensions(width, console.height)
        console.print(draw())
        return 0
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(draw(), refresh=True)
            await asyncio.sleep(_EVERY_S)
            raws, errors = await _parts(args, client, served)
            found |= _decoded(raws)  # what cannot be had now stays as it was, above the reason


async def _served(client: QueryClient) -> list[Part]:
    """Return the parts that the cluster serves. Raises QueryError."""
    return [part for part in _PARTS if await _is_served(client, part[1])]


async def _is_served(client: QueryClient, plural: str) -> bool:
    return plural in _NEVER_MISSED or await client.is_served(plural)


def _decoded(raws: dict[str, bytes]) -> dict[str, Any]:
    """Return the objects of each part."""
    kinds = {name: kind for name, _, kind, _ in _PARTS}
    return {name: msgspec.json.decode(raw, type=kinds[name]).items for name, raw in raws.items()}


async def _first(
    args: argparse.Namespace, client: QueryClient, served: list[Part]
) -> tuple[dict[str, bytes], list[str]]:
    """Return the first parts as `_parts` does. Raises QueryError if there is none."""
    raws, errors = await _parts(args, client, served)
    if not raws:
        raise QueryError("; ".join(errors))
    return raws, errors


async def _parts(
    args: argparse.Namespace, client: QueryClient, served: list[Part]
) -> tuple[dict[str, bytes], list[str]]:
    """Return the parts that can be had, as the API server's JSON, and why the others cannot."""
    found: dict[str, bytes] = {}
    errors: dict[str, None] = {}
    for name, plural, _, namespaced in served:
        try:
            found[name] = await _request(args, client, plural, namespaced=namespaced)
        except QueryError as error:
            errors[str(error)] = None
    return found, list(errors)


async def _request(
    args: argparse.Namespace, client: QueryClient, plural: str, *, namespaced: bool
) -> bytes:
    """Return a list: of the namespace that is named, else of all, or else of the user's own one."""
    only = args.namespace if namespaced and not args.all_namespaces else ""
    try:
        return await client.get(collection(plural, only))
    except QueryError:
        if only or not namespaced or args.all_namespaces:
            raise
        return await client.get(collection(plural, client.namespace or "default"))
