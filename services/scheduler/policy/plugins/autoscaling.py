"""autoscaling: gangs that wait for nodes have autoscalers add them, whole gangs only.

The annotation `pumice.dev/autoscaling` of a Job, PodGroup or queue says how; see
docs/autoscalers.md. `pods` shows all pods of a gang that waits for nodes as unschedulable, which is
what Karpenter and Cluster Autoscaler look for, and no pod that waits for anything else. The name of
a provisioning class has the controller create a ProvisioningRequest for the gang.
"""

from collections.abc import Mapping
from typing import Final

from pumice.plugins import Arguments, Cluster, Condition, Hooks, Job, Task
from services.scheduler.policy.arguments import BadArgument, text
from services.scheduler.policy.states.provisioning import ProvisioningRequests
from shared.api import keys
from shared.api.autoscaling import (
    CLASS_NAME,
    CONSUMES,
    NODES_NEEDED,
    POD_SETS_MAX,
    NeededPods,
    ProvisioningStage,
    is_class,
    needed_text,
    stage_of,
)

NONE: Final = "none"
PODS: Final = "pods"
_UNSCHEDULABLE: Final = "Unschedulable"
_PROVISIONING: Final = "WaitingForProvisioning"
"""Reason of pods whose nodes are requested: one that has an autoscaler add nodes would add twice.
"""
_NOT_NEEDED: Final = "NotNeeded"


class Autoscaling:
    """Shows autoscalers which gangs wait for nodes."""

    name = "autoscaling"

    def __init__(self, arguments: Arguments) -> None:
        """Read `autoscaling.by`: what counts for queues and jobs without the annotation."""
        self._default = text(arguments, "autoscaling.by", NONE)
        if not _is_known(self._default):
            raise BadArgument(
                f"autoscaling.by: {self._default!r} is neither {NONE}, {PODS} nor the name of a "
                "provisioning class such as check-capacity.autoscaling.x-k8s.io"
            )

    def contribute(self, hooks: Hooks, cluster: Cluster) -> None:
        """Add what pods show while they wait, and the conditions of gangs that need nodes."""
        self._cluster = cluster
        self._requests = cluster.store(ProvisioningRequests)
        hooks.waiting_reason(self._reason)
        hooks.conditions(self._condition)
        hooks.job_outlook(self._outlook)
        hooks.job_watched(lambda job: self._class_of(job) != "")
        hooks.binding(self._annotations)

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

    def _class_of(self, job: Job) -> str:
        """Return the provisioning class of a job, "" for none."""
        by = self.by(job)
        return "" if by in {NONE, PODS} else by

    def _reason(self, job: Job) -> str | None:
        if self.by(job) == NONE:
            return None
        return _PROVISIONING if self._class_of(job) and not job.is_ready else _UNSCHEDULABLE

    def _condition(self, job: Job) -> Condition | None:
        """Return whether a gang needs nodes; surplus pods of one that has its minimum do not."""
        name = self._class_of(job)
        if not name:
            return None
        needed: dict[int, NeededPods] = {}
        for task in () if job.is_ready else self._cluster.waiting_for_nodes(job):
            known = needed.get(task.task_class.id, NeededPods(0, task.name))
            needed[task.task_class.id] = known._replace(pods=known.pods + 1)
        if not needed:
            return Condition(NODES_NEEDED, "False", _NOT_NEEDED, "")
        sets = list(needed.values())[:POD_SETS_MAX]
        return Condition(NODES_NEEDED, "True", name, needed_text(sets))

    def _outlook(self, job: Job) -> str | None:
        """Return how far the request of a waiting gang has come."""
        if not self._class_of(job) or job.is_ready:
            return None
        request = self._requests.of(job.uid)
        if request is None:
            return None
        stage, condition = stage_of(request)
        provisioned = request.pods if stage is ProvisioningStage.PROVISIONED else 0
        words = f"waits for nodes: ProvisioningRequest {request.metadata.name}"
        if stage is not ProvisioningStage.PROVISIONED:
            words += f" {_WORDS[stage]}"
        why = (
            f" ({condition.message})"
            if condition is not None and stage is ProvisioningStage.FAILED
            else ""
        )
        return f"{words}{why}, provisioned {provisioned} of {request.pods}"

    def _annotations(self, task: Task) -> Mapping[str, str]:
        """Have a pod use the nodes that were provisioned for its gang."""
        job = self._cluster.job_of(task)
        request = self._requests.of(job.uid) if job is not None else None
        if request is None or stage_of(request)[0] is not ProvisioningStage.PROVISIONED:
            return {}
        name = request.spec.provisioning_class_name
        return {CONSUMES: request.metadata.name, CLASS_NAME: name}


_WORDS: Final[Mapping[ProvisioningStage, str]] = {
    ProvisioningStage.NEW: "is not accepted yet",
    ProvisioningStage.ACCEPTED: "is accepted",
    ProvisioningStage.BOOKING_EXPIRED: "has expired",
    ProvisioningStage.CAPACITY_REVOKED: "was revoked",
    ProvisioningStage.FAILED: "has failed",
}


def _is_known(by: str) -> bool:
    return by in {NONE, PODS} or is_class(by)
