"""Tells of gangs that wait: by events once per cause, by explanations on the bus; for the worker.

A job that everything was told of may be parked: cycles do not look at it, and its wait goes on.
"""

from collections.abc import Sequence

from services.scheduler.engine.jobs.jobs import Jobs
from services.scheduler.engine.plan import Explanation, Plan
from services.scheduler.engine.session.waking import Parkable
from services.scheduler.wait_explanations import WaitExplanations
from services.scheduler.waiting import Waits
from shared.contracts.messages import WaitExplained


class ToldWaits:
    """Remembers the waits of jobs, and what was told of them."""

    def __init__(self, settle_s: float, *, explains: bool = True) -> None:
        """Explain on the bus why gangs wait, unless what waits are no PodGroups."""
        self._explains = explains
        self._waits = Waits(settle_s)
        self._explained = WaitExplanations(settle_s)

    def forget(self) -> None:
        """Tell everything anew: what was told before was another leader's word."""
        self._waits.forget()
        self._explained.forget()

    def read_again(self) -> None:
        """Go on with all waits although STATE is replayed; the bus may have lost explanations."""
        self._waits.resume_all()
        self._explained.forget()

    def is_reported(self, key: str) -> bool:
        """Tell whether subscribers know of a job's wait and its cause."""
        return self._waits.is_reported(key)

    def review(
        self, plan: Plan, jobs: Jobs, may_park: Sequence[Parkable], *, now: float, term: int
    ) -> tuple[list[Explanation], list[WaitExplained]]:
        """Return waits to report and to publish; park the jobs that nothing is left to say of."""
        left = jobs.parking.take_left()
        self._waits.resume(left)
        self._explained.resume(left)
        lasting = self._waits.lasting(plan.explanations, jobs, now=now)
        changes = self._explained.changes(
            plan.explanations if self._explains else (),
            jobs,
            now=now,
            cycle=plan.cycle,
            term=term,
        )
        for job, order, demand in may_park:
            if self._waits.is_reported(job.key) and jobs.park(job, order, demand, now=now):
                self._waits.park(job.key)
                self._explained.park(job.key)
        return lasting, changes
