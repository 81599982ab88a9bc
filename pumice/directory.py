"""Where a local cluster is kept, and the files in it that say how to reach it.

The commands of the local cluster write them (`pumice.local`), and the client of events reads them:
it imports nothing else of Pumice.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

LOCK: Final = "holder.lock"
"""Locked by the holder for as long as it lives."""
STATE: Final = "state.json"
"""What runs where."""
USERS: Final = Path("nats", "users.json")
"""Password per NATS user."""

SUBSCRIBER: Final = "events"
"""The NATS user that every cluster has for subscribers."""


def default_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Return where a local cluster is kept unless told otherwise."""
    base = environ.get("XDG_STATE_HOME", "")
    home = Path(base) if Path(base).is_absolute() else Path.home() / ".local" / "state"
    return home / "pumice" / "local"
