"""A rehearsal: changes and decisions that are applied to the cluster state and then undone.

    with Rehearsal(mirror, policy, now=now) as rehearsal:
        rehearsal.put(QUEUE, changed)
        rehearsal.cycle()

Facts are folded as they would be. A plan is assumed as the scheduler assumes one that it has
published, and its victims are gone before the next cycle. At the end each step is taken back
(`Imagined`). Nothing leaves the process.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from services.scheduler.decide import Inspect
from services.scheduler.engine.jobs.records import GroupStatus, Job
from services.scheduler.engine.plan import DesiredPodGroupStatus, Eviction, GangBinds, Plan
from services.scheduler.engine.state.assumptions import Assumption
from services.scheduler.engine.state.imagined import Imagined
from services.scheduler.engine.tasks.task import Task
from services.scheduler.policy.actions.defrag import REASON
from services.visibility.forecast.shapes import pods, pods_of
from services.visibility.queries.cluster_mirror import ClusterMirror
from services.visibility.queries.pending import waits
from services.visibility.queries.survey import (
    EVICTING,
    DecisionPolicy,
    decided,
    without_evictions,
)
from shared.api.core import Pod
from shared.api.kinds import POD, Kind
from shared.contracts.messages import Preemptor, Result
from shared.model.status import TaskStatus

FEW: Final = 50
"""With so many waiting jobs at most, each of them may evict in a cycle. A search for victims takes
as long as dozens of searches for room, so that with more only the job asked about may."""
_DUE_S: Final = 10
"""A policy with the action defrag moves pods in the first cycle: its last round is so long ago."""
CYCLES_MAX: Final = 8
"""A job is admitted and placed, and what it displaces comes to rest, in fewer cycles."""


class Rehearsal(Imagined):
    """Imagined changes, and cycles that are decided on top of them."""

    def __init__(self, mirror: ClusterMirror, policy: DecisionPolicy, *, now: float) -> None:
        super().__init__(mirror.state)
        self._mirror = mirror
        self._policy = policy
        self._now = now
        self._intents = 0
        self._has_pods: set[str] = set()
        self.evicted: dict[str, Eviction] = {}
        """Evicted pods, by uid."""
        self._back_off_refused()
        mirror.state.memory[REASON] = now - _DUE_S

    # --- changes -----------------------------------------------------------------------------

    def put(self, kind: Kind, obj: Any) -> None:  # noqa: ANN401 - the type of the kind
        """Fold a new object, or a change of one whose kind the mirror stores."""
        self.fold(kind, obj, self._mirror.kept.get(kind.token, obj.metadata.key))

    def end(self, key: str) -> None:
        """Let all pods of a gang succeed; they hold nothing any more."""
        job = self._cluster_state.jobs.get(key)
        if job is not None:
            self.settle(job, list(job.tasks.values()), TaskStatus.SUCCEEDED)

    def end_leaving(self) -> None:
        """Let all pods that terminate be gone."""
        for job in self._cluster_state.jobs.all():
            leaving = list(job.by_status[TaskStatus.RELEASING].values())
            if leaving:
                self.settle(job, leaving, TaskStatus.FAILED)

    def lift_gates(self, key: str) -> None:
        """Let no pod of a gang have a scheduling gate any more."""
        job = self._cluster_state.jobs.get(key)
        for task in list(job.tasks.values()) if job is not None else ():
            if job is not None and task.gated:
                self._set_gated(job, task, gated=False)
                self.on_undo(partial(self._set_gated, job, task, gated=True))

    def _set_gated(self, job: Job, task: Task, *, gated: bool) -> None:
        job.drop(task)
        task.gated = gated
        job.take(task)
        self._cluster_state.jobs.changed(job)

    def _back_off_refused(self) -> None:
        """Hold back pods whose last bind was refused: no change here makes the next succeed."""
        for refusal in self._cluster_state.refusals.items():
            task = self._cluster_state.task(refusal.uid)
            if refusal.is_bind and task is not None and not task.backoff_reason:
                _set_backoff_reason(task, refusal.text)
                self.on_undo(partial(_set_backoff_reason, task, ""))

    def displace(self, tasks: Iterable[Task]) -> None:
        """Make running pods pending, as if their controllers had created them again."""
        for task in tasks:
            job = self._cluster_state.jobs.get(task.job_key)
            if job is not None:
                self.unbind(job, [task])

    # --- decisions ---------------------------------------------------------------------------

    def run(
        self,
        exempt_user: str = "",
        inspect: Inspect | None = None,
        *,
        is_over: Callable[[], bool] = lambda: False,
        pods_to_make: Callable[[Job], Iterable[Pod]] | None = None,
    ) -> None:
        """Run cycles until nothing more happens, or until `is_over` is true after one.

        A job that enters its queue gets its pods, as from its controller: those of `pods_to_make`,
        or an even share of its minimum each.
        """
        without_pods = [j.key for j in self._cluster_state.jobs.all() if waits(j) and not j.tasks]
        for _ in range(CYCLES_MAX):
            plans = self.cycle(exempt_user, inspect)
            made = self._make_pods(without_pods, pods_to_make or self._guessed, is_over)
            if is_over() or not (made or any(plan.binds or plan.evictions for plan in plans)):
                return

    def _make_pods(
        self,
        keys: Iterable[str],
        pods_to_make: Callable[[Job], Iterable[Pod]],
        is_over: Callable[[], bool],
    ) -> bool:
        """Give pods to the jobs that have entered their queues; return whether there were any."""
        made = False
        for key in sorted(keys):
            job = self._cluster_state.jobs.get(key)
            if job is None or job.tasks or key in self._has_pods or job.phase != "Inqueue":
                continue
            if is_over():
                break
            self._has_pods.add(key)
            for pod in pods_to_make(job):
                if self._cluster_state.pod(pod.metadata.key) is None:
                    self.put(POD, pod)
                    made = True
        return made

    def _guessed(self, job: Job) -> Iterable[Pod]:
        shape = pods_of(job, self._cluster_state.dimensions)
        name = self._mirror.scheduler_names[0]
        return pods(job.key, shape, now=self._now, scheduler_name=name)

    def cycle(self, subject: str = "", inspect: Inspect | None = None) -> list[Plan]:
        """Run one cycle and assume its plans; return them. `subject` is the key of a PodGroup.

        With many pending jobs only the subject may evict others.
        """
        config = self._policy.config
        waiting = [job.key for job in self._cluster_state.jobs.active() if job.key != subject]
        if EVICTING.isdisjoint(config.actions) or len(waiting) <= FEW:
            return [self._decide(self._policy, (), inspect)]
        quiet = replace(self._policy, config=without_evictions(config))
        plans = [self._decide(quiet, (), inspect)]
        job = self._cluster_state.jobs.get(subject)
        if job is not None and not job.is_ready:
            plans.append(self._decide(self._policy, waiting, inspect))
        return plans

    def _decide(
        self, policy: DecisionPolicy, without: Iterable[str], inspect: Inspect | None
    ) -> Plan:
        plan = decided(
            self._cluster_state,
            policy,
            now=self._now,
            inspect=inspect,
            without=frozenset(without),
        )
        for gang in plan.binds:
            self._bind(gang)
        self._leave(plan.evictions)
        self._nominate(plan.nominations)
        for group in plan.podgroups:
            self._enter(group)
        return plan

    def _intent(self) -> str:
        self._intents += 1
        return f"rehearsal-{self._intents}"

    def _bind(self, gang: GangBinds) -> None:
        intent = self._intent()
        again = {bind.uid: bind.node for bind in gang.binds if self._is_displaced(bind.uid)}
        binds = [bind for bind in gang.binds if bind.uid not in again]
        for bind in binds:
            self._restore_later(bind.uid, intent)
        self._cluster_state.assume(intent, binds)
        job = self._cluster_state.jobs.get(gang.job)
        if again and job is not None:
            self.bind(job, again)

    def _is_displaced(self, uid: str) -> bool:
        """Return whether a pending pod's object has a node: no bind of such a pod is assumed."""
        task = self._cluster_state.task(uid)
        return task is not None and bool(task.fact_node)

    def _leave(self, victims: Iterable[Eviction]) -> None:
        """Let victims be gone in the next cycle, which places again what they made room for.

        They fail rather than succeed: a pod that has succeeded counts for its gang's minimum.
        Those that move come again at once, because where they go is part of the decision.
        """
        for victim in victims:
            self.evicted[victim.uid] = victim
            task = self._cluster_state.task(victim.uid)
            job = self._cluster_state.jobs.get(victim.job)
            if task is not None and victim.reason == REASON:
                self.displace([task])
            elif task is not None and job is not None:
                self.settle(job, [task], TaskStatus.FAILED)

    def _restore_later(self, uid: str, intent: str) -> None:
        before: Assumption | None = self._cluster_state.assumptions.get(uid)

        def take_back() -> None:
            self._cluster_state.outcome(intent, [(uid, Result.FAILED)])
            if before is not None:
                self._cluster_state.add_assumption(uid, before)

        self.on_undo(take_back)

    def _nominate(self, nominations: Iterable[Preemptor]) -> None:
        for nomination in nominations:
            self._nominate_one(nomination.uid, nomination.node)

    def _nominate_one(self, uid: str, node: str) -> None:
        task = self._cluster_state.task(uid)
        if task is None:
            return
        shown = task.nominated
        known = [
            (intent, where)
            for of, intent, where in self._cluster_state.nominations.items()
            if of == uid
        ]

        def take_back() -> None:
            self._cluster_state.nominations.drop(uid)
            for intent, where in known:
                self._cluster_state.nominations.add(uid, intent, where)
            task.nominated = shown

        self.on_undo(take_back)
        self._cluster_state.assume_nomination(self._intent(), uid, node)

    def _enter(self, group: DesiredPodGroupStatus) -> None:
        job = self._cluster_state.jobs.get(group.key)
        if job is None or job.uid != group.uid or job.last_status.phase == group.phase:
            return
        before = job.decided
        self.on_undo(lambda: self._cluster_state.jobs.restate(group.key, before))
        status = job.last_status
        self._cluster_state.jobs.assume_status(
            group.key, group.uid, GroupStatus(group.phase, status.counters, status.conditions)
        )


def _set_backoff_reason(task: Task, reason: str) -> None:
    task.backoff_reason = reason
