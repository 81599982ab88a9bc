"""Open the live page: queues, waiting and running jobs, nodes, timelines, what-ifs, events.

The page is served on this machine, at 127.0.0.1, and asks the API server with the credentials of
the kubeconfig: it shows what this user may see. The printed address holds a key; LINK, a link that
a colleague copied from the same page, opens that place. It ends with Ctrl-C.
"""

import argparse
import asyncio
import os
import secrets
import sys
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from pumice.cli.data_directory import add_data_directory
from pumice.local import state
from pumice.local.errors import LocalError

if TYPE_CHECKING:
    from shared.kube.credentials import Source
    from shared.kube.transport import HttpTransport

_PORT: Final = 8642
_USER_AGENT: Final = "pumice-web"
_ANSWER_S: Final = 30.0
_CONNECTIONS: Final = 16
_KEY_BYTES: Final = 24


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("link", nargs="?", default="", metavar="LINK", help="place to open")
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="API server and user (default: the local cluster's, $KUBECONFIG, ~/.kube/config)",
    )
    parser.add_argument("--context", metavar="NAME", help="context of the kubeconfig")
    parser.add_argument(
        "-n",
        "--namespace",
        default="",
        help="shown to a user who may not see all of them (default: the context's)",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=_PORT,
        help="port on 127.0.0.1 (default %(default)s: links of colleagues then fit)",
    )
    parser.add_argument("--no-browser", action="store_true", help="print the address only")
    add_data_directory(parser)


async def run(
    args: argparse.Namespace, *, environ: Mapping[str, str] = os.environ, out: TextIO = sys.stdout
) -> int:
    """Serve the page until it is interrupted. Raises LocalError or PumiceError."""
    from pumice.web.gate import RequestGate
    from pumice.web.server import HOST, KubeconfigFacts, PageServer

    source = _source(args, environ)
    transport = await _transport(source)
    try:
        await _check(transport)
        namespace = args.namespace or _namespace(source)
        key = secrets.token_urlsafe(_KEY_BYTES)
        page = PageServer(
            transport,
            gate=RequestGate(port=args.port, key=key),
            context=KubeconfigFacts(server=transport.host, namespace=namespace),
        )
        async with page.serving(args.port):
            address = f"http://{HOST}:{args.port}/?key={key}{_fragment(args.link)}"
            out.write(f"{address}\nserving {transport.host} until Ctrl-C\n")
            out.flush()
            if not args.no_browser:
                await asyncio.to_thread(webbrowser.open, address)
            await asyncio.Event().wait()
    finally:
        await transport.close()
    return 0


def _source(args: argparse.Namespace, environ: Mapping[str, str]) -> "Source":
    """Return where credentials come from: the files named, a local cluster that runs, the rest."""
    from shared.kube.sources import find_source
    from shared.runtime.clock import SystemClock

    cluster = None if args.kubeconfig else state.read(args.data_dir)
    is_up = cluster is not None and state.is_locked(args.data_dir)
    named = str(args.kubeconfig or (cluster.kubeconfig if cluster and is_up else ""))
    return find_source(named or None, context=args.context, clock=SystemClock(), environ=environ)


async def _transport(source: "Source") -> "HttpTransport":
    from shared.kube.transport import open_transport
    from shared.runtime.clock import SystemClock

    return await open_transport(
        source,
        user_agent=_USER_AGENT,
        max_connections=_CONNECTIONS,
        request_timeout_s=_ANSWER_S,
        clock=SystemClock(),
    )


async def _check(transport: "HttpTransport") -> None:
    """Read the API server's version: without a reachable server the page is useless.

    Raises LocalError. An HTTP error counts as reachable: the page shows it.
    """
    from shared.kube.errors import Unreachable
    from shared.kube.wire import Request
    from shared.runtime.errors import PumiceError

    try:
        await transport.exchange(Request(method="GET", path="/version"))
    except Unreachable as error:
        hint = "is the cluster up, and is it the one of this kubeconfig?"
        raise LocalError(f"{error}; {hint}") from error
    except PumiceError:
        return


def _namespace(source: "Source") -> str:
    from shared.kube.sources import KubeconfigSource, own_namespace

    return source.namespace if isinstance(source, KubeconfigSource) else own_namespace("")


def _fragment(link: str) -> str:
    """Return the place within the page that a link names."""
    _, mark, place = link.partition("#")
    return f"#{place}" if mark else f"#/{link.lstrip('/')}" * bool(link)
