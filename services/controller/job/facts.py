"""Facts about one job for one pass, as values made by the informers.

Pods are counted again for each pass, never by deltas (J26). `PodView` is the small part of a pod
that a job's life depends on, taken once per fact, so that a pass over a job of thousands of pods
touches no nested object. `JobFacts` is everything that one pass reads.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

import msgspec

from services.controller.job.group import DesiredGroupSpec
from shared.api import keys, time
from shared.api.batch import Command, Job
from shared.api.core import Pod, PodPhase
from shared.api.scheduling import PodGroup, Queue
from shared.model.numbers import whole

CompletedIndexes = Mapping[str, AbstractSet[int]]
"""Task → indexes that have succeeded at the job's version (`completed_indexes`)."""
NONE_COMPLETED: Final[CompletedIndexes] = {}


class PodView(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One pod of a job."""

    name: str
    uid: str
    rv: int = 0
    """resourceVersion as a number; compared for one uid only."""
    task: str = ""
    index: int = -1
    """Position in the task; -1 when the pod carries none."""
    partition: str = ""
    version: int = 0
    """The job's version at which the pod was made."""
    phase: str = PodPhase.PENDING
    deleting: bool = False
    out_of_sync: bool = False
    """Marked by a controller for deletion: its end is no eviction (J06, J08)."""
    exit_code: int = 0
    """Exit code of the first container, as Volcano reads it (J07)."""
    restarts: int = 0
    """Restarts summed over containers and init containers (J07)."""
    ready: bool = False
    """Running with all containers ready (J25)."""
    created: str = ""
    """creationTimestamp, for timeouts that are counted from it (J12)."""
    ended: str = ""
    """When the first container ended, for the same timeouts."""
    started: float = 0.0
    """When the kubelet took it, in Unix seconds; 0.0 before. Wall time counts from it."""


class JobFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one pass over a job reads."""

    job: Job
    """With its defaults filled in (`defaults`)."""
    problems: tuple[str, ...] = ()
    """Problems that `validate` found in its spec."""
    pods: Mapping[str, PodView]
    """By name; only pods whose controller is this job (by uid)."""
    group: PodGroup | None = None
    admitted: bool = False
    """Whether scheduling has admitted `group`; its status may not show it yet."""
    queue: Queue | None = None
    """The job's queue, None when no queue of that name is known."""
    queue_is_leaf: bool = True
    commands: tuple[Command, ...] = ()
    """Commands for this job, oldest first."""
    desired_group: DesiredGroupSpec | None = None
    """Spec that its PodGroup should have; None for a job with problems."""
    completed: CompletedIndexes = NONE_COMPLETED
    """Completed indexes; their pods may exist or not."""
    claims_missing: tuple[str, ...] = ()
    """Claims that its volumes name and that do not exist (J30)."""
    applied: int = 0
    """Digest of the plugins' objects that this process wrote last; 0 when it wrote none."""
    not_due: AbstractSet[str] = frozenset()
    """Names of pods whose creation is not retried yet (`rejected_creates`)."""
    rejection: tuple[str, str] = ("", "")
    """Reason and message of why pods are not created; empty if none waits."""
    interrupted: bool = False
    """Whether the last reconciliation of the job was interrupted."""


def pod_view(pod: Pod) -> tuple[str, PodView] | None:
    """Return (uid of the job, view) of a job's pod, or None when no job controls it (J08)."""
    owner = pod.metadata.controller
    annotations = pod.metadata.annotations
    if owner is None or owner.kind != "Job" or keys.JOB_NAME not in annotations:
        return None
    if not owner.api_version.startswith("batch.volcano.sh/"):
        return None
    statuses = pod.status.container_statuses
    ended = statuses[0].state.terminated if statuses else None
    phase = pod.status.phase or PodPhase.PENDING
    index = whole(annotations.get(keys.TASK_INDEX, ""))
    restarts, ready = 0, phase == PodPhase.RUNNING
    for status in statuses:
        restarts += status.restart_count
        ready = ready and status.ready
    for status in pod.status.init_container_statuses:
        restarts += status.restart_count
    return owner.uid, PodView(
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        rv=whole(pod.metadata.resource_version) or 0,
        task=annotations.get(keys.TASK_SPEC, ""),
        index=-1 if index is None else index,
        partition=pod.metadata.labels.get(keys.PARTITION_ID, ""),
        version=whole(annotations.get(keys.JOB_VERSION, "")) or 0,
        phase=phase,
        deleting=pod.metadata.deletion_timestamp is not None,
        out_of_sync=keys.OUT_OF_SYNC in annotations,
        exit_code=ended.exit_code if ended else 0,
        restarts=restarts,
        ready=ready,
        created=pod.metadata.creation_timestamp or "",
        ended=(ended.finished_at or "") if ended else "",
        started=time.read(pod.status.start_time) or 0.0,
    )


NONE_GONE: Final[Mapping[str, int]] = {}


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Pods by phase; a pod that is being deleted counts as terminating only."""

    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    unknown: int = 0
    terminating: int = 0
    by_task: Mapping[str, Mapping[str, int]] = {}
    """task → pod phase → count, without terminating pods."""

    def succeeded_of(self, task: str) -> int:
        """Return how many pods of `task` have succeeded."""
        return self.by_task.get(task, {}).get(PodPhase.SUCCEEDED, 0)


_FIELDS: Final[Mapping[str, str]] = {
    PodPhase.PENDING: "pending",
    PodPhase.RUNNING: "running",
    PodPhase.SUCCEEDED: "succeeded",
    PodPhase.FAILED: "failed",
}


def count(
    pods: Iterable[PodView],
    *,
    to_delete: frozenset[str] = frozenset(),
    gone: Mapping[str, int] = NONE_GONE,
) -> Counts:
    """Count `pods`; those named in `to_delete` count as terminating.

    `gone` has per task the number of succeeded pods that no longer exist (`completed_indexes`).
    """
    totals = dict.fromkeys((*_FIELDS.values(), "unknown"), 0)
    terminating = 0
    by_task: dict[str, dict[str, int]] = {}
    for pod in pods:
        if pod.deleting or pod.name in to_delete:
            terminating += 1
            continue
        totals[_FIELDS.get(pod.phase, "unknown")] += 1
        if pod.task:
            of_task = by_task.setdefault(pod.task, {})
            of_task[pod.phase] = of_task.get(pod.phase, 0) + 1
    for task, number in gone.items():
        totals["succeeded"] += number
        of_task = by_task.setdefault(task, {})
        of_task[PodPhase.SUCCEEDED] = of_task.get(PodPhase.SUCCEEDED, 0) + number
    return Counts(terminating=terminating, by_task=by_task, **totals)
