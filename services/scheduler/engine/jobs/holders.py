"""Index of jobs with pods on nodes, by queue: evictions take their victims from these jobs.

Updated when a job changes, so a search for victims does not visit jobs that only wait.
"""

from collections.abc import Collection
from typing import Final

from services.scheduler.engine.jobs.records import Job
from shared.model.status import PREEMPTABLE, TaskStatus

MAY_GO: Final = tuple(status for status in TaskStatus if PREEMPTABLE[status])
"""The statuses of tasks that may be victims."""


def holds(job: Job) -> bool:
    """Tell whether tasks of a job could be victims."""
    return any(job.by_status[status] for status in MAY_GO)


class Holders:
    """The jobs with a bound or running task."""

    def __init__(self) -> None:
        self._by_queue: dict[str, dict[str, Job]] = {}
        self._queues: dict[str, str] = {}
        """Job → the queue under which it stands here."""

    def update(self, job: Job) -> None:
        """Update the index with a changed job."""
        before = self._queues.pop(job.key, None)
        if before is not None:
            del self._by_queue[before][job.key]
        if holds(job):
            self._queues[job.key] = job.queue
            self._by_queue.setdefault(job.queue, {})[job.key] = job

    def of(self, queue: str) -> Collection[Job]:
        """Return the jobs of a queue as of the beginning of the session, in no particular order."""
        return self._by_queue.get(queue, {}).values()
