"""Places of jobs in the lines of their queues, as one session finds them."""

from collections import Counter

from services.scheduler.engine.jobs.parking import Parking
from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.placement.hooks import Combined


class Places:
    """Counts turns. Parked jobs stand in line as if they had had theirs."""

    def __init__(self, parking: Parking, hooks: Combined) -> None:
        self._parking = parking
        self._hooks = hooks
        self._turns: Counter[str] = Counter()
        self._places: dict[str, int] = {}

    def turn(self, job: Job) -> None:
        """Note that it is a job's turn; the first one counts."""
        if job.key not in self._places:
            self._turns[job.queue] += 1
            self._places[job.key] = self._turns[job.queue] + self._parked_ahead(job)

    def of(self, job: Job) -> int:
        """Return a job's place in its queue, 0 when it had no turn."""
        return self._places.get(job.key, 0)

    def _parked_ahead(self, job: Job) -> int:
        parking = self._parking
        if not len(parking):
            return 0
        order = self._hooks.job_order(job)
        if job.is_pending:
            return parking.entering.ahead(job.queue, order)
        # All that wait before the gate of the queue are asked before any behind it.
        return parking.entering.count(job.queue) + parking.placing.ahead(job.queue, order)
