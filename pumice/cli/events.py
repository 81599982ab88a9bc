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
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Final, TextIO

import msgspec

from pumice.cli.connection import add_connection, server_of
from pumice.events import (
    CATALOGUE,
    ClusterGone,
    Event,
    EventsError,
    PositionGone,
    Received,
    Server,
    Since,
    Start,
    Unknown,
)
from pumice.events.client import subscribe_at

_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_LAST_S: Final = 60.0
"""`--follow` begins with the events of this time, which led to the coming ones."""
_QUIET: Final = frozenset({"uid", "queue", "version", "retryCount"})
"""Fields that a line for people leaves out."""

EPILOG: Final = "types: " + ", ".join(each.topic for each in CATALOGUE)


def add_arguments(parser: argparse.ArgumentParser, environ: Mapping[str, str] = os.environ) -> None:
    """Add the command's flags; the connection's defaults come from `environ`."""
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what comes")
    start = parser.add_mutually_exclusive_group()
    start.add_argument(
        "--since",
        type=_duration,
        metavar="10m",
        help="begin that long ago (s, m, h or d); with --follow: 1m",
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
    parser.add_argument(
        "--job", default="", metavar="JOB", help="only what concerns this Job: NAME or NS/NAME"
    )
    parser.add_argument("--queue", default="", help="only jobs, gangs and pods of this queue")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    add_connection(parser, environ)
    _add_forwarding(parser)
    parser.epilog = EPILOG


def _add_forwarding(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("sending to an HTTP address")
    group.add_argument("--webhook", default="", metavar="URL", help="send events there, in order")
    group.add_argument(
        "--mode",
        choices=("structured", "binary"),
        default="structured",
        help="structured: the CloudEvent is the body; binary: its attributes are headers",
    )
    group.add_argument(
        "--header-file", type=Path, metavar="FILE", help="lines `Name: value` for each request"
    )
    group.add_argument(
        "--state",
        type=Path,
        metavar="FILE",
        help="where the place is kept (default: a file per URL beside the local cluster's data)",
    )


async def run(
    args: argparse.Namespace, *, environ: Mapping[str, str] = os.environ, out: TextIO = sys.stdout
) -> int:
    """Print events; return the exit code (1 with one line on stderr when it cannot continue)."""
    try:
        await _serve(args, lambda: server_of(args, environ), environ=environ, out=out)
    except BrokenPipeError:
        raise  # `pumice events | head -1`: the program ends as every command does then
    except ClusterGone as exc:
        sys.stderr.write(f"{exc}\n")
    except PositionGone as exc:
        return _fail(f"{exc}; go on with --seq {exc.oldest}")
    except (EventsError, OSError) as exc:
        return _fail(str(exc))
    return 0


def _fail(reason: str) -> int:
    sys.stderr.write(f"error: {reason}\n")
    return 1


async def _serve(
    args: argparse.Namespace,
    where: Callable[[], Server],
    *,
    environ: Mapping[str, str],
    out: TextIO,
) -> None:
    if not args.webhook:
        await _print(args, where, out=out)
        return
    # Imported where it is used: printing needs no client for HTTP.
    from pumice.cli.forwarding import forward

    await forward(
        args,
        where,
        wanted=lambda received: _matches(args, received),
        on_connection=_note,
        environ=environ,
    )


def _matches(args: argparse.Namespace, received: Received) -> bool:
    data = received.event.data
    return is_about(args.job, data.about_job) and args.queue in ("", getattr(data, "queue", ""))


def is_about(job: str, key: str) -> bool:
    """Return whether a key is that of the selected job, in any namespace if none is given."""
    return job in ("", key) or ("/" not in job and key.endswith(f"/{job}"))


async def _print(args: argparse.Namespace, where: Callable[[], Server], *, out: TextIO) -> None:
    try:
        await _print_from(args, where, _start(args), out=out)
    except PositionGone as exc:
        if args.seq is not None or args.since is not None:
            raise
        # The last minute was not requested, and not all of it is stored.
        _note(is_there=True, words=f"{exc}; going on with that")
        await _print_from(args, where, Start(exc.oldest), out=out)


def _start(args: argparse.Namespace) -> Start | Since | None:
    """Return where to begin: a follower without `--since` begins with the last minute."""
    if args.seq is not None:
        return Start(args.seq)
    ago_s = args.since
    if ago_s is None and args.follow:
        ago_s = _LAST_S
    if ago_s is None:
        return None
    return Since(time.time() - ago_s)  # noqa: TID251 - what the person means by "ago"


def _note(*, is_there: bool, words: str) -> None:  # noqa: ARG001 - the words say it
    sys.stderr.write(f"{words}\n")
    sys.stderr.flush()


async def _print_from(
    args: argparse.Namespace,
    where: Callable[[], Server],
    start: Start | Since | None,
    *,
    out: TextIO,
) -> None:
    events = subscribe_at(
        where,
        start=start,
        types=args.type,
        namespace=args.namespace,
        follow=args.follow,
        on_connection=_note,
    )
    show = as_json if args.output == "json" else as_text
    async with aclosing(events) as stream:
        async for received in stream:
            if _matches(args, received):
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
