"""The PodGroup that stands for a job before the scheduler (J27 to J29)."""

from collections.abc import Mapping
from typing import Final

import msgspec

from services.controller.job.minresources import least_started, min_resources, pod_usage
from services.controller.job.podtemplate import group_name, owner_references
from shared.api import keys, kinds
from shared.api.autoscaling import NODES_NEEDED
from shared.api.base import Json
from shared.api.batch import Job, TaskSpec
from shared.api.patch import merge_patch
from shared.api.scheduling import (
    DEFAULT_QUEUE,
    NetworkTopology,
    PodGroup,
    PodGroupCondition,
    PodGroupConditionType,
    PodGroupPhase,
    PodGroupSpec,
)
from shared.jobs.templates import read_template

_INTERNAL: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""An annotation with the job's own manifest, which must not be copied to other objects."""


def group_spec(job: Job, priorities: Mapping[str, int]) -> Json:
    """Return the spec that the job's PodGroup should have; `job` has its defaults and is valid."""
    spec = job.spec
    templates = {task.name: read_template(task).spec for task in spec.tasks}
    desired: Json = {
        "minMember": least_started(spec),
        "minTaskMember": {task.name: task.min_available or 0 for task in spec.tasks},
        "queue": spec.queue,
        "minResources": min_resources(
            spec,
            {name: pod_usage(template) for name, template in templates.items()},
            priorities,
            {
                name: template.priority_class_name or spec.priority_class_name
                for name, template in templates.items()
            },
        ),
    }
    if spec.priority_class_name:
        desired["priorityClassName"] = spec.priority_class_name
    if spec.network_topology is not None:
        desired["networkTopology"] = _topology(spec.network_topology)
    if subgroups := [_subgroup(task) for task in spec.tasks if task.partition_policy is not None]:
        desired["subGroupPolicy"] = subgroups
    return desired


def _subgroup(task: TaskSpec) -> Json:
    """J29: the partitions of a task are placed together."""
    policy = task.partition_policy
    assert policy is not None, "only tasks with partitions have a subgroup"
    desired: Json = {
        "name": task.name,
        "subGroupSize": policy.partition_size,
        "minSubGroups": policy.min_partitions,
        "labelSelector": {"matchLabels": {keys.TASK_SPEC: task.name}},
        "matchLabelKeys": [keys.PARTITION_ID],
    }
    if policy.network_topology is not None:
        desired["networkTopology"] = _topology(policy.network_topology)
    return desired


def _topology(desired: NetworkTopology) -> Json:
    """Return a topology with an explicit mode, which a view omits when it is the default."""
    return {"mode": desired.mode.value, **msgspec.to_builtins(desired)}


class DesiredGroupSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The spec that a job's PodGroup should have; it changes with the job's spec alone."""

    plain: Json
    typed: PodGroupSpec


def desired_group(job: Job, priorities: Mapping[str, int]) -> DesiredGroupSpec:
    """Return the desired spec of a job's PodGroup; takes about 0.2 ms per task."""
    plain = group_spec(job, priorities)
    return DesiredGroupSpec(plain=plain, typed=msgspec.convert(plain, PodGroupSpec))


def group_body(job: Job, desired: DesiredGroupSpec) -> Json:
    """Return the PodGroup to create: the job's labels and annotations go with it (J27)."""
    annotations = {k: v for k, v in job.metadata.annotations.items() if k != _INTERNAL}
    return {
        "apiVersion": kinds.PODGROUP.api_version,
        "kind": kinds.PODGROUP.kind,
        "metadata": {
            "name": group_name(job),
            "namespace": job.metadata.namespace,
            **({"labels": dict(job.metadata.labels)} if job.metadata.labels else {}),
            **({"annotations": annotations} if annotations else {}),
            "ownerReferences": owner_references(job),
        },
        "spec": desired.plain,
    }


def group_patch(group: PodGroup, desired: DesiredGroupSpec, job: Job) -> Json:
    """Return the merge patch for the job's PodGroup, empty if it is as desired.

    Of the job's annotations the wall time is copied to the group when it changes.

    Fields are compared as typed values, so that a default that the API server filled in is no
    difference. ⚠ An encoded view cannot tell: it leaves out a default only when it is the very
    same object.
    """
    limit, shown = (o.metadata.annotations.get(keys.MAX_RUNTIME) for o in (job, group))
    notes = {} if limit == shown else {"metadata": {"annotations": {keys.MAX_RUNTIME: limit}}}
    if desired.typed == group.spec:
        return notes
    before = msgspec.to_builtins(group.spec)
    patch: Json = {}
    for field in msgspec.structs.fields(PodGroupSpec):
        if getattr(desired.typed, field.name) == getattr(group.spec, field.name):
            continue
        if field.name == "queue" and desired.typed.queue == DEFAULT_QUEUE:
            continue  # admission put the group into the queue of its namespace (W40)
        name = field.encode_name
        new, old = desired.plain.get(name), before.get(name)
        both = isinstance(new, dict) and isinstance(old, dict)
        patch[name] = merge_patch(old, new) if both else new
    return {**notes, "spec": patch} if patch else notes


def why_pending(group: PodGroup | None) -> PodGroupCondition | None:
    """Return the scheduler's last reason and message about a group that does not run yet (J34)."""
    if group is None or group.status.phase == PodGroupPhase.RUNNING:
        return None
    hold = [
        condition
        for condition in group.status.conditions
        if condition.status == "True" and condition.type != NODES_NEEDED
    ]
    latest = max(hold, key=lambda condition: condition.last_transition_time or "", default=None)
    if latest is None or latest.type == PodGroupConditionType.SCHEDULED:
        return None
    return latest
