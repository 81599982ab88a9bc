"""Problems of a Job, as the controller writes them on the job itself.

The rules are admission's (`shared.jobs.rules`): they are applied again here, because there may be
no webhook, or it was away. A job with problems is held in Pending with the first of them in its
state, and nothing is made for it; editing the job is what lets it go on.
"""

import msgspec

from services.controller.job.podtemplate import made_up_claim_name
from shared.api.batch import Job, VolumeSpec
from shared.api.scheduling import Queue
from shared.jobs.problems import texts
from shared.jobs.rules import job_problems, queue_problems


def problems(job: Job) -> tuple[str, ...]:
    """Return what is wrong with the spec, each as `field: why`; empty when the job can run.

    `job` has its defaults filled in.
    """
    return texts(job_problems(_as_submitted(job)))


def _as_submitted(job: Job) -> Job:
    """Take out the names that the controller gave to claims: beside a claim they are a conflict."""

    def volume(index: int, given: VolumeSpec) -> VolumeSpec:
        ours = given.volume_claim_name == made_up_claim_name(job, index)
        return msgspec.structs.replace(given, volume_claim_name="") if ours else given

    volumes = tuple(volume(index, given) for index, given in enumerate(job.spec.volumes))
    if volumes == job.spec.volumes:
        return job
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, volumes=volumes))


def queue_problem(name: str, queue: Queue | None, *, is_leaf: bool) -> str:
    """Return why a new job cannot enter its queue, "" if it can (W24, J22)."""
    found = queue_problems(
        name,
        queue.status.state if queue is not None else None,
        exists=queue is not None,
        children=0 if is_leaf else 1,
    )
    return next((str(problem) for problem in found), "")
