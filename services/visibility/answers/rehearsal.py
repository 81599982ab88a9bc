"""A rehearsal: changes and decisions that the cluster state takes in and gives back.

    with Rehearsal(replica, policy, now=now) as rehearsal:
        rehearsal.put(QUEUE, changed)
        rehearsal.cycle()

Facts are folded as they would be, a plan is gone by as the scheduler goes by one that it has
published, and at the end each step is taken back in the reverse order. Nothing leaves the process.
"""

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Final, Self

from msgspec.structs import replace

from services.scheduler.decide import Conclusion
from services.scheduler.engine.jobs.records import GroupStatus, Job
from services.scheduler.engine.plan import Eviction, GangBinds, Plan, PodGroupStatusWanted
from services.scheduler.engine.state.assumptions import Assumption
from services.scheduler.engine.state.imagined import Imagined
from services.scheduler.engine.tasks.task import Task
from services.visibility.answers.replica import Replica
from services.visibility.answers.survey import (
    EVICTING,
    Policy,
    decided,
    unread,
    without_evictions,
)
from shared.api.kinds import Kind
from shared.contracts.messages import Preemptor, Result
from shared.model.status import TaskStatus

FEW: Final = 50
"""With so many waiting jobs at most, each of them may evict in a cycle. A search for victims takes
as long as dozens of searches for room, so that with more only the job asked about may."""


class Rehearsal:
    """Everything that was done in thought, and how each step is taken back."""

    def __init__(self, replica: Replica, policy: Policy, *, now: float) -> None:
        self._replica = replica
        self._state = replica.state
        self._policy = policy
        self._now = now
        self._undo: list[Callable[[], None]] = []
        self._intents = 0
        self.bound: dict[str, str] = {}
        """Pods that were placed, by uid, and their nodes."""
        self.evicted: dict[str, Eviction] = {}
        """Pods that were told to go, by uid."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        undone = False
        try:
            while self._undo:
                self._undo.pop()()
            undone = True
        finally:
            if not undone:
                self._state.spoil()  # it is filled anew

    # --- changes -----------------------------------------------------------------------------

    def put(self, kind: Kind, obj: Any) -> None:  # noqa: ANN401 - the type of the kind
        """Fold an object that is new, or of a kind that is kept."""
        key, uid = obj.metadata.key, obj.metadata.uid
        before = self._replica.kept.get(kind.token, key)
        state = self._state

        def take_back() -> None:
            if before is None:
                state.apply(kind.token, "delete", key, uid, None)
            else:
                state.apply(kind.token, "put", key, before.metadata.uid, before)

        self._undo.append(take_back)
        state.apply(kind.token, "put", key, uid, obj)

    def replace(self, kind: Kind, obj: Any) -> None:  # noqa: ANN401 - the type of the kind
        """Fold another version of an object that this rehearsal has put."""
        self._state.apply(kind.token, "put", obj.metadata.key, obj.metadata.uid, obj)

    def end(self, key: str) -> None:
        """Let all pods of a gang succeed; they hold nothing any more."""
        job = self._state.jobs.get(key)
        if job is not None:
            imagined = Imagined(self._state)
            self._undo.append(imagined.undo)
            imagined.settle(job, list(job.tasks.values()), TaskStatus.SUCCEEDED)

    def assume_gone(self, tasks: Iterable[Task]) -> None:
        """Count pods as leaving."""
        victims = [
            Eviction(pod=task.key, uid=task.uid, node=task.node, reason="drain") for task in tasks
        ]
        self._leave(victims)

    # --- decisions ---------------------------------------------------------------------------

    def cycle(self, asker: str = "", concluded: Conclusion = unread) -> list[Plan]:
        """Decide and go by it, as one cycle; return the plans. `asker` is a PodGroup's key.

        With many waiting jobs only the asker may have others evicted.
        """
        config = self._policy.config
        waiting = [job.key for job in self._state.jobs.unsettled() if job.key != asker]
        if EVICTING.isdisjoint(config.actions) or len(waiting) <= FEW:
            return [self._decide(self._policy, (), concluded)]
        quiet = replace(self._policy, config=without_evictions(config))
        plans = [self._decide(quiet, (), concluded)]
        job = self._state.jobs.get(asker)
        if job is not None and not job.is_ready:
            plans.append(self._decide(self._policy, waiting, concluded))
        return plans

    def _decide(self, policy: Policy, without: Iterable[str], concluded: Conclusion) -> Plan:
        plan = decided(
            self._state, policy, now=self._now, concluded=concluded, without=frozenset(without)
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
        for bind in gang.binds:
            self._restore_later(bind.uid, intent)
            self.bound[bind.uid] = bind.node
        self._state.assume(intent, gang.binds)

    def _leave(self, victims: Iterable[Eviction]) -> None:
        intent = self._intent()
        for victim in victims:
            self._restore_later(victim.uid, intent)
            self.evicted[victim.uid] = victim
            self._state.assume_evictions(intent, [victim])

    def _restore_later(self, uid: str, intent: str) -> None:
        before: Assumption | None = self._state.assumptions.get(uid)

        def take_back() -> None:
            self._state.outcome(intent, [(uid, Result.FAILED)])
            if before is not None:
                self._state.add_assumption(uid, before)

        self._undo.append(take_back)

    def _nominate(self, nominations: Iterable[Preemptor]) -> None:
        for nomination in nominations:
            self._nominate_one(nomination.uid, nomination.node)

    def _nominate_one(self, uid: str, node: str) -> None:
        task = self._state.task(uid)
        if task is None:
            return
        shown = task.nominated
        known = [
            (intent, where) for of, intent, where in self._state.nominations.items() if of == uid
        ]

        def take_back() -> None:
            self._state.nominations.drop(uid)
            for intent, where in known:
                self._state.nominations.add(uid, intent, where)
            task.nominated = shown

        self._undo.append(take_back)
        self._state.assume_nomination(self._intent(), uid, node)

    def _enter(self, group: PodGroupStatusWanted) -> None:
        job = self._state.jobs.get(group.key)
        if job is None or job.uid != group.uid or job.last_status.phase == group.phase:
            return
        before = job.decided
        self._undo.append(lambda: self._state.jobs.restate(group.key, before))
        status = job.last_status
        self._state.jobs.adopt(
            group.key, group.uid, GroupStatus(group.phase, status.counters, status.conditions)
        )

    # --- questions ---------------------------------------------------------------------------

    def job(self, key: str) -> Job | None:
        """Return a job as it is in this rehearsal."""
        return self._state.jobs.get(key)
