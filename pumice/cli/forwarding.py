"""`pumice events --webhook URL`: sends events to an HTTP address instead of printing them.

It follows the stream, writes the sequence of the last delivered event to a file, and resumes there
when it is started again. Events that the stream no longer keeps are skipped with a message.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing

from pumice.directory import default_directory
from pumice.events import EventsError, PositionGone, Received, Server
from pumice.events.client import Connection, subscribe_at
from pumice.events.webhook import (
    DeliveryMark,
    DeliveryMode,
    MarkFile,
    Webhook,
    check_writable,
    headers_in,
    state_file,
)


async def forward(
    args: argparse.Namespace,
    where: Callable[[], Server],
    *,
    wanted: Callable[[Received], bool],
    on_connection: Connection,
    environ: Mapping[str, str] = os.environ,
) -> None:
    """Send the selected events until the process ends. Raises EventsError."""
    if not args.webhook.startswith(("http://", "https://")):
        raise EventsError(f"--webhook: {args.webhook!r} is no http or https address")
    folder = default_directory(environ).parent / "webhooks"
    path = args.state or state_file(args.webhook, folder)
    check_writable(path)
    file = MarkFile(path)
    webhook = Webhook(
        args.webhook,
        mode=DeliveryMode(args.mode),
        headers=headers_in(args.header_file) if args.header_file else {},
        report=_log,
    )
    mark = file.read()
    if mark is None:
        mark = DeliveryMark(since=time.time() - (args.since or 0.0))  # noqa: TID251 - asked for by "ago"
        file.write(mark)
    while True:
        events = subscribe_at(
            where,
            start=mark.start,
            types=args.type,
            namespace=args.namespace,
            on_connection=on_connection,
        )
        try:
            async with aclosing(events) as stream:
                await webhook.deliver(stream, file=file, wanted=wanted)
        except PositionGone as exc:
            _log(f"{exc}; going on with that")
            mark = DeliveryMark(sequence=max(0, exc.oldest - 1))


def _log(message: str) -> None:
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()
