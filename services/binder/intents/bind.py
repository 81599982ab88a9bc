"""Binding one pod: post, and when the answer leaves a doubt, read the pod (CA05, CA06, CA08).

Exactly once in effect: a pod that already is on the wanted node counts as bound, no matter
which process put it there. Giving up needs certainty: an unanswered post may have been executed, so
an intent only ends as failed after a read that shows the pod unbound. While the API server does not
answer at all, the intent waits.
"""

from services.binder.intents.steps import (
    ApiResponse,
    Get,
    PodSnapshot,
    ResponseKind,
    RetryDelays,
    Wait,
    ended,
)
from shared.contracts.messages import Bind, ItemOutcome, Result, Retry


def after_post(
    bind: Bind, reply: ApiResponse, *, attempt: int, delays: RetryDelays
) -> ItemOutcome | Get | Wait:
    """Return what follows the answer to the `attempt`-th post (from 1)."""
    if reply.kind is ResponseKind.DONE:
        return ended(bind, Result.BOUND, node=bind.node)
    if reply.kind is ResponseKind.GONE:
        return ended(bind, Result.GONE, message=reply.message)
    if reply.kind is ResponseKind.REFUSED:
        return ended(bind, Result.FAILED, retry=Retry.NEVER, message=reply.message)
    if reply.kind is ResponseKind.CONFLICT or delays.ends(attempt):
        return Get()
    return Wait(delays.wait_s(attempt, reply.retry_after_s))


def after_get(
    bind: Bind, reply: ApiResponse, *, attempt: int, delays: RetryDelays
) -> ItemOutcome | Wait:
    """Return what follows a read; after `Wait` comes the next post."""
    if reply.kind is ResponseKind.GONE:
        return ended(bind, Result.GONE, message=reply.message)
    if reply.kind is ResponseKind.REFUSED:
        return ended(bind, Result.FAILED, retry=Retry.NEVER, message=reply.message)
    if reply.snapshot is None:
        return Wait(delays.wait_s(attempt, reply.retry_after_s))
    result = outcome_of(bind, reply.snapshot)
    if result is None and delays.ends(attempt):
        return ended(
            bind,
            Result.FAILED,
            retry=Retry.LATER,
            message=f"not bound after {attempt} attempts",
        )
    return result or Wait(delays.wait_s(attempt, None))


def outcome_of(bind: Bind, snapshot: PodSnapshot) -> ItemOutcome | None:
    """Return how the bind ended given the pod as it is; None: it can still be bound."""
    if snapshot.uid != bind.uid:
        return ended(bind, Result.GONE, message=f"the name belongs to uid {snapshot.uid}")
    if snapshot.node == bind.node:
        return ended(bind, Result.BOUND, node=snapshot.node, rv=snapshot.rv)
    if snapshot.node:
        return ended(bind, Result.CONFLICT, node=snapshot.node, rv=snapshot.rv)
    if snapshot.deleting:
        message = "the pod is being deleted"
        return ended(bind, Result.FAILED, retry=Retry.NEVER, message=message)
    if snapshot.foreign:
        message = f"not a pod of a gang of ours: {snapshot.foreign}"
        return ended(bind, Result.FAILED, retry=Retry.NEVER, message=message)
    return None
