"""Reading a pod: the fields of its task, and the annotations that become traits of its class (KY1).

Pods that carry none of those annotations, nearly all, share one class as if there were no traits.
"""

import math
from collections.abc import Mapping
from typing import Final

from pumice.plugins import Condition
from services.scheduler.engine.plan import bounded
from services.scheduler.engine.tasks.task import Task
from shared.api import keys
from shared.api import time as times
from shared.api.core import Pod, PodCondition
from shared.jobs import expected_durations
from shared.model import durations
from shared.model.numbers import parse_bool, whole
from shared.model.status import from_pod

_COST_LETTERS: Final = 11
_PREEMPTED: Final = "PreemptionByScheduler"

REVOCABLE: Final = keys.REVOCABLE_ZONE
"""Trait of pods that may run on nodes which are taken away again; its value is `*`."""
_AS_WRITTEN: Final = (
    keys.RESOURCE_STRATEGY_TYPE,
    keys.RESOURCE_STRATEGY_WEIGHT,
    keys.NUMA_TOPOLOGY_POLICY,
)


def traits_of(pod: Pod) -> dict[str, str]:
    """Return the traits that a pod's annotations give it."""
    annotations = pod.metadata.annotations
    if not annotations:
        return {}
    traits = {key: annotations[key] for key in _AS_WRITTEN if key in annotations}
    zone = annotations.get(keys.REVOCABLE_ZONE)
    if zone == "*" or (zone is None and parse_bool(annotations.get(keys.PREEMPTABLE))):
        traits[REVOCABLE] = "*"
    return traits


def fill_in(task: Task, key: str, pod: Pod) -> None:
    """Fill in what the pod alone says; its class and what the scheduler decided are not of it."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    group = pod.group_name
    task.uid = meta.uid
    task.key = key
    task.name = meta.name
    task.namespace = meta.namespace
    task.job_key = f"{meta.namespace}/{group}" if group else ""
    task.owner_job = meta.owner_job
    task.owned = meta.controller is not None
    task.role = meta.annotations.get(keys.TASK_SPEC) or meta.labels.get(keys.TASK_SPEC, "")
    task.priority = _priority(pod)
    task.priority_class = spec.priority_class_name
    task.index = _trailing_index(meta.name)
    task.created = meta.creation_timestamp or ""
    task.labels = meta.labels
    gates = [gate.name for gate in spec.scheduling_gates]
    task.gated = bool(gates)
    task.expected = expected_durations.of_pod(pod)
    task.queue_gated = gates == [keys.QUEUE_GATE]
    task.lifting = False
    task.backoff_reason = ""
    task.preemptable = _preemptable(pod)
    _describe_eviction(task, pod)
    task.deleting = meta.deletion_timestamp is not None
    task.fact_node = spec.node_name
    task.fact_status = from_pod(status.phase, deleting=task.deleting, has_node=bool(spec.node_name))
    task.shown, task.shown_since = _pod_scheduled(pod)
    task.last_condition = task.shown
    task.rv = meta.resource_version


def _describe_eviction(task: Task, pod: Pod) -> None:
    """Fill in the fields of a task that rules of eviction read."""
    conditions = {condition.type: condition for condition in pod.status.conditions}
    task.preempts = pod.spec.preemption_policy != "Never"
    task.pod_priority = pod.spec.priority or 0
    task.eviction_cost = stated_cost(pod.metadata.annotations)
    task.started = _time(pod.status.start_time, math.inf)
    task.cools_until = _cools_until(pod, conditions.get("PodScheduled"))
    target = conditions.get("DisruptionTarget")
    task.displaced = (
        pod.metadata.deletion_timestamp is not None
        and target is not None
        and (target.status, target.reason) == ("True", _PREEMPTED)
    )


def stated_cost(annotations: Mapping[str, str]) -> int | None:
    """Return the cost of an eviction that a pod or group states; None if none can be read.

    Kubernetes bounds its annotation to 32 bits and 11 characters, with a sign.
    """
    for key in (keys.EVICTION_COST, keys.POD_DELETION_COST):
        text = annotations.get(key, "")
        number = whole(text.removeprefix("-"))
        if number is not None and len(text) <= _COST_LETTERS:
            return -number if text.startswith("-") else number
    return None


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


def _priority(pod: Pod) -> int:
    """Return the task's priority: annotation, else the pod's own, else 1 (T04)."""
    text = pod.metadata.annotations.get(keys.TASK_PRIORITY)
    if text is not None:
        try:
            return int(text)
        except ValueError:
            pass  # an unreadable annotation counts as absent, as in Volcano
    return 1 if pod.spec.priority is None else pod.spec.priority


def _preemptable(pod: Pod) -> bool:
    """Return whether a pod may be a victim (T05); ⚠ it may unless it says no, a group may not."""
    for stated in (pod.metadata.annotations, pod.metadata.labels):
        if keys.PREEMPTABLE in stated:
            return bool(parse_bool(stated[keys.PREEMPTABLE]))
    return True


def _trailing_index(name: str) -> int:
    index = whole(name.rpartition("-")[2])
    return -1 if index is None else index


def _pod_scheduled(pod: Pod) -> tuple[Condition | None, str]:
    """Return a pod's PodScheduled and since when it is so."""
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled":
            stated = Condition(
                condition.type, condition.status, condition.reason, condition.message
            )
            return bounded(stated), condition.last_transition_time or ""
    return None, ""
