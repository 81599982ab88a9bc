"""autoscaling: gangs that wait for nodes have autoscalers add them, whole gangs only.

The annotation `pumice.dev/autoscaling` of a Job, PodGroup or queue says how; see
docs/autoscalers.md. `pods` shows all pods of a gang that waits for nodes as unschedulable, which is
what Karpenter and Cluster Autoscaler look for, and no pod that waits for anything else.
"""

from typing import Final

from pumice.plugins import Arguments, Cluster, Hooks, Job
from services.scheduler.policy.arguments import BadArgument, text
from shared.api import keys

NONE: Final = "none"
PODS: Final = "pods"
_UNSCHEDULABLE: Final = "Unschedulable"


class Autoscaling:
    """Shows autoscalers which gangs wait for nodes."""

    name = "autoscaling"

    def __init__(self, arguments: Arguments) -> None:
        """Read `autoscaling.by`: what counts for queues and jobs without the annotation."""
        self._default = text(arguments, "autoscaling.by", NONE)
        if not _is_known(self._default):
            raise BadArgument(f"autoscaling.by: {self._default!r} is neither {NONE} nor {PODS}")

    def contribute(self, hooks: Hooks, cluster: Cluster) -> None:
        """Add the reason that pods show while they wait."""
        self._cluster = cluster
        hooks.waiting_reason(lambda job: None if self.by(job) == NONE else _UNSCHEDULABLE)

    def by(self, job: Job) -> str:
        """Return how autoscalers learn of a job: by its annotation, its queue's, or the default.

        An unknown value of an annotation counts as absent.
        """
        queue = self._cluster.queue(job.queue)
        for annotations in (job.annotations, queue.annotations if queue is not None else {}):
            stated = annotations.get(keys.AUTOSCALING, "")
            if _is_known(stated):
                return stated
        return self._default


def _is_known(by: str) -> bool:
    return by in {NONE, PODS}
