"""The flag `--data-dir` of the commands for a local cluster, and the lines about its events."""

import argparse
from pathlib import Path

from pumice.directory import SUBSCRIBER, USERS, default_directory
from pumice.local.state import State


def add_data_directory(parser: argparse.ArgumentParser) -> None:
    """Add `--data-dir`, which names a local cluster."""
    parser.add_argument(
        "--data-dir",
        type=directory,
        default=default_directory(),
        metavar="DIR",
        help="where the cluster is kept (default %(default)s)",
    )


def directory(text: str) -> Path:
    """Read the name of a directory."""
    return Path(text).absolute()


def events_hint(now: State, directory: Path) -> list[str]:
    """Return how to read the events of a local cluster: a line to paste, and the connection."""
    own = "" if directory == default_directory() else f" --data-dir {directory}"
    return [
        f"events:   pumice events --follow{own}",
        f"          (NATS {now.nats}, user {SUBSCRIBER}, password in {directory / USERS})",
    ]
