"""A job's pods, made of its tasks' templates (J31, J32).

`PodBuilder` decodes a task's template once and makes all edits that its pods have in common;
its `body` adds what only one pod has. The common part is kept as bytes: decoding it again
(some 10 µs) is the cheapest deep copy there is, so that one process makes several thousand pods a
second.
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from shared.api import keys, kinds
from shared.api.batch import Job, TaskSpec
from shared.api.scheduling import podgroup_of
from shared.jobplugins.catalogue import plugins_of
from shared.jobplugins.interface import Companion, JobPlugin, add
from shared.jobs.users import without_user

INHERITED: Final = (
    keys.PREEMPTABLE,
    keys.COOLDOWN_TIME,
    keys.REVOCABLE_ZONE,
    keys.USER,
)
"""Annotations of the job that its pods carry too; of the two disruption budgets only one (J31)."""


class PodBuilder:
    """Makes the pods of one task; the job has its defaults filled in and is valid.

    `group` is the name of the job's PodGroup where that is not the usual one.
    """

    def __init__(
        self, job: Job, task: TaskSpec, *, forwarding: bool = False, group: str = ""
    ) -> None:
        self._job = job
        self.task = task
        self._plugins: Sequence[tuple[JobPlugin, Sequence[str]]] = [
            (plugin, arguments) for _, plugin, arguments in plugins_of(job)
        ]
        common = _common(job, task, forwarding=forwarding, group=group or group_name(job))
        for plugin, arguments in self._plugins:
            plugin.edit_task(common, job, task, arguments)
        self._common = msgspec.json.encode(common)

    def body(self, index: int) -> bytes:
        """Return the pod with `index` as the API server wants it."""
        job, task = self._job, self.task
        pod: dict[str, Any] = msgspec.json.decode(self._common)
        metadata = pod["metadata"]
        metadata["name"] = f"{job.metadata.name}-{task.name}-{index}"
        metadata["annotations"][keys.TASK_INDEX] = str(index)
        metadata["labels"][keys.TASK_INDEX] = str(index)
        if task.partition_policy is not None:
            metadata["labels"][keys.PARTITION_ID] = _partition(
                index, task.partition_policy.partition_size
            )
        for plugin, arguments in self._plugins:
            plugin.edit_pod(pod, job, task, index, arguments)
        return msgspec.json.encode(pod)


def _partition(index: int, size: int) -> str:
    """Return the id of a pod's partition; 0 where a size or index makes none (J32)."""
    return str(index // size) if size > 0 and index >= 0 else "0"


def group_name(job: Job) -> str:
    """Return the name of the PodGroup that is made for a job (J27)."""
    return podgroup_of(job.metadata.name, job.metadata.uid)


def owner_references(job: Job) -> list[dict[str, Any]]:
    """Return the owner reference that everything made for a job carries."""
    return [msgspec.to_builtins(kinds.JOB.controller_reference(job.metadata))]


def claims(job: Job) -> list[Companion]:
    """Return the claims to create for volumes that bring their own spec (J30)."""
    return [
        Companion(
            kind=kinds.PVC,
            name=claim_name(job, index),
            body={"spec": msgspec.json.decode(volume.volume_claim)},
            keep=True,
        )
        for index, volume in enumerate(job.spec.volumes)
        if not isinstance(volume.volume_claim, msgspec.UnsetType)
    ]


def claim_name(job: Job, index: int) -> str:
    """Return the name of the claim behind `spec.volumes[index]`."""
    return job.spec.volumes[index].volume_claim_name or made_up_claim_name(job, index)


def claim_names(job: Job) -> list[str]:
    """Return the names of the claims of a job, in the order of its volumes."""
    return [claim_name(job, index) for index in range(len(job.spec.volumes))]


def made_up_claim_name(job: Job, index: int) -> str:
    """Return the name of the claim of `spec.volumes[index]` when the user gives it none (J30).

    Volcano draws it; here it follows from uid and position, so that a crash, or a user who applies
    the job again without it, leads to the same claim.
    """
    return f"{job.metadata.name}-pvc-{_tag(job, f'claim-{index}')}"


def _tag(job: Job, what: str) -> str:
    """Return twelve letters that are always the same for the same thing of the same job."""
    seed = f"{job.metadata.uid}/{what}".encode()
    return f"{zlib.crc32(seed):08x}{zlib.adler32(seed) & 0xFFFF:04x}"


def _common(job: Job, task: TaskSpec, *, forwarding: bool, group: str) -> dict[str, Any]:
    template = msgspec.json.decode(task.template)
    spec = template.get("spec") or {}
    metadata = template.get("metadata") or {}
    if job.spec.scheduler_name and not spec.get("schedulerName"):
        spec["schedulerName"] = job.spec.scheduler_name
    if job.spec.priority_class_name and not spec.get("priorityClassName"):
        spec["priorityClassName"] = job.spec.priority_class_name
    if spec.get("hostNetwork") and not spec.get("dnsPolicy"):
        spec["dnsPolicy"] = "ClusterFirstWithHostNet"
    _mount(job, spec)
    annotations = {
        name: value
        for name, value in metadata.items()
        if name not in {"name", "generateName", "uid", "resourceVersion", "creationTimestamp"}
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **annotations,
            "namespace": job.metadata.namespace,
            "labels": {
                **(metadata.get("labels") or {}),
                **_labels(job, task),
                **_forwarding(enabled=forwarding),
            },
            "annotations": {
                **without_user(metadata.get("annotations") or {}),
                **_annotations(job, task),
                keys.GROUP_NAME: group,
                **_forwarding(enabled=forwarding),
            },
            "ownerReferences": owner_references(job),
        },
        "spec": spec,
    }


def _forwarding(*, enabled: bool) -> dict[str, str]:
    return {keys.JOB_FORWARDING: "true"} if enabled else {}


def _mount(job: Job, spec: dict[str, Any]) -> None:
    """Mount the job's volumes into the containers, not into init containers (J30)."""
    names = [
        f"{job.metadata.name}-{_tag(job, f'volume-{i}')}" for i in range(len(job.spec.volumes))
    ]
    for name, claim, volume in zip(names, claim_names(job), job.spec.volumes, strict=True):
        add(spec, "volumes", {"name": name, "persistentVolumeClaim": {"claimName": claim}})
        for container in spec.get("containers") or ():
            add(container, "volumeMounts", {"name": name, "mountPath": volume.mount_path})


def _labels(job: Job, task: TaskSpec) -> dict[str, str]:
    """J32, without what differs from pod to pod."""
    on_job = job.metadata.labels
    copied = {n: on_job[n] for n in (keys.PREEMPTABLE, keys.COOLDOWN_TIME) if n in on_job}
    return {
        keys.JOB_NAME: job.metadata.name,
        keys.JOB_NAMESPACE: job.metadata.namespace,
        keys.QUEUE_NAME: job.spec.queue,
        keys.TASK_SPEC: task.name,
        **copied,
    }


def _annotations(job: Job, task: TaskSpec) -> dict[str, str]:
    """J31, without what differs from pod to pod."""
    on_job = job.metadata.annotations
    copied = {name: on_job[name] for name in _inherited(on_job)}
    if task.topology_policy is not None:
        copied[keys.NUMA_TOPOLOGY_POLICY] = task.topology_policy.value
    return {
        keys.TASK_SPEC: task.name,
        keys.JOB_NAME: job.metadata.name,
        keys.QUEUE_NAME: job.spec.queue,
        keys.JOB_VERSION: str(job.status.version),
        keys.TEMPLATE_UID: f"{job.metadata.name}-{task.name}",
        keys.JOB_RETRY_COUNT: str(job.status.retry_count),
        **copied,
    }


def _inherited(on_job: Mapping[str, str]) -> Iterable[str]:
    yield from (name for name in INHERITED if name in on_job)
    for name in (keys.JDB_MIN_AVAILABLE, keys.JDB_MAX_UNAVAILABLE):
        if name in on_job:
            yield name
            return
