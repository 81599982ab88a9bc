"""The options of the demo. Imports nothing heavy: the command line starts with it."""

from typing import Final, Literal

import msgspec

DEADLINE_S: Final = 90.0


class DemoOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One run's choices."""

    api: Literal["embedded", "real"] = "embedded"
    """API server that it runs on."""
    plain: bool = False
    """Plain lines even on a terminal."""
    deadline_s: float = DEADLINE_S
    """When it is given up, counted from the moment that the cluster is up."""
