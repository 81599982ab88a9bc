"""Paces status writes: a new phase is written at once, the rest once it has stood for a while.

Cycles follow every change within milliseconds. Between two pods of a gang that are being created a
job "waits" for a moment, and its counters change with every pod that starts; a write each time
would be a storm. So a new phase is written at once, and everything else (conditions, counters, sums
of queues) when it has been wanted unchanged for `settle_s` seconds, or, if it keeps changing, after
`PATIENCE` times that. A pod's condition has to stand `PODS` times as long: there are many, and most
are out of date a moment later. For a gang whose pods are still being created or bound
(`IncompleteGangs`) only a new phase is written. A status that is held back is not assumed to be
written, so that the next cycle wants it again: the last one is always written.

A gang whose pods are being created waits for its owner and not for nodes: any condition would be
out of date a moment later. A gang whose pods are being bound gets a new phase as soon as they are:
its conditions are written with that. A gang that has got no further pod and no node for a while
counts as waiting: then its conditions say what is missing.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Final

from msgspec.structs import replace

from services.scheduler.engine.jobs.jobs import Jobs
from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.plan import DesiredPodGroupStatus, Plan
from shared.model.held_status import PATIENCE, HeldStatus, hold
from shared.model.status import VALID, TaskStatus

PODS: Final = 3

PhaseOf = Callable[[str], str]
"""Key of a PodGroup to the phase that it shows or was last desired to show."""
GroupOf = Callable[[str], str]
"""Uid of a pod to the key of its PodGroup; empty without one."""


def _no_group(_: str) -> str:
    return ""


class Pacing:
    """Remembers since when each object's status should be another one. Times are Unix seconds."""

    def __init__(self, settle_s: float) -> None:
        self._settle_s = settle_s
        self._held: dict[str, HeldStatus] = {}

    def due(
        self,
        plan: Plan,
        *,
        now: float,
        shown: PhaseOf,
        in_progress: Collection[str] = (),
        at_once: Collection[str] = (),
        group_of: GroupOf = _no_group,
    ) -> Plan:
        """Return the plan with the statuses that are to be written now.

        `in_progress` are the keys of PodGroups whose pods are still being created or bound,
        `at_once` those of unschedulable PodGroups that this cycle visits to bring their status up
        to date.
        """
        before, self._held = self._held, {}

        def stands(uid: str, status: object, *, times: int = 1) -> bool:
            delay_s = self._settle_s * times
            held = hold(before.get(uid), status, now=now)
            if held.is_due(now=now, delay_s=delay_s, longest_s=PATIENCE * delay_s):
                return True
            self._held[uid] = held
            return False

        def moves_on(group: DesiredPodGroupStatus) -> bool:
            return group.phase not in {shown(group.key), "Pending"}

        return replace(
            plan,
            podgroups=tuple(
                group
                for group in plan.podgroups
                if moves_on(group)
                or group.key in at_once
                or (group.key not in in_progress and stands(group.uid, group))
            ),
            pods=tuple(
                pod
                for pod in plan.pods
                if (group := group_of(pod.uid)) in at_once
                or (group not in in_progress and stands(pod.uid, pod.condition, times=PODS))
            ),
            queues=tuple(q for q in plan.queues if stands(q.uid, q)),
        )


def awaits_owner(job: Job) -> bool:
    """Tell whether a gang lacks pods that its owner has to create, or to free of their gates."""
    return (
        _present(job) < job.min_available
        or bool(job.roles_short_of(*VALID, best_effort=False))
        or (job.sub_jobs is not None and bool(job.sub_jobs.short_policies(exists=True)))
    )


def _is_kept_out(job: Job) -> bool:
    """Tell whether a group gets no pods because its queue has not admitted it."""
    return job.is_pending and not job.tasks


def _present(job: Job) -> int:
    return job.valid_count - job.gated


class IncompleteGangs:
    """Remembers when gangs whose pods are being created or bound last got a pod or a node."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._held: dict[str, HeldStatus] = {}
        """Uid, pods and binds of each gang."""

    def review(self, keys: Iterable[str], jobs: Jobs, *, now: float) -> frozenset[str]:
        """Return those of `keys` whose pods are being created or bound; forget all others."""
        before, self._held = self._held, {}
        in_progress = set()
        for key in keys:
            job = jobs.get(key)
            if job is None or _is_kept_out(job):
                continue
            binding = len(job.by_status[TaskStatus.BINDING])
            if not binding and not awaits_owner(job):
                continue
            self._held[key] = held = hold(
                before.get(key), (job.uid, _present(job), binding), now=now
            )
            if not held.is_due(now=now, delay_s=self._patience_s):
                in_progress.add(key)
        return frozenset(in_progress)
