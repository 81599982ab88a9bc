"""What a pod's object says of evictions: whether it may ask for them, and what protects it."""

import math
from typing import Final

from services.scheduler.engine.tasks import Task
from shared.api import keys
from shared.api import time as times
from shared.api.core import Pod, PodCondition
from shared.model import durations

_PREEMPTED: Final = "PreemptionByScheduler"


def describe_eviction(task: Task, pod: Pod) -> None:
    """Fill in the fields of a task that rules of eviction read."""
    conditions = {condition.type: condition for condition in pod.status.conditions}
    task.preempts = pod.spec.preemption_policy != "Never"
    task.pod_priority = pod.spec.priority or 0
    task.started = _time(pod.status.start_time, math.inf)
    task.cools_until = _cools_until(pod, conditions.get("PodScheduled"))
    target = conditions.get("DisruptionTarget")
    task.displaced = (
        pod.metadata.deletion_timestamp is not None
        and target is not None
        and (target.status, target.reason) == ("True", _PREEMPTED)
    )


def _cools_until(pod: Pod, scheduled: PodCondition | None) -> float:
    """Return until when a running pod is protected after it was scheduled (PL15).

    The label comes before the annotation; a duration that cannot be read protects nothing.
    """
    meta = pod.metadata
    text = meta.labels.get(keys.COOLDOWN_TIME, meta.annotations.get(keys.COOLDOWN_TIME))
    cooldown_s = None if text is None else durations.parse(text)
    if cooldown_s is None or pod.status.phase != "Running":
        return -math.inf
    if scheduled is None or scheduled.status != "True":
        return -math.inf
    return _time(scheduled.last_transition_time, -math.inf) + cooldown_s


def _time(text: str | None, absent: float) -> float:
    if text is None:
        return absent
    try:
        return times.parse(text)
    except ValueError:
        return absent  # the API server would not have written it
