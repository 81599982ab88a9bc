"""Steps of binding one pod: post, and read the pod if the result is unclear (CA05, CA06, CA08).

Pure. A bind is idempotent: a pod that is already on its node counts as bound, whichever process
bound it. A post without a response may have been executed, so a bind fails only after a read that
shows the pod unbound. While the API server does not respond at all, the bind waits.
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
    """Return the next step after the response to post number `attempt` (from 1)."""
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
    """Return the next step after a read; after a `Wait` the caller posts again."""
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
    """Return the outcome of the bind for a pod in this state; None if it can still be bound."""
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
