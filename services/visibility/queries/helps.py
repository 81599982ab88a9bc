"""Changes with which a job starts now, each tried before it is named.

What could help follows from the gate and from what it found short (`remedies`). A rehearsal with
the change then decides until nothing more happens, beside all other jobs that wait. A change is
named only if the job starts in it, and of several of one kind the smallest.
"""

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.plan import JobExplanation, Plan
from services.scheduler.engine.session.session import Session
from services.visibility.queries.cluster_mirror import ClusterMirror
from services.visibility.queries.rehearsal import Rehearsal
from services.visibility.queries.remedies import (
    Change,
    Remedies,
    end_of,
    nothing,
    without_leaving,
)
from services.visibility.queries.survey import DecisionPolicy
from shared.model.status import TaskStatus

TRIALS_MAX: Final = 32
"""Most rehearsals for one explanation: each takes as long as a cycle, or a few."""
_ENDS: Final = (1, 3, 10)


class BlockedJob(Struct, frozen=True, kw_only=True):
    """A job, and the gate that stops it."""

    job: str
    why: JobExplanation
    holders: Sequence[str] = ()
    """PodGroups of the jobs that hold what is short, those that hold most first."""


class Helps(Struct, frozen=True, kw_only=True):
    """What lets a job start, as rehearsals have shown."""

    changes: tuple[str, ...] = ()
    """Each of them is enough."""
    ends: int = 0
    """With the ends of so many jobs that hold most it starts; 0: not with the ends of any."""
    leaving: int = 0
    """With the ends of so many pods that terminate it starts; 0: not with these."""
    starts: bool = False
    """Whether it starts as things are."""
    evicted: int = 0
    """Pods that are evicted for that."""


def helps(
    mirror: ClusterMirror,
    policy: DecisionPolicy,
    stop: BlockedJob,
    *,
    now: float,
    out_of_time: Callable[[], bool],
) -> Helps:
    """Return the changes of which each lets the job start, the smallest of each kind."""
    job = mirror.state.jobs.get(stop.job)
    if job is None:
        return Helps()
    trials = Trials(mirror, policy, stop, now=now, out_of_time=out_of_time)
    if trials.starts(nothing):
        return Helps(starts=True, evicted=trials.evicted)
    leaving = sum(len(each.by_status[TaskStatus.RELEASING]) for each in mirror.state.jobs.all())
    if leaving and trials.starts(without_leaving):
        return Helps(leaving=leaving)
    remedies = Remedies(mirror, job, stop.why, trials.starts, now=now)
    ends, count = list[str](), 0
    for number in _ENDS:
        gone = stop.holders[:number]
        if len(gone) > count:
            count = len(gone)
            if trials.starts(end_of(gone)):
                what = "job that holds" if count == 1 else f"{count} jobs that hold"
                ends.append(f"the end of the {what} most of it")
                break
    return Helps(changes=(*remedies.found(), *ends), ends=count if ends else 0)


class Trials:
    """Rehearsals of changes, up to the limit of one explanation."""

    def __init__(
        self,
        mirror: ClusterMirror,
        policy: DecisionPolicy,
        stop: BlockedJob,
        *,
        now: float,
        out_of_time: Callable[[], bool],
    ) -> None:
        self._mirror = mirror
        self._policy = policy
        self._stop = stop
        self._now = now
        self._out_of_time = out_of_time
        self._left = TRIALS_MAX
        self.evicted = 0
        """Pods that the last rehearsal evicted."""

    def starts(self, change: Change) -> bool:
        """Return whether the job starts after a change; no where there is no time to try."""
        if not self._left or self._out_of_time():
            return False
        self._left -= 1
        stop, starts, is_stopped = self._stop, False, False
        job = self._mirror.state.jobs.get(stop.job)
        before = _placed(job) if job is not None and job.is_ready else -1

        def look(session: Session, plan: Plan) -> None:
            nonlocal starts, is_stopped
            found = session.job(stop.job)
            if found is not None and found.tasks:
                starts = session.hooks.job_ready(found) == 0 and _placed(found) > before
            why = next((why for why in plan.explanations if why.job == stop.job), None)
            is_stopped = why is not None and why.gate == stop.why.gate and not plan.evictions

        with Rehearsal(self._mirror, self._policy, now=self._now) as rehearsal:
            change(rehearsal)
            rehearsal.run(
                stop.job, look, is_over=lambda: starts or is_stopped or self._out_of_time()
            )
            self.evicted = len(rehearsal.evicted)
        return starts


def _placed(job: Job) -> int:
    return job.allocated_count
