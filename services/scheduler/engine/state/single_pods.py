"""Pods that are placed one by one, as by Volcano's agent-scheduler (Y01).

To the engine such a pod is a job of one task, in a queue that is always open. Neither exists in the
cluster: nothing is read of PodGroups and queues, and nothing is written to them.
"""

from collections.abc import Collection
from typing import Final

from services.scheduler.engine.jobs.jobs import Jobs
from shared.api.core import Pod
from shared.api.meta import ObjectMeta
from shared.api.scheduling import (
    PodGroup,
    PodGroupPhase,
    PodGroupSpec,
    PodGroupStatus,
    Queue,
    QueueState,
    QueueStatus,
)

_QUEUE: Final = "single-pods"


class SinglePods:
    """Gives each pod of the scheduler a job of its own, under the key of the pod."""

    def __init__(self, jobs: Jobs, scheduler_names: Collection[str]) -> None:
        self._jobs = jobs
        self._names = scheduler_names
        jobs.put_queue(
            _QUEUE,
            Queue(metadata=ObjectMeta(name=_QUEUE), status=QueueStatus(state=QueueState.OPEN)),
        )

    def put(self, key: str, pod: Pod) -> None:
        """Make the pod's job, unless it is there."""
        job = self._jobs.get(key)
        known = job is not None and job.has_group and job.uid == pod.metadata.uid
        if pod.spec.scheduler_name in self._names and not known:
            self._jobs.put_group(key, _group_of(pod))

    def remove(self, key: str) -> None:
        """Forget the pod's job."""
        self._jobs.remove_group(key)


def _group_of(pod: Pod) -> PodGroup:
    """Return the PodGroup that a pod would have: Inqueue, with a minimum of one pod."""
    meta = pod.metadata
    return PodGroup(
        metadata=ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            creation_timestamp=meta.creation_timestamp,
        ),
        spec=PodGroupSpec(
            min_member=1, queue=_QUEUE, priority_class_name=pod.spec.priority_class_name
        ),
        status=PodGroupStatus(phase=PodGroupPhase.INQUEUE),
    )
