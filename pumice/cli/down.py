"""Stop the local cluster; with --purge, remove its data, logs and credentials too.

Only what `pumice up` made is removed. Other files in the data directory stay, and are named.
"""

import argparse
import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Final

from pumice.cli.data_directory import add_data_directory
from pumice.local import layout, state
from pumice.local.errors import LocalError

_STOP_S: Final = 45.0
_LOOK_S: Final = 0.1
_NAMED: Final = 5
"""As many files that stay are named."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--purge",
        action="store_true",
        help="remove data, logs and credentials that `pumice up` made",
    )
    add_data_directory(parser)


async def run(args: argparse.Namespace) -> int:
    """Stop what runs; nothing running is no error."""
    directory: Path = args.data_dir
    now = state.read(directory)
    if now is not None and state.is_locked(directory):
        await _stop(directory, now.pid)
        print("stopped")
    else:
        print(f"nothing runs in {directory}")
    if args.purge:
        await asyncio.to_thread(_purge, directory)
    return 0


async def _stop(directory: Path, pid: int) -> None:
    """Stop the holder process with SIGTERM, and kill it (and all its children) after a timeout."""
    os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + _STOP_S  # noqa: TID251 - no clock is handed to a command
    while state.is_locked(directory):
        if time.monotonic() > end:  # noqa: TID251
            os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(_LOOK_S)


def _purge(directory: Path) -> None:
    if not directory.exists():
        return
    if not layout.is_signed(directory):
        raise LocalError(f"{directory} was not made by `pumice up`: not removed")
    with state.stopped(directory):
        purged = layout.purge(directory)
    print(f"removed {directory if purged.gone else f'what `pumice up` made in {directory}'}")
    if purged.left:
        more = len(purged.left) - _NAMED
        print(
            f"left what is not of it: {', '.join(purged.left[:_NAMED])}"
            f"{f' and {more} more' if more > 0 else ''}"
        )
