"""Stop the local cluster; with --purge, remove its data directory too."""

import argparse
import asyncio
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Final

from pumice.cli.up import data_directory
from pumice.local import state
from pumice.local.errors import LocalError

_STOP_S: Final = 45.0
_LOOK_S: Final = 0.1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--purge", action="store_true", help="remove data, logs and credentials")
    data_directory(parser)


async def run(args: argparse.Namespace) -> int:
    """Stop what runs; nothing running is no error."""
    directory: Path = args.data_dir
    now = state.read(directory)
    if now is not None and state.is_held(directory):
        await _stop(directory, now.pid)
        print("stopped")
    else:
        print(f"nothing runs in {directory}")
    if args.purge:
        await asyncio.to_thread(_purge, directory)
    return 0


async def _stop(directory: Path, pid: int) -> None:
    """Ask the holder to stop, and kill it (and with it everything) if it does not."""
    os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + _STOP_S  # noqa: TID251 - no clock is handed to a command
    while state.is_held(directory):
        if time.monotonic() > end:  # noqa: TID251
            os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(_LOOK_S)


def _purge(directory: Path) -> None:
    if not directory.exists():
        return
    if not state.is_data_directory(directory):
        raise LocalError(f"{directory} was not made by `pumice up`: not removed")
    shutil.rmtree(directory)
    print(f"removed {directory}")
