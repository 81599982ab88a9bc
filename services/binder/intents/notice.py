"""Notice before an eviction: a pod may ask for a grace in which it saves a checkpoint.

The notice is an annotation of the pod with its time and the intent that evicts it. So a binder that
takes over an intent neither begins the grace again nor cuts it short, and the notice of an eviction
that was given up counts for no later one.
"""

import msgspec

from services.binder.intents.steps import PodSnapshot, Wait
from shared.api import time
from shared.contracts.messages import Victim


class GiveNotice(msgspec.Struct, frozen=True):
    """The next step is the patch of the notice, on the pod at this version."""

    rv: str


def notice(intent: str, *, now: float) -> str:
    """Return the text of a notice: time (RFC 3339) and intent."""
    return f"{time.format_seconds(now)} {intent}"


def notice_step(
    intent: str, victim: Victim, snapshot: PodSnapshot, *, now: float, most_s: float
) -> GiveNotice | Wait | None:
    """Return what precedes the eviction of a pod; None: nothing any more.

    A pod without a grace gets no notice, and one that ends, or is another, needs none.
    """
    if snapshot.uid != victim.uid or snapshot.foreign or snapshot.deleting or snapshot.finished:
        return None
    grace_s = min(snapshot.grace_s, most_s)
    if grace_s <= 0:
        return None
    given, _, by = snapshot.notice.partition(" ")
    since = time.read(given)
    if by != intent or since is None:
        return GiveNotice(snapshot.rv)
    left_s = since + grace_s - now
    return Wait(left_s) if left_s > 0 else None
