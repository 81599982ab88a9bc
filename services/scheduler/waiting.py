"""Waits that are worth an event: those that last, and that only the cluster can end. Pure.

A gang whose pods are being created waits for its owner and not for nodes: any condition would be
out of date a moment later, and there are thousands of such moments while a large load is submitted.
A gang whose pods are being bound has a new phase as soon as they are: its conditions go with that,
in one write. `IncompleteGangs` tells which gangs are in either state. A gang that has got no pod,
and no node, for a while is in it no longer: then its conditions say what is missing.

Subscribers hear of a wait once per cause, when it has stood for a while, and never of one that the
gang's owner has to end (missing pods, scheduling gates). An alert is about a cluster that is too
full, a kind of node that is missing, a queue that is used up.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from services.scheduler.engine.jobs.jobs import Jobs
from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.plan import Explanation
from shared.model.status import VALID, TaskStatus

_AMOUNT: Final = re.compile(r"\d[\w.]*")


def awaits_owner(job: Job) -> bool:
    """Tell whether a gang lacks pods that its owner has to create, or to free of their gates."""
    return (
        _present(job) < job.min_available
        or bool(job.roles_short_of(*VALID, best_effort=False))
        or (job.division is not None and bool(job.division.short_policies(exists=True)))
    )


def _is_kept_out(job: Job) -> bool:
    """Tell whether a group gets no pods because its queue has not admitted it."""
    return job.is_pending and not job.tasks


def _present(job: Job) -> int:
    return sum(len(job.by_status[status]) for status in VALID) - job.gated


class _Incomplete(NamedTuple):
    uid: str
    pods: int
    binding: int
    since: float
    """When a pod last came or was bound, or when the gang was first seen (Unix seconds)."""


class IncompleteGangs:
    """Remembers when gangs whose pods are being made or bound last got on."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._waiting: dict[str, _Incomplete] = {}

    def review(self, keys: Iterable[str], jobs: Jobs, *, now: float) -> frozenset[str]:
        """Return those of `keys` whose pods are being made or bound; forget all others."""
        before, self._waiting = self._waiting, {}
        making = set()
        for key in keys:
            job = jobs.get(key)
            if job is None or _is_kept_out(job):
                continue
            binding = len(job.by_status[TaskStatus.BINDING])
            if not binding and not awaits_owner(job):
                continue
            seen, waiting = (job.uid, _present(job), binding), before.get(key)
            if waiting is None or waiting[:3] != seen:
                waiting = _Incomplete(*seen, since=now)
            self._waiting[key] = waiting
            if now - waiting.since < self._patience_s:
                making.add(key)
        return frozenset(making)


class _Wait(NamedTuple):
    text: str
    cause: str
    since: float
    reported: frozenset[str]


class Waits:
    """Remembers the waits of jobs, and what was told of them."""

    def __init__(self, settle_s: float) -> None:
        self._settle_s = settle_s
        self._waits: dict[str, _Wait] = {}
        self._parked: dict[str, _Wait] = {}
        """Waits of jobs that cycles do not look at; they go on."""

    def forget(self) -> None:
        """Report everything anew: earlier reports were those of another leader."""
        self._waits = {}
        self._parked = {}

    def is_reported(self, key: str) -> bool:
        """Tell whether subscribers know of a job's wait and its cause."""
        wait = self._waits.get(key) or self._parked.get(key)
        return wait is not None and wait.cause in wait.reported

    def park(self, key: str) -> None:
        """Keep a wait although the next cycles do not explain it."""
        self._parked[key] = self._waits.pop(key)

    def resume(self, keys: Iterable[str]) -> None:
        """Go on with the waits of jobs that this cycle has looked at again."""
        for key in keys:
            wait = self._parked.pop(key, None)
            if wait is not None:
                self._waits[key] = wait

    def resume_all(self) -> None:
        """Go on with all waits: the next cycle looks at every job."""
        self.resume(list(self._parked))

    def lasting(
        self, explanations: Iterable[Explanation], jobs: Jobs, *, now: float
    ) -> list[Explanation]:
        """Return the waits that have now lasted long enough and whose cause was not told yet."""
        before, self._waits = self._waits, {}
        due = []
        for explanation in explanations:
            job = jobs.get(explanation.job)
            if job is not None and job.tasks and awaits_owner(job):
                continue
            if job is not None and not job.tasks and explanation.gate == "gang":
                continue  # admitted, and without a pod yet
            wait = _followed(before.get(explanation.job), explanation, now)
            if wait.cause not in wait.reported and now - wait.since >= self._settle_s:
                wait = wait._replace(reported=wait.reported | {wait.cause})
                due.append(explanation)
            self._waits[explanation.job] = wait
        return due


def _followed(before: _Wait | None, explanation: Explanation, now: float) -> _Wait:
    text = f"{explanation.gate}: {explanation.message}"
    if before is not None and before.text == text:
        return before
    cause = cause_of(explanation)
    if before is None:
        return _Wait(text, cause, now, frozenset())
    since = before.since if before.cause == cause else now
    return _Wait(text, cause, since, before.reported)


def cause_of(explanation: Explanation) -> str:
    """Return what keeps a job waiting, without the amounts: they change while the cause stays."""
    parts = sorted(explanation.reasons) + sorted(s.resource for s in explanation.shortages)
    reason = ", ".join(parts) or explanation.message
    return f"{explanation.gate}: {_AMOUNT.sub('#', reason)}"
