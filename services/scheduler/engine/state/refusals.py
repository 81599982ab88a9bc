"""Binds and evictions that failed: when each is tried again.

The API server would mostly refuse the same bind or eviction again, so that trying it in every cycle
would only make noise. A pod whose bind or eviction failed is held back with exponential back-off,
from `FIRST_S` to `LONGEST_S`. Other pods go on, those of its gang as far as the gang's minimum
allows. The back-off ends as soon as the pod or its PodGroup changes in a field that decisions read,
or the pod is gone. A conflict is no refusal: the next cycle decides by the facts.

Part of the cluster state: `SchedulerState` notes outcomes, and reviews them before it
decides. Times are by the scheduler's clock alone, since a binder's clock may differ.
"""

from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.tasks.task import Task
from shared.contracts.messages import Outcome, Result
from shared.model.backoff import delay_s

FIRST_S: Final = 1.0
LONGEST_S: Final = 300.0


class PodBackoff(Struct, frozen=True, kw_only=True):
    """The back-off of one pod."""

    uid: str
    intent: str
    why: str
    """The message of the refusal."""
    is_bind: bool = True
    by: str = "the API server"
    """The refusing party, for messages."""
    times: int = 1
    """How often it was refused in a row."""
    until: float | None = None
    """End of the back-off, Unix seconds; None: not reviewed yet."""

    @property
    def interval_s(self) -> float:
        """Return the length of the back-off in seconds."""
        return delay_s(self.times - 1, first_s=FIRST_S, cap_s=LONGEST_S)

    @property
    def refusal(self) -> str:
        """Return what was refused and why, for users."""
        what = "bind" if self.is_bind else "evict"
        return f"{self.by} refused to {what} it: {self.why or 'no reason was given'}"

    @property
    def text(self) -> str:
        """Return the message to users; it stays the same for the whole interval."""
        return f"{self.refusal}: tried again in {self.interval_s:.0f} s"


class Refusals:
    """The refusals of one cluster state, by uid of the pod."""

    def __init__(self) -> None:
        self._by_uid: dict[str, PodBackoff] = {}
        self._seen: dict[str, object] = {}
        """Uid → properties of pod and PodGroup at the refusal; a change of them ends it."""

    def __len__(self) -> int:
        return len(self._by_uid)

    def items(self) -> tuple[PodBackoff, ...]:
        """Return all, oldest first."""
        return tuple(self._by_uid.values())

    def binds_of(self, job: Job) -> tuple[PodBackoff, ...]:
        """Return the binds of a gang's pods that failed last, also after their back-off."""
        return tuple(r for r in self._by_uid.values() if r.is_bind and r.uid in job.tasks)

    def restore(self, refusals: Iterable[PodBackoff]) -> None:
        """Restore the refusals of another cluster state."""
        self._by_uid.update((refusal.uid, refusal) for refusal in refusals)

    def take(self, outcome: Outcome) -> None:
        """Note the binds and evictions of an outcome that failed, and forget those that did not."""
        for item in outcome.items:
            if item.result is Result.FAILED:
                is_bind = bool(outcome.job)
                self.note(item.uid, outcome.intent, item.message, is_bind=is_bind)
            elif self._by_uid:
                self.drop(item.uid)

    def note(
        self, uid: str, intent: str, why: str, *, is_bind: bool, by: str = "the API server"
    ) -> None:
        """Record that a bind or an eviction failed; the same intent counts once."""
        before = self._by_uid.get(uid)
        if before is not None and before.intent == intent:
            return
        same = before is not None and before.is_bind is is_bind
        times = before.times + 1 if before is not None and same else 1
        self._by_uid[uid] = PodBackoff(
            uid=uid, intent=intent, why=why, is_bind=is_bind, by=by, times=times
        )

    def drop(self, uid: str) -> None:
        """Drop a refusal: the intent was executed, or the cluster has changed."""
        self._by_uid.pop(uid, None)
        self._seen.pop(uid, None)

    def clear(self) -> None:
        """Forget everything."""
        self._by_uid.clear()
        self._seen.clear()

    def review(
        self,
        task_of: Callable[[str], Task | None],
        job_of: Callable[[str], Job | None],
        *,
        now: float,
    ) -> None:
        """Hold back pods until the end of their back-off; drop those that have changed."""
        for uid, refusal in list(self._by_uid.items()):
            task = task_of(uid)
            if task is None:
                self.drop(uid)
                continue
            seen = _what_matters(task, job_of(task.job_key))
            if self._seen.setdefault(uid, seen) != seen or _is_settled(task, refusal):
                self.drop(uid)
                task.backoff_reason = ""
                continue
            until = refusal.until
            if until is None:
                until = now + refusal.interval_s
                self._by_uid[uid] = replace(refusal, until=until)
            waits = now < until <= now + LONGEST_S  # a clock that was set back holds no pod
            task.backoff_reason = refusal.text if waits else ""


def _is_settled(task: Task, refusal: PodBackoff) -> bool:
    """Tell whether the refused bind or eviction is no longer desired."""
    return task.deleting or (refusal.is_bind and bool(task.fact_node))


def _what_matters(task: Task, job: Job | None) -> object:
    """Return the fields whose change makes another result likely, as a comparable value."""
    of_group = (job.uid, job.queue, job.min_available, job.priority) if job is not None else None
    return (task.task_class, task.labels, task.gated, task.priority, task.preemptable, of_group)
