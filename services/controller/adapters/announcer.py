"""The controller's events for subscribers: phases of jobs, states of queues.

The id of a job's event says which entry into which phase it is, so that one that is told again, by
a look that was repeated or by the successor of a process that died before it could tell, is stored
once.
"""

from typing import Final

from pumice.events import JobPhaseChanged, QueueStateChanged
from shared.api import time
from shared.api.batch import Job, JobStatus
from shared.api.scheduling import Queue, QueueState
from shared.bus.announcer import Announcer

_RECENT_S: Final = 100.0
"""The stream drops what it has seen for two minutes; beyond that a repetition would show."""


class ControllerEvents:
    """Turns what the controller has written into events."""

    def __init__(self, announcer: Announcer) -> None:
        self._announcer = announcer

    def phase(self, job: Job, *, was: str, status: JobStatus) -> None:
        """Announce that a job has entered a phase."""
        state = status.state
        phase = state.phase.value if state.phase is not None else ""
        event = JobPhaseChanged(
            job=job.metadata.key,
            uid=job.metadata.uid,
            phase=phase,
            previous=was,
            queue=job.spec.queue,
            reason=state.reason,
            message=state.message,
            version=status.version,
            retry_count=status.retry_count,
        )
        entry = f"{phase}-{status.retry_count}-{state.last_transition_time}"
        self._announcer.announce(event, f"{job.metadata.uid}/{entry}")

    def perhaps_untold(self, job: Job, *, now: float) -> None:
        """Announce the present phase of a job that came from another process, if it is fresh."""
        since = time.read(job.status.state.last_transition_time)
        if since is None or now - since > _RECENT_S:
            return
        before = job.status.conditions[-2].status if len(job.status.conditions) > 1 else ""
        self.phase(job, was=before, status=job.status)

    def queue(self, queue: Queue, *, was: QueueState | None, state: QueueState) -> None:
        """Announce the new state of a queue; `queue` is the object as it was written."""
        meta = queue.metadata
        event = QueueStateChanged(
            queue=meta.name, uid=meta.uid, state=state.value, previous=was.value if was else ""
        )
        entry = f"{state}-{meta.resource_version}" if was else f"{state}-first"
        self._announcer.announce(event, f"{meta.uid}/{entry}")
