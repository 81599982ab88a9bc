"""Print one job's life as a tree: when it was posted, admitted, placed, bound, running and done.

Each line has a moment and a duration; waits and evictions come with their reasons. The tree is made
from the events on NATS, which are kept for seven days, and from the job's objects if there is an
API server to ask. Exit code 0, or 1 with one line on stderr when nothing is known of the job.
"""

import argparse
import difflib
import os
import sys
import time
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Final, TextIO

from pumice.cli.connection import add_connection, server_of
from pumice.events import CloudEvent, Event, EventsError
from pumice.events.client import subscribe_at
from pumice.local import state
from pumice.local.errors import LocalError
from pumice.trace.text import as_json, as_text
from shared.trace import NOTHING, Objects, cut_off, trace

_PODS_MOST: Final = 20
_USER_AGENT: Final = "pumice-trace"
_ANSWER_S: Final = 10.0


def add_arguments(parser: argparse.ArgumentParser, environ: Mapping[str, str] = os.environ) -> None:
    """Add the command's flags; the connection's defaults come from `environ`."""
    parser.add_argument("job", metavar="JOB", help="name of a Job, or NAMESPACE/NAME")
    parser.add_argument(
        "-n", "--namespace", default="", help="its namespace (default: the context's)"
    )
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    parser.add_argument(
        "--pods",
        type=int,
        default=_PODS_MOST,
        metavar="N",
        help="show at most N pods (default %(default)s; 0: all); json has all",
    )
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="API server (default: the local cluster's, $KUBECONFIG, ~/.kube/config)",
    )
    add_connection(parser, environ)


async def run(
    args: argparse.Namespace, *, environ: Mapping[str, str] = os.environ, out: TextIO = sys.stdout
) -> int:
    """Print the tree; return the exit code. Raises LocalError with one line for a person."""
    namespace, name = named(args, environ)
    objects, failure = await _objects(args, namespace, name)
    events = await _events(args, environ, namespace)
    key = f"{namespace}/{name}"
    root = trace(key, events, objects)
    if root is None:
        raise LocalError(_unknown(key, events, failure))
    if not failure and objects is NOTHING and root.end is None:
        root = cut_off(root)  # no event says that a Job was deleted
    if failure:
        sys.stderr.write(f"from events alone: {failure}\n")
    now_s = time.time()  # noqa: TID251 - how long an unfinished part has lasted for a person
    words = as_json(root) if args.output == "json" else as_text(root, now_s, pods_most=args.pods)
    out.write(f"{words}\n")
    return 0


def named(args: argparse.Namespace, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return namespace and name of the job that is meant. Raises LocalError."""
    namespace, _, name = args.job.rpartition("/")
    if namespace and args.namespace and namespace != args.namespace:
        raise LocalError(f"{args.job} is not in namespace {args.namespace}: give one of the two")
    return namespace or args.namespace or _of_context(args, environ) or "default", name


def _kubeconfig(args: argparse.Namespace) -> str:
    """Return the kubeconfig that is named, or that of the local cluster; "" for the usual ones."""
    cluster = None if args.nats else state.read(args.data_dir)
    return str(args.kubeconfig or (cluster.kubeconfig if cluster else ""))


def _of_context(args: argparse.Namespace, environ: Mapping[str, str]) -> str:
    """Return the namespace of the kubeconfig's context, "" without one."""
    from shared.kube.sources import KubeconfigSource, find_source
    from shared.runtime.clock import SystemClock
    from shared.runtime.errors import PumiceError

    file = _kubeconfig(args) or environ.get("KUBECONFIG")
    try:
        source = find_source(file, context=None, clock=SystemClock(), environ=environ)
    except PumiceError:
        return ""
    return source.namespace if isinstance(source, KubeconfigSource) else ""


async def _events(
    args: argparse.Namespace, environ: Mapping[str, str], namespace: str
) -> list[CloudEvent]:
    """Return the events of a namespace that the stream still has. Raises LocalError."""
    try:
        server = server_of(args, environ)
    except EventsError as error:
        raise LocalError(str(error)) from error
    stream = subscribe_at(lambda: server, namespace=namespace, follow=False)
    try:
        async with aclosing(stream) as received:
            return [each.event async for each in received]
    except (EventsError, OSError) as error:
        hint = "is `pumice status` ready? Another server: --nats URL, or --data-dir DIR"
        raise LocalError(f"{error}; {hint}") from error


async def _objects(args: argparse.Namespace, namespace: str, name: str) -> tuple[Objects, str]:
    """Return the job's objects, and the error of the API server, "" without one."""
    # Imported where it is used: `pumice trace --help` needs no services.
    from pumice.trace.objects import objects_of
    from shared.kube.config import connect
    from shared.runtime.errors import PumiceError

    try:
        kube = await connect(
            _kubeconfig(args) or None, user_agent=_USER_AGENT, request_timeout_s=_ANSWER_S
        )
        async with kube:
            return await objects_of(kube, namespace, name), ""
    except PumiceError as error:
        if args.kubeconfig:
            raise
        return NOTHING, str(error)


def _unknown(key: str, events: list[CloudEvent], failure: str) -> str:
    """Return the error message for a job without events and objects, with a hint."""
    objects_note = (
        f"the API server could not be asked ({failure})" if failure else "there is no such Job"
    )
    known = sorted({job for job in map(_job, events) if job})
    near = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {near[0]}?" if near else "see `kubectl get vcjob -A` for those there are"
    return f"nothing is known of Job {key}: {objects_note}, and no event of it is kept; {hint}"


def _job(event: CloudEvent) -> str:
    data: Event = event.data
    return data.about_job
