"""Tell what would happen: to a job that is not submitted yet, with another queue, or other nodes.

FILE holds a Job, a Queue as it would be, both, or a WhatIf; `-` is stdin. Nothing in the cluster is
changed. With --fairshare, recorded jobs are replayed (docs/fair-share.md). Exit code 3 when the job
would not start now; all codes are in docs/cli.md.
"""

import argparse
import sys
from pathlib import Path
from typing import Any, Final

import msgspec

from pumice.cli import replay_week
from pumice.local.errors import WrongSettingError
from pumice.queries import text
from pumice.queries.client import NEGATIVE_RESULT, QueryClient
from pumice.queries.output import add_output, add_target, connected, show
from shared.api.visibility import API_VERSION, WhatIfStatus

_FIELDS: Final = {"Job": "job", "Queue": "queue"}
_KINDS: Final = {field: kind for kind, field in _FIELDS.items()}
_STDIN: Final = "-"
_AMOUNTS: Final = {
    "capability": "most that it may use",
    "deserved": "beyond which others may reclaim",
    "guarantee": "that only it may use",
}
"""Amounts that a queue states, and the meaning of each."""


class _WhatIfReply(msgspec.Struct, frozen=True):
    """The result of a WhatIf."""

    status: WhatIfStatus | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.add_argument("-f", "--filename", metavar="FILE", help="YAML or JSON")
    parser.add_argument(
        "--drain", action="append", default=[], metavar="NODE", help="without this node; repeatable"
    )
    parser.add_argument("--add-nodes", type=int, default=0, metavar="N", help="with N nodes more")
    parser.add_argument("--like", default="", metavar="NODE", help="which those are like")
    parser.add_argument(
        "--shapes",
        default="",
        metavar="FILE",
        help="with the fewest nodes like these Nodes by which the job of -f starts",
    )
    parser.add_argument(
        "--change-queue", default="", metavar="QUEUE", help="with other figures for this queue"
    )
    parser.add_argument("--weight", type=int, metavar="N", help="of that queue")
    for name, what in _AMOUNTS.items():
        parser.add_argument(
            f"--{name}", default="", metavar="RESOURCE=AMOUNT,...", help=f"of that queue: {what}"
        )
    parser.add_argument(
        "--fairshare",
        default="",
        metavar="half-life=14d",
        help="with another half-life of past usage: replays what --database has recorded",
    )
    replay_week.add_record_arguments(parser, required=False)
    add_target(parser)
    add_output(parser, stored=False)


async def run(args: argparse.Namespace) -> int:
    """Post the WhatIf and print its result. Raises WrongSettingError for an empty one."""
    if args.fairshare:
        return await _with_half_life(args)
    spec, namespace = question(args)
    args.namespace = args.namespace or namespace
    body = {"apiVersion": API_VERSION, "kind": "WhatIf", "metadata": {}, "spec": spec}

    def render(raw: bytes, now_s: float) -> tuple[str, int]:
        status = msgspec.json.decode(raw, type=_WhatIfReply).status
        if status is None:
            return "no answer came\n", 1
        of_job = "job" in spec
        words = text.what_if(status, now_s, of_job=of_job)
        return words, NEGATIVE_RESULT if of_job and not status.starts_now else 0

    return await show(args, lambda client: client.create("whatifs", body), render)


async def _with_half_life(args: argparse.Namespace) -> int:
    """Replay recorded jobs on the present nodes and queues, with the present half-life and another.

    Raises WrongSettingError for unusable settings.
    """
    if not args.database or args.conf is None:
        raise WrongSettingError("--fairshare goes with --database URL and --conf FILE")
    replay_week.half_life(args.fairshare)
    try:
        present = args.conf.read_text("utf-8")
    except OSError as error:
        raise WrongSettingError(str(error)) from error

    from shared.api.kinds import NODE, QUEUE  # no other question needs them

    async def compare(client: QueryClient) -> int:
        objects = [
            (kind, each) for kind in (NODE, QUEUE) for each in await client.listed(kind.path())
        ]
        return await replay_week.compare_replays(args, objects, baseline=present)

    return await connected(args, compare)


def question(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Return the spec of the question and the namespace that its job names.

    Raises WrongSettingError.
    """
    spec, namespace = _of_file(args.filename) if args.filename else ({}, "")
    if args.drain:
        spec["drainNodes"] = args.drain
    if bool(args.add_nodes) != bool(args.like):
        raise WrongSettingError("--add-nodes N goes with --like NODE")
    if args.add_nodes < 0:
        raise WrongSettingError(f"--add-nodes {args.add_nodes} adds no nodes; --drain NODE removes")
    if args.like:
        spec["addNodes"] = [{"count": args.add_nodes, "like": args.like}]
    if args.shapes:
        spec["shapes"] = _shapes(args.shapes)
        if "job" not in spec:
            raise WrongSettingError("--shapes FILE goes with -f FILE of a Job")
    if change := _queue_change(args):
        spec["changeQueue"] = change
    if not spec:
        raise WrongSettingError(
            "give a job with -f FILE, or --drain NODE, --add-nodes N or --change-queue QUEUE"
        )
    return spec, namespace


def _of_file(file: str) -> tuple[dict[str, Any], str]:
    """Return the spec in a file and the namespace of its job. Raises WrongSettingError."""
    spec: dict[str, Any] = {}
    namespace = ""
    for document in _documents(file):
        kind = document.get("kind")
        if kind == "WhatIf":
            request = document.get("spec") or {}
        elif kind in _FIELDS:
            request = {_FIELDS[kind]: document}
        else:
            raise WrongSettingError(f"{file}: kind {kind} is no Job, Queue or WhatIf")
        if twice := spec.keys() & request.keys():
            what = _KINDS.get(min(twice), min(twice))
            raise WrongSettingError(f"{file} holds more than one {what}: ask about one at a time")
        spec |= request
        named = (document.get("metadata") or {}).get("namespace") or ""
        namespace = "" if kind == "Queue" else named
    return spec, namespace


def _shapes(file: str) -> list[dict[str, Any]]:
    """Return the Nodes of a file. Raises WrongSettingError."""
    found = _documents(file)
    for document in found:
        if document.get("kind") != "Node":
            raise WrongSettingError(f"{file}: kind {document.get('kind')} is no Node")
    if not found:
        raise WrongSettingError(f"{file} holds no Node")
    return found


def _queue_change(args: argparse.Namespace) -> dict[str, Any]:
    """Return what changes of a queue, empty without a queue. Raises WrongSettingError."""
    change: dict[str, Any] = {} if args.weight is None else {"weight": args.weight}
    change |= {name: _amounts(name, words) for name in _AMOUNTS if (words := getattr(args, name))}
    if bool(change) != bool(args.change_queue):
        flags = ", ".join(f"--{name}" for name in _AMOUNTS)
        raise WrongSettingError(f"--change-queue QUEUE goes with --weight, {flags}")
    return {"name": args.change_queue, **change} if change else {}


def _amounts(flag: str, words: str) -> dict[str, str]:
    """Return the amounts of `cpu=1,memory=2Gi`, which the server checks.

    Raises WrongSettingError for what has no such form.
    """
    found = {}
    for pair in words.split(","):
        resource, equals, amount = pair.partition("=")
        if not (resource and equals and amount):
            raise WrongSettingError(f"--{flag} {words}: {pair!r} is no RESOURCE=AMOUNT")
        found[resource] = amount
    return found


def _documents(file: str) -> list[dict[str, Any]]:
    """Return the objects of a file. Raises WrongSettingError."""
    import yaml  # `pumice what-if --help` needs none

    try:
        content = sys.stdin.read() if file == _STDIN else Path(file).read_text(encoding="utf-8")
        found = [each for each in yaml.safe_load_all(content) if each is not None]
    except OSError as error:
        raise WrongSettingError(f"{file}: {(error.strerror or 'no such file').lower()}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise WrongSettingError(f"{file}: {' '.join(str(error).split())}") from error
    if not all(isinstance(each, dict) for each in found):
        raise WrongSettingError(f"{file} holds no object of Kubernetes")
    return found
