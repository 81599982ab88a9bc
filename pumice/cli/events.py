"""Print what happened, and with --follow what happens.

Without --follow it prints the events that are kept and ends. One line per event for people, one
JSON object per line for programs. It reads the local cluster unless --nats names a server.
"""

import argparse
import datetime as dt
import json
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Final, TextIO

import msgspec

from pumice.cli.up import data_directory
from pumice.events import (
    CATALOGUE,
    Event,
    EventsError,
    PositionGone,
    Received,
    Since,
    Start,
    Unknown,
    subscribe,
)
from pumice.local import state
from pumice.local.errors import LocalError

_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_QUIET: Final = frozenset({"uid", "queue", "version", "retryCount"})
"""Fields that a line for people leaves out."""

EPILOG: Final = "types: " + ", ".join(each.topic for each in CATALOGUE)


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """Where the events are and who asks."""

    url: str
    user: str
    password: str


def add_arguments(parser: argparse.ArgumentParser, environ: Mapping[str, str] = os.environ) -> None:
    """Add the command's flags; the connection's defaults come from `environ`."""
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what comes")
    start = parser.add_mutually_exclusive_group()
    start.add_argument(
        "--since", type=_duration, metavar="10m", help="begin that long ago (s, m, h or d)"
    )
    start.add_argument("--seq", type=int, metavar="N", help="begin with the event of this sequence")
    parser.add_argument(
        "--type",
        action="append",
        default=[],
        type=_event_type,
        metavar="TYPE",
        help="only this type, for example gang.placed; may be repeated",
    )
    parser.add_argument("-n", "--namespace", default="", help="only objects of this namespace")
    parser.add_argument("--job", default="", metavar="NS/NAME", help="only what concerns this Job")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    parser.add_argument(
        "--nats",
        default=environ.get("PUMICE_NATS", ""),
        metavar="URL",
        help="NATS server (default: the local cluster's)",
    )
    parser.add_argument("--cluster", default=environ.get("PUMICE_CLUSTER", "local"))
    parser.add_argument("--nats-user", default=environ.get("PUMICE_NATS_USER", ""))
    parser.add_argument(
        "--nats-password-file",
        default=environ.get("PUMICE_NATS_PASSWORD_FILE", ""),
        help="file with the password; else the environment's PUMICE_NATS_PASSWORD",
    )
    data_directory(parser)
    parser.epilog = EPILOG


async def run(
    args: argparse.Namespace, *, environ: Mapping[str, str] = os.environ, out: TextIO = sys.stdout
) -> int:
    """Print events; return the exit code (1 with one line on stderr when it cannot go on)."""
    try:
        await _print(args, _server(args, environ), out=out)
    except PositionGone as exc:
        return _fail(f"{exc}; go on with --seq {exc.oldest}")
    except (EventsError, LocalError, OSError) as exc:
        return _fail(str(exc))
    return 0


def _fail(reason: str) -> int:
    sys.stderr.write(f"error: {reason}\n")
    return 1


async def _print(args: argparse.Namespace, server: Server, *, out: TextIO) -> None:
    start: Start | Since | None = None
    if args.seq is not None:
        start = Start(args.seq)
    elif args.since is not None:
        start = Since(time.time() - args.since)  # noqa: TID251 - what the person means by "ago"
    events = subscribe(
        server.url,
        user=server.user,
        password=server.password,
        cluster=args.cluster,
        start=start,
        types=args.type,
        namespace=args.namespace,
        follow=args.follow,
    )
    show = as_json if args.output == "json" else as_text
    async with aclosing(events) as stream:
        async for received in stream:
            if args.job in ("", received.event.data.about_job):
                out.write(show(received) + "\n")
                out.flush()


def as_json(received: Received) -> str:
    """Return an event as one line: its place and the CloudEvent."""
    event = received.event
    line = {
        "sequence": received.sequence,
        "id": event.id,
        "source": event.source,
        "type": event.type,
        "subject": event.subject,
        "time": event.time.isoformat().replace("+00:00", "Z"),
        "data": _fields(event.data),
    }
    return json.dumps(line, ensure_ascii=False)


def as_text(received: Received) -> str:
    """Return an event as one line for a person, in local time."""
    event = received.event
    clock = event.time.astimezone().strftime("%H:%M:%S.%f")[:-3]
    topic = event.type.removeprefix("io.pumice.") or "unreadable"
    fields = _fields(event.data)
    words = [
        f"{name}={_shown(value)}"
        for name, value in fields.items()
        if name not in _QUIET and value not in ("", 0, [], {}, event.subject)
    ]
    return (
        f"{clock}  {received.sequence:>6}  {topic:<18} {event.subject}  {' '.join(words)}".rstrip()
    )


def _fields(data: Event) -> dict[str, object]:
    if isinstance(data, Unknown):
        text = data.raw.decode("utf-8", "replace")
        return {"problem": data.problem, "raw": text} if data.problem else {"raw": text}
    fields: dict[str, object] = msgspec.to_builtins(data)
    return fields


def _shown(value: object) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(str(each) for each in value)
    if isinstance(value, Mapping):
        return "; ".join(f"{count} x {reason}" for reason, count in value.items())
    text = str(value)
    return f'"{text}"' if " " in text else text


def _server(args: argparse.Namespace, environ: Mapping[str, str]) -> Server:
    """Return the server that was named, or the local cluster's with its user for subscribers."""
    if args.nats:
        password = environ.get("PUMICE_NATS_PASSWORD", "")
        if args.nats_password_file:
            password = Path(args.nats_password_file).read_text().strip()
        return Server(url=args.nats, user=args.nats_user, password=password)
    directory: Path = args.data_dir
    now = state.read(directory)
    if now is None or not now.nats:
        raise LocalError(f"nothing runs in {directory}: start it with `pumice up`, or give --nats")
    passwords = msgspec.json.decode((directory / "nats" / "users.json").read_bytes())
    return Server(url=now.nats, user="events", password=passwords["events"])


def _duration(text: str) -> float:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration (write it like 90s, 10m, 2h)")
    seconds = float(match[1]) * _UNITS[match[2]]
    return dt.timedelta(seconds=seconds).total_seconds()


def _event_type(text: str) -> type[Event]:
    for each in CATALOGUE:
        if text in (each.topic, each.__name__, f"io.pumice.{each.topic}"):
            return each
    known = ", ".join(each.topic for each in CATALOGUE)
    raise argparse.ArgumentTypeError(f"{text!r} is not a type of event; there are {known}")
