"""Binds and evictions that the binder could not carry out: when each is asked for again.

What the API server refuses it refuses again, so that asking in every cycle is noise that never
ends. A pod whose bind or eviction failed is held back, at first for `FIRST_S`, then twice as long
each time up to `LONGEST_S`. All others go on, of its gang as well, as far as the gang's minimum
allows. It is forgotten as soon as the pod or its PodGroup changes in what a decision depends on, or
the pod is gone. A conflict is no refusal: the facts decide at once.

Part of the cluster state: the scheduler's worker notes outcomes, and reviews with `now` before it
decides. Times are those of the scheduler alone, since a binder's clock may be another.
"""

from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.tasks.task import Task

FIRST_S: Final = 1.0
LONGEST_S: Final = 300.0
_DOUBLED: Final = 16
"""Beyond so many doublings the longest interval holds in any case."""


class PodBackoff(Struct, frozen=True, kw_only=True):
    """How often one pod was refused in a row, and until when it is held back."""

    uid: str
    intent: str
    why: str
    is_bind: bool = True
    by: str = "the API server"
    """The message of the refusal."""
    times: int = 1
    until: float | None = None
    """Unix seconds; None: not reviewed since it was noted."""

    @property
    def interval_s(self) -> float:
        """Return for how long it is held back."""
        return min(FIRST_S * 2.0 ** min(self.times - 1, _DOUBLED), LONGEST_S)

    @property
    def text(self) -> str:
        """Return the message to users; it stays the same for the whole interval."""
        what = "bind" if self.is_bind else "evict"
        why = self.why or "no reason was given"
        return f"{self.by} refused to {what} it: {why}: tried again in {self.interval_s:.0f} s"


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

    def restore(self, refusals: Iterable[PodBackoff]) -> None:
        """Take over what another cluster state remembered."""
        self._by_uid.update((refusal.uid, refusal) for refusal in refusals)

    def note(
        self, uid: str, intent: str, why: str, *, is_bind: bool, by: str = "the API server"
    ) -> None:
        """Note that a bind or an eviction was not carried out; the same intent counts once."""
        before = self._by_uid.get(uid)
        if before is not None and before.intent == intent:
            return
        same = before is not None and before.is_bind is is_bind
        times = before.times + 1 if before is not None and same else 1
        self._by_uid[uid] = PodBackoff(
            uid=uid, intent=intent, why=why, is_bind=is_bind, by=by, times=times
        )

    def drop(self, uid: str) -> None:
        """Forget: it was carried out, or the world is another."""
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
        """Hold back the pods whose time has not come; forget those that have changed."""
        for uid, refusal in list(self._by_uid.items()):
            task = task_of(uid)
            if task is None:
                self.drop(uid)
                continue
            seen = _what_matters(task, job_of(task.job_key))
            if self._seen.setdefault(uid, seen) != seen or _is_settled(task, refusal):
                self.drop(uid)
                task.held = ""
                continue
            until = refusal.until
            if until is None:
                until = now + refusal.interval_s
                self._by_uid[uid] = replace(refusal, until=until)
            waits = now < until <= now + LONGEST_S  # a clock that was set back holds no pod
            task.held = refusal.text if waits else ""


def _is_settled(task: Task, refusal: PodBackoff) -> bool:
    """Tell whether what was refused is no longer wanted."""
    return task.deleting or (refusal.is_bind and bool(task.fact_node))


def _what_matters(task: Task, job: Job | None) -> object:
    """Return what may make another answer likely; equal as long as it has not changed."""
    of_group = (job.uid, job.queue, job.min_available, job.priority) if job is not None else None
    return (task.task_class, task.labels, task.gated, task.priority, task.preemptable, of_group)
