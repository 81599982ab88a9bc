"""What a cluster state holds, by key and uid, for the audit of its service."""

from collections.abc import Mapping

from services.scheduler.engine.state.cluster_state import ClusterState
from shared.api import kinds


def held_uids(state: ClusterState) -> Mapping[str, Mapping[str, str]]:
    """Return the uid of each pod, PodGroup and queue by kind and key.

    Objects that were folded and do not count, or cannot be read, are among them.
    """
    groups = (job for job in state.jobs.all() if job.has_group)
    found = {
        kinds.POD.token: {task.key: task.uid for task in state.tasks()},
        kinds.PODGROUP.token: {job.key: job.uid for job in groups},
        kinds.QUEUE.token: {name: queue.uid for name, queue in state.jobs.queues.items()},
    }
    for kind, objects in found.items():
        objects.update(state.quarantined.get(kind, {}))
    return found
