"""Which pods a transition of a job deletes (J16 to J21).

`to_delete_by_transition` is called once, when an action is carried out. `to_delete_by_status` needs
the recorded phase and version only, so that a process that starts after a crash between the two
finds the pods that are left to delete.
"""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from functools import partial

from services.controller.job import completed_indexes
from services.controller.job.facts import CompletedIndexes, PodView
from services.controller.job.phases import ALIVE, Do, KillScope, Retain, Transition
from services.controller.job.requests import JobRequest
from shared.api.batch import Job, JobPhase
from shared.api.core import PodPhase

FINISHED_PODS = frozenset({PodPhase.SUCCEEDED, PodPhase.FAILED})
_DIGITS = 10


def to_delete_by_transition(
    job: Job, pods: Iterable[PodView], transition: Transition, request: JobRequest | None
) -> tuple[PodView, ...]:
    """Return the pods that carrying out `transition` deletes, in order of name."""
    if transition.scope is KillScope.JOB:
        retain = Retain.FINISHED if _is_last_try(job) else transition.retain
        return _sorted(p for p in pods if not (p.deleting or _kept(p, retain)))
    assert request is not None, "a kill of a task or pod has a request"
    return _sorted(p for p in pods if not p.deleting and _is_in_scope(p, transition.scope, request))


def _is_last_try(job: Job) -> bool:
    """J21: pods that ended are kept, for their logs, when no further try is left."""
    return job.status.retry_count >= job.spec.max_retry - 1


def _kept(pod: PodView, retain: Retain) -> bool:
    if retain is Retain.SUCCEEDED:
        return pod.phase == PodPhase.SUCCEEDED
    return retain is Retain.FINISHED and pod.phase in FINISHED_PODS


Partitions = AbstractSet[tuple[str, str]]
"""Task and number of each partition that has pods."""


def partitions(pods: Iterable[PodView]) -> Partitions:
    """Return the partitions that have pods."""
    return {(pod.task, pod.partition) for pod in pods if pod.partition}


def meets_no_pod(present: Partitions, transition: Transition, request: JobRequest) -> bool:
    """Whether a transition kills a partition without pods, so that it does nothing."""
    kills_partition = transition.do is Do.KILL and transition.scope is KillScope.PARTITION
    return kills_partition and (request.task, request.partition) not in present


def _is_in_scope(pod: PodView, scope: KillScope, request: JobRequest) -> bool:
    if scope is KillScope.POD:
        return pod.name == request.pod
    if pod.task != request.task:
        return False
    return scope is KillScope.TASK or (pod.partition != "" and pod.partition == request.partition)


def to_delete_by_status(job: Job, pods: Mapping[str, PodView]) -> tuple[PodView, ...]:
    """Return the pods to delete by the recorded status alone, in order of name.

    A pod without the label of a task was not made by the controller: it counts, and is deleted with
    the job.
    """
    phase = job.status.state.phase
    alive = (p for p in pods.values() if not p.deleting)
    done = completed_indexes.recorded(job)
    if phase in ALIVE or phase is None:
        replicas = _replicas(job)
        return _sorted(
            p
            for p in alive
            if is_stale(job, p, done) or (p.task and not _is_specified(p.name, replicas))
        )
    if phase == JobPhase.RESTARTING:
        # The restart has been recorded by now: one more than `to_delete_by_transition` counts.
        spent = job.status.retry_count >= job.spec.max_retry
        retain = Retain.FINISHED if spent else Retain.NONE
        return _sorted(p for p in alive if is_stale(job, p, done) and not _kept(p, retain))
    return _sorted(p for p in alive if p.phase not in FINISHED_PODS)


def specified_names(job: Job) -> Callable[[str], bool]:
    """Return a predicate: whether a pod has the name of a replica that the job specifies."""
    return partial(_is_specified, replicas=_replicas(job))


def _replicas(job: Job) -> dict[str, int]:
    return {f"{job.metadata.name}-{task.name}": task.replicas for task in job.spec.tasks}


def _is_specified(name: str, replicas: Mapping[str, int]) -> bool:
    """Whether a pod has the name of a replica in the spec: job, task and index."""
    prefix, _, index = name.rpartition("-")
    number = int(index) if index.isdecimal() and index.isascii() and len(index) <= _DIGITS else -1
    return 0 <= number < replicas.get(prefix, 0) and index == str(number)


def is_stale(job: Job, pod: PodView, done: CompletedIndexes) -> bool:
    """Whether a pod is left over from before a restart, or marked for deletion (J24).

    A pod that has succeeded according to the status is kept when the job is resumed (J19).
    """
    if pod.out_of_sync or pod.version >= job.status.version:
        return pod.out_of_sync
    return pod.phase != PodPhase.SUCCEEDED or pod.index not in done.get(pod.task, ())


def _sorted(pods: Iterable[PodView]) -> tuple[PodView, ...]:
    return tuple(sorted(pods, key=lambda p: p.name))
