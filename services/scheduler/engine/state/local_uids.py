"""The uids of the objects in a cluster state, for the audit against STATE."""

from collections.abc import Mapping

from services.scheduler.engine.state.cluster_state import ClusterState
from shared.api import kinds


def local_uids(state: ClusterState) -> Mapping[str, Mapping[str, str]]:
    """Return the uid of each pod, PodGroup and queue by kind and key.

    Includes objects that were folded but do not count, or that cannot be read.
    """
    found = {
        kinds.POD.token: {task.key: task.uid for task in state.tasks()},
        **state.groups.uids(),
        kinds.QUEUE.token: {name: queue.uid for name, queue in state.jobs.queues.items()},
    }
    for kind, objects in found.items():
        objects.update(state.quarantined.get(kind, {}))
    return found
