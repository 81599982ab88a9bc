"""Hints for which unschedulable gangs an evicting action might make room (`decide`).

The action asks at the turn of a queue, in the state that an attempt would see. While the hint is no
for all unschedulable gangs and no pod is evicted, every attempt of such a gang would fail, so
skipping them changes no decision. A hint is a necessary condition of success, not a sufficient one.

⚠ preempt also acts for less than a whole gang: it pipelines single pods where there is room without
an eviction (A05). It visits unschedulable gangs for that (`policy.actions.preempt`).
"""

from collections.abc import Callable, Hashable
from typing import Final

from services.scheduler.engine.jobs.records import Job, Queue
from services.scheduler.engine.jobs.unschedulable import AllocateDemand, DemandGroup, Preempting
from services.scheduler.engine.session.activation import lacks_nodes, lacks_share
from services.scheduler.engine.session.session import Session
from services.scheduler.policy.actions.victims import (
    ReclaimableJobs,
    any_job,
    are_any,
    preempt_bounds,
    preempted_from,
)
from shared.model.status import TaskStatus

_Hint = Callable[["EvictionHints", Queue, Job, AllocateDemand], bool]


class EvictionHints:
    """Collects the unschedulable gangs for which an action might make room."""

    def __init__(self, session: Session, action: str) -> None:
        self._session = session
        self._action = action
        self.reclaimable_jobs = ReclaimableJobs(session)
        self._version = -1
        self._known: dict[Hashable, bool] = {}

    def queues(self) -> list[str]:
        """Return the queues of unschedulable gangs."""
        return self._session.cluster_state.jobs.unschedulable.at_allocate.queues()

    def review(self, queue: Queue) -> None:
        """Collect the gangs of a queue for which the action might make room now."""
        if self._version != self._session.ledger.version:
            self._version = self._session.ledger.version
            self._known.clear()
        may_gain = _HINTS[self._action]
        for group in self._session.cluster_state.jobs.unschedulable.at_allocate.groups(queue.name):
            if not isinstance(group.demand, AllocateDemand) or self._gains(may_gain, queue, group):
                self._session.contenders.append(group)

    def _gains(self, may_gain: _Hint, queue: Queue, group: DemandGroup) -> bool:
        assert isinstance(group.demand, AllocateDemand)
        with self._session.isolate(self._action, group.first):
            return may_gain(self, queue, group.first, group.demand)
        return True

    def _once(self, key: Hashable, compute: Callable[[], bool]) -> bool:
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = compute()
        return found

    # --- within the queue ------------------------------------------------------------------------

    def may_preempt(self, queue: Queue, job: Job, needs: AllocateDemand) -> bool:
        """Tell whether a gang may preempt and has possible victims, or unused room."""
        if needs.preempting is Preempting.NONE:
            return False
        if not (lacks_nodes(self._session, needs) or lacks_share(self._session, queue, needs)):
            return True
        return self._once((queue.name, needs.priority), lambda: self._finds_victims(job))

    def _finds_victims(self, job: Job) -> bool:
        giving = preempted_from(self._session, job)
        return are_any(preempt_bounds(self._session, job), lambda bound: any(map(bound, giving)))

    def may_preempt_whole(self, queue: Queue, job: Job, needs: AllocateDemand) -> bool:
        """Tell whether a less important job of the queue has pods (A08)."""
        holders = self._session.cluster_state.jobs.holders.of(queue.name)
        return self._once(
            (queue.name, needs.priority), lambda: any(j.priority < job.priority for j in holders)
        )

    # --- from other queues -----------------------------------------------------------------------

    def may_reclaim(self, queue: Queue, job: Job, needs: AllocateDemand) -> bool:
        """Tell whether the queue may reclaim for enough pods, and has possible victims or room."""
        session = self._session
        if needs.preempting is Preempting.NONE or session.hooks.overused(queue):
            return False
        one = {t.task_class.id: t for t in job.by_status[TaskStatus.PENDING].values()}
        entitled = (
            count
            for task_class, count in needs.classes
            if session.hooks.preemptive(queue, [one[task_class.id]])
        )
        if sum(entitled) < needs.missing:
            return False
        return not lacks_nodes(session, needs) or self.reclaimable_jobs.exist_for(queue.name)

    def may_reclaim_whole(self, queue: Queue, job: Job, needs: AllocateDemand) -> bool:  # noqa: ARG002
        """Tell whether the queue may reclaim for the whole gang from other queues (A09)."""
        hooks = self._session.hooks
        tasks = list(job.by_status[TaskStatus.PENDING].values())
        if hooks.overused(queue) or not hooks.preemptive(queue, tasks):
            return False
        return self.reclaimable_jobs.is_any(queue.name, any_job)


_HINTS: Final[dict[str, _Hint]] = {
    "preempt": EvictionHints.may_preempt,
    "gangpreempt": EvictionHints.may_preempt_whole,
    "reclaim": EvictionHints.may_reclaim,
    "gangreclaim": EvictionHints.may_reclaim_whole,
}
"""Action → its question of the first gang of a group."""
