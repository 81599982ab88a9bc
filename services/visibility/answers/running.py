"""Jobs that have pods on nodes: what they hold, since when, and until when as is expected."""

import math
from collections.abc import Callable, Iterator

from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.resources.dimensions import quantity
from services.scheduler.engine.state.cluster_state import ClusterState
from services.scheduler.engine.tasks.task import Task
from services.visibility.answers.wording import meta_of, owner_of
from services.visibility.forecast.ends import stated_end
from shared.api.time import format_seconds
from shared.api.visibility import RunningJob
from shared.model.resources import PODS
from shared.model.status import HOLDS_RESOURCES

EndOf = Callable[[Job], float | None]
"""Returns when a running job is expected to end, in Unix seconds; None where that is not known."""


def running_jobs(state: ClusterState, ends: EndOf = stated_end) -> tuple[RunningJob, ...]:
    """Return jobs that hold places on nodes, by namespace and name."""
    found = (
        _running(job, list(_held(job)), state, ends) for job in state.jobs.all() if job.has_group
    )
    running = [job for job in found if job.pods]
    return tuple(sorted(running, key=lambda job: (job.metadata.namespace, job.metadata.name)))


def _held(job: Job) -> Iterator[Task]:
    for tasks, holds in zip(job.by_status, HOLDS_RESOURCES, strict=True):
        if holds:
            yield from tasks.values()


def _running(job: Job, held: list[Task], state: ClusterState, ends: EndOf) -> RunningJob:
    started = min((task.started for task in held), default=math.inf)
    is_known = math.isfinite(started)
    expected = ends(job) if held else None
    return RunningJob(
        metadata=meta_of(job),
        owner=owner_of(job),
        pod_group=job.name,
        queue=job.queue,
        priority=job.priority,
        pods=len(held),
        min_available=job.min_available,
        nodes=len({task.node for task in held}),
        allocated=_holds(job, state),
        running_since=format_seconds(started) if is_known else None,
        expected_end=format_seconds(expected) if expected is not None else None,
    )


def _holds(job: Job, state: ClusterState) -> dict[str, str]:
    amounts = zip(state.dimensions.names, job.allocated.tolist(), strict=False)
    return {name: quantity(name, held) for name, held in amounts if held > 0 and name != PODS}
