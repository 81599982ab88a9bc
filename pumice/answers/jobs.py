"""Answers about jobs: why they wait and when they start, decoded and told. Pure."""

from collections.abc import Callable

import msgspec

from pumice.answers import text
from pumice.answers.asking import NO
from pumice.answers.lists import Items
from shared.api.visibility import Explanation, PendingJob, Timeline

Told = tuple[str, int]


def why(raw: bytes, now_s: float) -> Told:
    """Tell why one job waits."""
    return text.explanation(msgspec.json.decode(raw, type=Explanation), now_s), 0


def when(raw: bytes, now_s: float) -> Told:
    """Tell when one job starts; exit code 3 when that is not known."""
    found = msgspec.json.decode(raw, type=PendingJob)
    return text.when(found, now_s), 0 if text.is_known(found.expected_start) else NO


def line(*, everywhere: bool, wide: bool) -> Callable[[bytes, float], Told]:
    """Return the teller of a list of jobs that wait."""

    def tell(raw: bytes, now_s: float) -> Told:
        jobs = msgspec.json.decode(raw, type=Items[PendingJob]).items
        return text.pending(jobs, now_s, everywhere=everywhere, wide=wide), 0

    return tell


def timeline(raw: bytes, now_s: float) -> Told:
    """Tell the life of one job."""
    return text.timeline(msgspec.json.decode(raw, type=Timeline), now_s), 0
