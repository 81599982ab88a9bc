"""When a finished job is due for deletion (J38, G01)."""

from services.controller.job.phases import FINISHED
from shared.api import time
from shared.api.batch import Job


def due_at(job: Job) -> float | None:
    """Return the Unix time at which a job is to be deleted, None for never or not yet known.

    `ttlSecondsAfterFinished` runs from the job's entry into Completed, Failed or Terminated. An
    Aborted job is not finished, since it can be resumed (G01 ⚠). All of it follows from the object,
    so a new process deletes at the same moment. Raises ValueError for a time that is none.
    """
    ttl_s, state = job.spec.ttl_seconds_after_finished, job.status.state
    if ttl_s is None or state.phase not in FINISHED or state.last_transition_time is None:
        return None
    if job.metadata.deletion_timestamp is not None:
        return None
    return time.parse(state.last_transition_time) + ttl_s
