"""Decides which statuses go out after a cycle: what is due, and what to publish again. Pure.

The rule is in `shared.model.delayed_status`. A cycle follows every change within milliseconds.
Between two pods of a gang that are being created a job "waits" for a moment, and its counters
change with every pod that starts. So here:

* A new phase is due at once. Conditions, counters and sums of queues are held back for `settle_s`.
* The first Pending of a group is due after `settle_s` even if its text keeps changing.
* A pod's condition is held back `PODS` times as long: there are many, and most change soon.
* For a gang whose pods are still being created or bound (`IncompleteGangs`) only a new phase is
  due. A gang whose pods are being created waits for its owner and not for nodes. One whose pods are
  being bound gets a new phase as soon as they are, and its conditions are written with that.
* A gang that has got no further pod and no node for a while counts as waiting: its conditions say
  what is missing.
* What was published and is not seen on its object is published again (`desired.Reminders`).
"""

from collections.abc import Callable, Collection, Iterable
from typing import Final

from msgspec.structs import replace

from services.scheduler import desired, messages
from services.scheduler.engine.jobs.jobs import Jobs
from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.plan import DesiredPodGroupStatus, Plan
from services.scheduler.engine.state.cluster_state import ClusterState
from services.scheduler.engine.state.shards import Sharding
from shared.model.delayed_status import PATIENCE, DelayedStatuses
from shared.model.status import VALID, TaskStatus

PODS: Final = 3

PhaseOf = Callable[[str], str]
"""Key of a PodGroup to the phase that it shows or was last desired to show."""
GroupOf = Callable[[str], str]
"""Uid of a pod to the key of its PodGroup; empty without one."""


def _no_group(_: str) -> str:
    return ""


class DueStatuses:
    """Selects the statuses of plans that are to be written now. Times are Unix seconds."""

    def __init__(self, settle_s: float) -> None:
        self._settle_s = settle_s
        self._delayed = DelayedStatuses()

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
        delayed, settle_s = self._delayed, self._settle_s
        delayed.begin_pass()

        def stands(uid: str, status: object, times: int = 1, patience: int = PATIENCE) -> bool:
            delay_s = settle_s * times
            longest_s = patience * delay_s
            if delayed.hold(uid, status, now=now, delay_s=delay_s, longest_s=longest_s):
                return False
            delayed.forget(uid)
            return True

        def moves_on(group: DesiredPodGroupStatus) -> bool:
            return group.phase not in {shown(group.key), "Pending"}

        return replace(
            plan,
            podgroups=tuple(
                group
                for group in plan.podgroups
                if moves_on(group)
                or group.key in at_once
                or (
                    group.key not in in_progress
                    and stands(group.uid, group, patience=PATIENCE if shown(group.key) else 1)
                )
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
        self._delayed = DelayedStatuses()
        """By key of the gang; the status is its uid, pods and binds."""

    def review(self, keys: Iterable[str], jobs: Jobs, *, now: float) -> frozenset[str]:
        """Return those of `keys` whose pods are being created or bound; forget all others."""
        self._delayed.begin_pass()
        in_progress = set()
        for key in keys:
            job = jobs.get(key)
            if job is None or _is_kept_out(job):
                continue
            binding = len(job.by_status[TaskStatus.BINDING])
            if not binding and not awaits_owner(job):
                continue
            progress = (job.uid, _present(job), binding)
            if self._delayed.hold(key, progress, now=now, delay_s=self._patience_s):
                in_progress.add(key)
        return frozenset(in_progress)


class StatusWriter:
    """The statuses of one scheduler, over all its cycles. Times `now` are Unix seconds."""

    def __init__(self, settle_s: float, sharding: Sharding) -> None:
        self._due_statuses = DueStatuses(settle_s)
        self._incomplete_gangs = IncompleteGangs(PATIENCE * settle_s)
        self._reminders = desired.Reminders()
        self._quarantine_conditions = desired.QuarantineConditions()
        self._own_shard = desired.OwnShard(sharding)
        self._held_groups: set[str] = set()
        """PodGroups whose status in the last plan is held back."""

    def due(self, plan: Plan, cluster_state: ClusterState, *, now: float) -> Plan:
        """Return the plan with the statuses that are due, and conditions of quarantined objects."""
        jobs = cluster_state.jobs

        def shown_phase(key: str) -> str:
            job = jobs.get(key)
            return job.last_status.phase if job is not None else ""

        def group_of(uid: str) -> str:
            task = cluster_state.task(uid)
            return task.job_key if task is not None else ""

        keys = dict.fromkeys(group.key for group in plan.podgroups)
        keys |= dict.fromkeys(group_of(pod.uid) for pod in plan.pods)
        due = self._due_statuses.due(
            plan,
            now=now,
            shown=shown_phase,
            in_progress=self._incomplete_gangs.review(keys, jobs, now=now),
            at_once=jobs.unschedulable.refreshed,
            group_of=group_of,
        )
        due = self._quarantine_conditions.added(due)
        self._held_groups = {g.key for g in plan.podgroups} - {g.key for g in due.podgroups}
        return due

    def messages(
        self, due: Plan, cluster_state: ClusterState, *, now: float
    ) -> list[desired.DesiredStatus]:
        """Return the statuses to publish: those of `due`, and those to publish again."""
        fresh = messages.desires(due, cluster_state)
        fresh += self._own_shard.statuses(cluster_state, due.cycle)
        self._reminders.sent(fresh, now=now)
        return fresh + self._reminders.due(
            now=now, is_outstanding=lambda status: desired.is_outstanding(status, cluster_state)
        )

    def assume(self, due: Plan, cluster_state: ClusterState) -> None:
        """Assume statuses that were published until the objects show them."""
        cluster_state.assume_statuses(due, unpublished=sorted(self._held_groups))
        self._own_shard.assume(cluster_state)

    def quarantine(self, kind: str, key: str, uid: str, reason: Exception | str) -> None:
        """Have the next plan say on an object that it could not be folded, and why."""
        self._quarantine_conditions.add(kind, key, uid, reason)

    def forget(self) -> None:
        """Publish nothing again of what was published so far: the objects are compared again."""
        self._reminders.forget()

    def carried_over(self, before: ClusterState, anew: ClusterState) -> ClusterState:
        """Return a cluster state that is filled again, with what `before` must not lose."""
        return self._own_shard.carried_over(before, anew)
