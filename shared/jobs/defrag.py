"""Approved moves of pods, as the queue `root` states them (`pumice.dev/defrag`).

The text is the time until which they may be made (RFC 3339) and the uids of the pods, separated by
commas: `2026-01-01T00:10:00Z 5f…,8c…`. `pumice defrag --apply` writes it, the scheduler reads it.
"""

from collections.abc import Iterable
from typing import Final

from shared.api import time as times

MOVES_MAX: Final = 500
"""Pods of one approval."""
APPROVAL_S: Final = 300
"""For how long an approval counts at most."""


def approval(uids: Iterable[str], *, now: float) -> str:
    """Return the text that approves moves from `now`, in Unix seconds."""
    return f"{times.format_seconds(now + APPROVAL_S)} {','.join(uids)}"


def approval_of(text: str, *, now: float) -> tuple[str, ...]:
    """Return the uids that a text approves now; none if it has expired or cannot be read."""
    until, _, uids = text.partition(" ")
    end = times.read(until)
    if end is None or not now < end <= now + 2 * APPROVAL_S:
        return ()
    return tuple(uid for uid in uids.split(",")[:MOVES_MAX] if uid)
