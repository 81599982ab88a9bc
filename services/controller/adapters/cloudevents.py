"""The CloudEvent of a job's new phase."""

from typing import Any

import msgspec

from shared.api.batch import Job, JobStatus
from shared.api.time import format_micros

JOB_PHASE = "job-phase"


def job_phase(job: Job, *, was: str, status: JobStatus, now: float) -> tuple[str, bytes]:
    """Return (event type, CloudEvent in structured JSON)."""
    phase = status.state.phase.value if status.state.phase is not None else ""
    event: dict[str, Any] = {
        "specversion": "1.0",
        "id": f"{job.metadata.uid}-{status.version}-{phase}",
        "source": "pumice/controller",
        "type": JOB_PHASE,
        "subject": job.metadata.key,
        "time": format_micros(now),
        "datacontenttype": "application/json",
        "data": {
            "job": job.metadata.key,
            "uid": job.metadata.uid,
            "queue": job.spec.queue,
            "from": was,
            "to": phase,
            "reason": status.state.reason,
            "message": status.state.message,
            "version": status.version,
            "retryCount": status.retry_count,
        },
    }
    return JOB_PHASE, msgspec.json.encode(event)
