"""Actions that wait: the timeouts of policies (J12).

A policy's timeout counts from a time in the objects (a pod's creation, the end of its container),
so a process that starts anew comes to the same moment. Pure; the shell asks again when the earliest
one is due.
"""

from collections.abc import Iterable

import msgspec

from services.controller.job.phases import Do, Move, Target
from services.controller.job.policies import answer
from services.controller.job.requests import Request
from shared.api import time
from shared.api.batch import Action, Job, JobEvent


class Delayed(msgspec.Struct, frozen=True, kw_only=True):
    """An action that is due later."""

    request: Request
    action: Action
    due: float
    """Unix seconds."""


def arrivals(
    job: Job, requests: Iterable[Request], delayed: tuple[Delayed, ...], *, now: float
) -> tuple[list[tuple[Request, Action]], tuple[Delayed, ...]]:
    """Sort requests into (what to do now, in order) and what waits; what was due is done first."""
    found: list[tuple[Request, Action]] = []
    waiting = list(delayed)
    for request in requests:
        waiting = [d for d in waiting if not _cancels(request, d.request)]
        decided = answer(job, request)
        if decided.delay_s == 0:
            found.append((request, decided.action))
        elif all(d.request.key != request.key for d in waiting):
            since = time.parse(request.since) if request.since else now
            waiting.append(
                Delayed(request=request, action=decided.action, due=since + decided.delay_s)
            )
    due = [d for d in waiting if d.due <= now]
    valid = [(d.request, d.action) for d in due if d.request.version >= job.status.version]
    return [*valid, *found], tuple(d for d in waiting if d.due > now)


def _cancels(new: Request, old: Request) -> bool:
    """Whether what happened makes an action that waits pointless (J12)."""
    if old.event == JobEvent.POD_PENDING:
        return new.pod_uid == old.pod_uid and new.event != JobEvent.POD_PENDING
    if old.event in {JobEvent.POD_FAILED, JobEvent.POD_EVICTED}:
        return new.event == JobEvent.POD_RUNNING and new.pod == old.pod
    return False


def after_action(
    delayed: tuple[Delayed, ...], move: Move, request: Request, action: Action
) -> tuple[Delayed, ...]:
    """Return what still waits after an action has run: delays of the same reach are over (J12)."""
    if action is Action.SYNC_JOB or move.do is Do.SYNC:
        return delayed
    match move.target:
        case Target.JOB:
            return ()
        case Target.TASK:
            return tuple(d for d in delayed if d.request.task != request.task)
        case Target.PARTITION:
            here = (request.task, request.partition)
            return tuple(d for d in delayed if (d.request.task, d.request.partition) != here)
        case Target.POD:
            return tuple(d for d in delayed if d.request.pod != request.pod)
