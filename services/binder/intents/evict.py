"""Evicting: nominate the preemptor, then per victim the conditions, then the delete (D03, CA07).

Deviates from D03 (ADR 4): a running victim without a deletionTimestamp is always deleted, even if
it has the conditions already. Otherwise a crash between the two requests would leave it terminating
forever. Victims are spared when the preemptor needs no room any more.

A finished pod is spared, too: it occupies nothing, and its result must not be lost. A binder that
was frozen may execute an intent minutes after the decision. So each write names the
resourceVersion of a read that showed the pod running. The API server refuses the write if the pod
has changed, and the pod is read again.

The read also shows whether the pod belongs to a gang of our scheduler names. If not, nothing is
written to it.
"""

import enum
from typing import Any

import msgspec

from services.binder.intents.steps import (
    ApiResponse,
    Get,
    PodSnapshot,
    ResponseKind,
    RetryDelays,
    Wait,
    ended,
)
from shared.contracts.messages import ItemOutcome, Preemptor, Result, Retry, Victim

DISRUPTION_TARGET = "DisruptionTarget"
PREEMPTION_REASON = "PreemptionByScheduler"
EVICT_REASON = "Evict"


class Nomination(enum.Enum):
    """Consequence of a nomination for the victims."""

    PROCEED = "proceed"
    SPARE = "spare"
    FAIL = "fail"


class PatchConditions(msgspec.Struct, frozen=True):
    """The next step is the patch of the conditions, of the pod at this version."""

    rv: str


class Delete(msgspec.Struct, frozen=True):
    """The next step is the delete, of the pod at this version."""

    rv: str


def nomination(preemptor: Preemptor, scheduler: str) -> list[dict[str, Any]]:
    """Return the JSON patch of the preemptor (SS11 ⚠: only when evictions come with it).

    It holds for a pod of the uid and of that schedulerName; the API server refuses it for others.
    """
    return [
        {"op": "test", "path": "/metadata/uid", "value": preemptor.uid},
        {"op": "test", "path": "/spec/schedulerName", "value": scheduler},
        {"op": "add", "path": "/status/nominatedNodeName", "value": preemptor.node},
    ]


def after_nomination(
    reply: ApiResponse, *, attempt: int, delays: RetryDelays
) -> Nomination | Get | Wait:
    """Return what follows the response to the nomination.

    A preemptor that is bound or being deleted needs no room: its victims are spared, as if it were
    gone. The API server refuses to nominate a bound pod, one of another uid and one of another
    scheduler, so a refusal needs a read of the pod. No room is made for a pod of no gang.
    """
    if reply.kind is ResponseKind.GONE:
        return Nomination.SPARE
    if reply.kind is ResponseKind.REFUSED:
        return Get()
    if reply.kind is not ResponseKind.DONE:
        return Wait(delays.wait_s(attempt, reply.retry_after_s))
    if _needs_no_room(reply.snapshot):
        return Nomination.SPARE
    return (
        Nomination.FAIL
        if reply.snapshot is not None and reply.snapshot.foreign
        else Nomination.PROCEED
    )


def after_preemptor_get(
    preemptor: Preemptor, reply: ApiResponse, *, attempt: int, delays: RetryDelays
) -> Nomination | Wait:
    """Return what follows a read of a preemptor whose nomination was refused."""
    if reply.kind is ResponseKind.GONE:
        return Nomination.SPARE
    if reply.kind is ResponseKind.REFUSED:
        return Nomination.FAIL
    if reply.snapshot is None:
        return Wait(delays.wait_s(attempt, reply.retry_after_s))
    other = reply.snapshot.uid != preemptor.uid
    return Nomination.SPARE if other or _needs_no_room(reply.snapshot) else Nomination.FAIL


def _needs_no_room(snapshot: PodSnapshot | None) -> bool:
    return snapshot is not None and (snapshot.deleting or bool(snapshot.node))


def eviction_conditions(reason: str, *, now: str) -> dict[str, Any]:
    """Return the patch that announces an eviction on a pod (D03); `now` is RFC 3339."""
    message = f"evicted to make room ({reason})"
    return {
        "status": {
            "conditions": [
                {
                    "type": DISRUPTION_TARGET,
                    "status": "True",
                    "reason": PREEMPTION_REASON,
                    "message": message,
                    "lastTransitionTime": now,
                },
                {
                    "type": "Ready",
                    "status": "False",
                    "reason": EVICT_REASON,
                    "message": message,
                    "lastTransitionTime": now,
                },
            ]
        }
    }


def after_conditions(
    victim: Victim,
    reply: ApiResponse,
    *,
    rv: str,
    attempt: int,
    delete_sent: bool,
    delays: RetryDelays,
) -> ItemOutcome | Delete | Wait | Get:
    """Return what follows the patch of the conditions at version `rv`.

    The conditions only inform: if the API server refuses them, the pod is deleted nevertheless.
    `delete_sent`: a delete was sent before and got no response.
    """
    if reply.kind is ResponseKind.REFUSED:
        return Delete(rv)
    if reply.kind is ResponseKind.DONE and reply.snapshot is not None:
        return _ended_without_delete(victim, reply.snapshot) or Delete(reply.snapshot.rv)
    return _after_failed_write(
        victim, reply, attempt=attempt, delete_sent=delete_sent, delays=delays
    )


def after_delete(
    victim: Victim, reply: ApiResponse, *, attempt: int, delete_sent: bool, delays: RetryDelays
) -> ItemOutcome | Wait | Get:
    """Return what follows a delete; `delete_sent`: an earlier one was sent and got no response."""
    if reply.kind is ResponseKind.DONE:
        return ended(victim, Result.EVICTED)
    if reply.kind is ResponseKind.REFUSED:
        return ended(victim, Result.FAILED, retry=Retry.NEVER, message=reply.message)
    return _after_failed_write(
        victim, reply, attempt=attempt, delete_sent=delete_sent, delays=delays
    )


def after_get(
    victim: Victim,
    reply: ApiResponse,
    *,
    attempt: int,
    delete_sent: bool = False,
    delays: RetryDelays,
) -> ItemOutcome | PatchConditions | Wait:
    """Return what follows a read; wait while the API server does not respond.

    A victim that still runs after the last attempt has failed.
    """
    if reply.kind is ResponseKind.REFUSED:
        return ended(victim, Result.FAILED, retry=Retry.NEVER, message=reply.message)
    if reply.kind is ResponseKind.GONE:
        return _gone(victim, reply.message, delete_sent=delete_sent)
    if reply.snapshot is None:
        return Wait(delays.wait_s(attempt, reply.retry_after_s))
    if reply.snapshot.uid != victim.uid:
        return _gone(
            victim, f"the name belongs to uid {reply.snapshot.uid}", delete_sent=delete_sent
        )
    if reply.snapshot.foreign:
        message = f"not a pod of a gang of ours: {reply.snapshot.foreign}"
        return ended(victim, Result.FAILED, retry=Retry.NEVER, message=message)
    if (outcome := _ended_without_delete(victim, reply.snapshot)) is not None:
        return outcome
    if not delays.ends(attempt):
        return PatchConditions(reply.snapshot.rv)
    message = f"not deleted after {attempt} attempts"
    return ended(victim, Result.FAILED, retry=Retry.LATER, message=message)


def _ended_without_delete(victim: Victim, snapshot: PodSnapshot) -> ItemOutcome | None:
    """Return the outcome of a victim that needs no delete: it is terminating or has finished."""
    if snapshot.deleting:
        return ended(victim, Result.EVICTED)
    if snapshot.finished:
        return ended(victim, Result.SPARED, message=f"the pod has finished: {snapshot.phase}")
    return None


def _gone(victim: Victim, message: str, *, delete_sent: bool) -> ItemOutcome:
    return ended(victim, Result.EVICTED if delete_sent else Result.GONE, message=message)


def _after_failed_write(
    victim: Victim, reply: ApiResponse, *, attempt: int, delete_sent: bool, delays: RetryDelays
) -> ItemOutcome | Wait | Get:
    if reply.kind is ResponseKind.GONE:
        return _gone(victim, reply.message, delete_sent=delete_sent)
    if reply.kind is ResponseKind.CONFLICT or delays.ends(attempt):
        return Get()
    return Wait(delays.wait_s(attempt, reply.retry_after_s))
