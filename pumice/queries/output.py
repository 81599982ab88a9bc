"""Flags that the commands share, forms of output, and the loop of `--watch` (`following`).

A command gives `show` a query and a renderer of its result; everything else is shared.
"""

import argparse
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from pumice.cli.program import is_plugin
from pumice.queries.client import ClusterTarget, QueryClient, QueryError, WatchTarget
from shared.api.visibility import GROUP

FORMATS: Final = ("text", "wide", "json", "yaml", "name")

Fetch = Callable[[QueryClient], Awaitable[bytes]]
"""Returns the API server's JSON."""
TargetOf = Callable[[QueryClient], WatchTarget]
"""Returns the watch target whose events hint at a new result."""
Render = Callable[[bytes, float], tuple[str, int]]
"""Returns a result as text, and the exit code."""


def add_target(parser: argparse.ArgumentParser, *, everywhere: str = "") -> None:
    """Add the flags that name cluster and namespace; `everywhere` is the help of `-A`."""
    parser.add_argument("-n", "--namespace", default="", help="default: that of the context")
    if everywhere:
        parser.add_argument("-A", "--all-namespaces", action="store_true", help=everywhere)
    parser.add_argument(
        "--kubeconfig",
        default="",
        metavar="FILE",
        help="default: the local cluster's, $KUBECONFIG, ~/.kube/config",
    )
    parser.add_argument("--context", default=None, help="of the kubeconfig, default: the current")


def add_output(parser: argparse.ArgumentParser, *, stored: bool = True) -> None:
    """Add the output flags: a result that is not `stored` cannot be watched.

    Such a result has no name either.
    """
    add_format(parser, FORMATS if stored else FORMATS[:-1])
    if stored:
        parser.add_argument(
            "-w", "--watch", action="store_true", help="keep running, and print each new result"
        )


def add_format(parser: argparse.ArgumentParser, formats: Sequence[str] = FORMATS) -> None:
    """Add the flag `-o`, with the formats of a result."""
    parser.add_argument("-o", "--output", choices=formats, default="text")


def target_of(args: argparse.Namespace) -> ClusterTarget:
    """Return the place that the flags name."""
    return ClusterTarget(
        kubeconfig=args.kubeconfig,
        context=args.context,
        namespace=args.namespace,
        everywhere=getattr(args, "all_namespaces", False),
        local=not is_plugin(),
    )


async def show(
    args: argparse.Namespace, fetch: Fetch, render: Render, *, watched: TargetOf | None = None
) -> int:
    """Run a query, print the result in the requested format; return the exit code."""
    if watched is not None and args.watch:
        return await connected(args, lambda client: _follow(args, client, fetch, render, watched))
    return await connected(args, lambda client: _show(args, client, fetch, render))


async def connected(args: argparse.Namespace, act: Callable[[QueryClient], Awaitable[int]]) -> int:
    """Act with a connection to the place that the flags name; a refusal is a line on stderr."""
    try:
        client = await QueryClient.open(target_of(args))
        try:
            return await act(client)
        finally:
            await client.close()
    except QueryError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.code


async def _show(args: argparse.Namespace, client: QueryClient, fetch: Fetch, render: Render) -> int:
    raw = await fetch(client)
    text, code = _rendered(args, raw, render)
    sys.stdout.write(text)
    return code


async def _follow(
    args: argparse.Namespace, client: QueryClient, fetch: Fetch, render: Render, watched: TargetOf
) -> int:
    """Print a result, and again whenever it changes, until interrupted."""
    from pumice.queries.refresh import RefreshTimes  # needed for --watch alone

    raw = await fetch(client)
    refresh_times = RefreshTimes(client, watched(client))
    printed = ""
    try:
        while True:
            text, _ = _rendered(args, raw, render)
            if text != printed:
                sys.stdout.write(f"\n{text}" if printed else text)
                sys.stdout.flush()
            printed = text
            await refresh_times.next(raw)
            raw = await fetch(client)
    finally:
        refresh_times.close()


def _rendered(args: argparse.Namespace, raw: bytes, render: Render) -> tuple[str, int]:
    """Return a result in the requested format, and the exit code."""
    now_s = time.time()  # noqa: TID251 - ages for a person
    text, code = render(raw, now_s)
    return formatted(args.output, raw, text), code


def formatted(output_format: str, raw: bytes, text: str) -> str:
    """Return a result as JSON, YAML or names, or else its text."""
    if output_format == "json":
        return msgspec.json.format(raw, indent=2).decode() + "\n"
    if output_format == "yaml":
        import yaml  # not needed for the other forms

        whole = msgspec.json.decode(raw)
        return str(yaml.safe_dump(whole, sort_keys=False, allow_unicode=True))
    return "".join(f"{name}\n" for name in names(raw)) if output_format == "name" else text


def names(raw: bytes) -> Sequence[str]:
    """Return the objects of a result as kubectl's `-o name` prints them."""
    whole = msgspec.json.decode(raw)
    items: list[dict[str, Any]] = whole.get("items", [whole])
    usual = whole["kind"].removesuffix("List")
    kinds = [(item.get("kind") or usual).lower() for item in items]
    found = zip(kinds, items, strict=True)
    return [f"{kind}.{GROUP}/{item['metadata']['name']}" for kind, item in found]
