"""The data directory of a local cluster, and the files in it that say how to reach the cluster.

`pumice.local` writes these files, and `pumice.events` reads them to find the server. This module
is apart because `pumice.events` imports nothing else of Pumice.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

LOCK: Final = "holder.lock"
"""Locked by the holder for as long as it lives."""
STATE: Final = "state.json"
"""The running programs and their addresses."""
USERS: Final = Path("nats", "users.json")
"""Password per NATS user."""

SUBSCRIBER: Final = "events"
"""The NATS user that every cluster has for subscribers."""


def default_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the default data directory of a local cluster."""
    base = environ.get("XDG_STATE_HOME", "")
    home = Path(base) if Path(base).is_absolute() else Path.home() / ".local" / "state"
    return home / "pumice" / "local"
