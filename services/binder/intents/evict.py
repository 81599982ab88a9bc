"""Evicting: nominate the preemptor, then per victim the conditions, then the delete (D03, CA07).

Deviates from D03 (ADR 4): a pod of the wanted uid without a deletionTimestamp is always deleted,
whether or not its conditions were there before; else a crash between the two would leave it
releasing for ever. Victims are spared when the preemptor needs no room any more.
"""

import enum
from typing import Any

from services.binder.intents.bind import MESSAGE_MAX
from services.binder.intents.replies import Answer, Reply, Seen
from services.binder.intents.retry import Ladder, Look, Wait
from shared.contracts.messages import ItemOutcome, Preemptor, Result, Retry, Victim

DISRUPTION_TARGET = "DisruptionTarget"
PREEMPTION_REASON = "PreemptionByScheduler"
EVICT_REASON = "Evict"


class Verdict(enum.Enum):
    """What a nomination means for the victims."""

    PROCEED = "proceed"
    SPARE = "spare"
    FAIL = "fail"


class Delete(enum.Enum):
    """The next step is the delete."""

    NOW = "now"


def nomination(preemptor: Preemptor) -> dict[str, Any]:
    """Return the patch of the preemptor's status (SS11 ⚠: only when evictions come with it)."""
    return {"status": {"nominatedNodeName": preemptor.node}}


def after_nomination(reply: Reply, *, attempt: int, ladder: Ladder) -> Verdict | Look | Wait:
    """Return what the answer to the nomination means.

    A preemptor that is bound or being deleted needs no room: its victims are spared, as if it were
    gone. The API server refuses to nominate a bound pod, so a refusal needs a look.
    """
    if reply.answer is Answer.GONE:
        return Verdict.SPARE
    if reply.answer is Answer.REFUSED:
        return Look()
    if reply.answer is not Answer.DONE:
        return Wait(ladder.wait_s(attempt, reply.retry_after_s))
    return Verdict.SPARE if _needs_no_room(reply.seen) else Verdict.PROCEED


def after_preemptor_look(
    preemptor: Preemptor, reply: Reply, *, attempt: int, ladder: Ladder
) -> Verdict | Wait:
    """Return what a preemptor looks like that cannot be nominated."""
    if reply.answer is Answer.GONE:
        return Verdict.SPARE
    if reply.answer is Answer.REFUSED:
        return Verdict.FAIL
    if reply.seen is None:
        return Wait(ladder.wait_s(attempt, reply.retry_after_s))
    other = reply.seen.uid != preemptor.uid
    return Verdict.SPARE if other or _needs_no_room(reply.seen) else Verdict.FAIL


def _needs_no_room(seen: Seen | None) -> bool:
    return seen is not None and (seen.deleting or bool(seen.node))


def marks(reason: str, *, now: str) -> dict[str, Any]:
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


def after_marks(
    victim: Victim, reply: Reply, *, attempt: int, tried: bool, ladder: Ladder
) -> ItemOutcome | Delete | Wait | Look:
    """Return what follows the patch of the conditions.

    They are a courtesy: if the API server refuses them, the pod is deleted all the same. `tried`:
    a delete was sent before, whose answer did not come.
    """
    if reply.answer is Answer.REFUSED:
        return Delete.NOW
    if reply.answer is Answer.DONE:
        leaving = reply.seen is not None and reply.seen.deleting
        return ended(victim, Result.EVICTED) if leaving else Delete.NOW
    return _not_done(victim, reply, attempt=attempt, tried=tried, ladder=ladder)


def after_delete(
    victim: Victim, reply: Reply, *, attempt: int, tried: bool, ladder: Ladder
) -> ItemOutcome | Wait | Look:
    """Return what follows a delete; `tried`: an earlier one was sent, whose answer did not come."""
    if reply.answer is Answer.DONE:
        return ended(victim, Result.EVICTED)
    if reply.answer is Answer.REFUSED:
        return ended(victim, Result.FAILED, retry=Retry.NEVER, message=reply.message)
    return _not_done(victim, reply, attempt=attempt, tried=tried, ladder=ladder)


def after_look(victim: Victim, reply: Reply, *, attempt: int, ladder: Ladder) -> ItemOutcome | Wait:
    """Return how a victim ended that was tried often enough; while nobody answers, wait."""
    if reply.answer is Answer.GONE:
        return ended(victim, Result.GONE, message=reply.message)
    if reply.answer is Answer.REFUSED:
        return ended(victim, Result.FAILED, retry=Retry.NEVER, message=reply.message)
    if reply.seen is None:
        return Wait(ladder.wait_s(attempt, reply.retry_after_s))
    if reply.seen.uid != victim.uid:
        return ended(victim, Result.GONE, message=f"the name belongs to uid {reply.seen.uid}")
    if reply.seen.deleting:
        return ended(victim, Result.EVICTED)
    message = f"not deleted after {attempt} attempts"
    return ended(victim, Result.FAILED, retry=Retry.LATER, message=message)


def ended(
    victim: Victim, result: Result, *, retry: Retry | None = None, message: str = ""
) -> ItemOutcome:
    """Return the outcome of one victim."""
    return ItemOutcome(
        pod=victim.pod,
        uid=victim.uid,
        result=result,
        node=victim.node,
        retry=retry,
        message=message[:MESSAGE_MAX],
    )


def _not_done(
    victim: Victim, reply: Reply, *, attempt: int, tried: bool, ladder: Ladder
) -> ItemOutcome | Wait | Look:
    if reply.answer is Answer.GONE:
        result = Result.EVICTED if tried else Result.GONE
        return ended(victim, result, message=reply.message)
    if ladder.ends(attempt):
        return Look()
    return Wait(ladder.wait_s(attempt, reply.retry_after_s))
