"""`pumice demo`: a cluster, and five gangs that run on it, shown live.

`story` is the run; `feed` brings the API server's watches, `model` folds them into a `Scene`,
`sentences` makes text of its moments, and `view` (a terminal) or `plain` (anything else) shows
them. All that is shown comes from the watches.
"""

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
