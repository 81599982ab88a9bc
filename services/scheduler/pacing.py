"""Paces wanted statuses: a new phase is written at once, the rest once it has stood for a while.

Cycles follow every change by milliseconds. Between two pods of a gang that are being created, a job
"waits" for a moment, and its counters change with every pod that starts; written each time, that is
a storm of statuses. So a new phase goes out at once, and everything else (conditions, counters,
sums of queues) when it has been wanted unchanged for `settle_s`, or, if it keeps changing, for
`PATIENCE` times that. A pod's condition stands longer, `PODS` times: there are many, and those of a
gang that is on its way are void a moment later. Nothing but a new phase is written for a gang whose
pods are still being made or bound (`IncompleteGangs`). What is held back is not adopted, so the
next cycle wants it again: the last word always goes out.

A gang whose pods are being created waits for its owner and not for nodes: any condition would be
out of date a moment later, and there are thousands of such moments while a large load is submitted.
A gang whose pods are being bound has a new phase as soon as they are: its conditions go with that,
in one write. A gang that has got no pod, and no node, for a while is incomplete no longer: then its
conditions say what is missing.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

from msgspec.structs import replace

from services.scheduler.engine.jobs.jobs import Jobs
from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.plan import Plan, PodGroupStatusWanted
from shared.model.status import VALID, TaskStatus

PATIENCE: Final = 10
PODS: Final = 3

PhaseOf = Callable[[str], str]
"""Key of a PodGroup to the phase that it shows or was last wanted to show."""
GroupOf = Callable[[str], str]
"""Uid of a pod to the key of its PodGroup; empty without one."""


def _no_group(_: str) -> str:
    return ""


class _Wanted(NamedTuple):
    what: object
    same_since: float
    any_since: float


class Pacing:
    """Remembers since when each object wants another status. Pure: `now` comes in."""

    def __init__(self, settle_s: float) -> None:
        self._settle_s = settle_s
        self._wanted: dict[str, _Wanted] = {}

    def due(
        self,
        plan: Plan,
        *,
        now: float,
        shown: PhaseOf,
        making: Collection[str] = (),
        at_once: Collection[str] = (),
        group_of: GroupOf = _no_group,
    ) -> Plan:
        """Return the plan with those statuses that are worth a write now.

        `making` are the keys of PodGroups whose pods are still being made or bound, `at_once` those
        of PodGroups that are looked at so seldom that nothing is held back.
        """
        before, self._wanted = self._wanted, {}

        def stands(uid: str, what: object, *, times: int = 1) -> bool:
            settle_s = self._settle_s * times
            wanted = before.get(uid)
            if wanted is None:
                wanted = _Wanted(what, now, now)
            elif wanted.what != what:
                wanted = _Wanted(what, now, wanted.any_since)
            if now - wanted.same_since >= settle_s or now - wanted.any_since >= PATIENCE * settle_s:
                return True
            self._wanted[uid] = wanted
            return False

        def moves_on(group: PodGroupStatusWanted) -> bool:
            return group.phase not in {shown(group.key), "Pending"}

        return replace(
            plan,
            podgroups=tuple(
                group
                for group in plan.podgroups
                if moves_on(group)
                or group.key in at_once
                or (group.key not in making and stands(group.uid, group))
            ),
            pods=tuple(
                pod
                for pod in plan.pods
                if (group := group_of(pod.uid)) in at_once
                or (group not in making and stands(pod.uid, pod.condition, times=PODS))
            ),
            queues=tuple(q for q in plan.queues if stands(q.uid, q)),
        )


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
