"""Which pods a transition deletes: the part of the table that is about pods (J16 to J21).

`doomed_by_transition` is asked once, when an action is carried out. `doomed_by_status` follows from
the recorded phase and version alone, so that a process that starts between a decision and its
effect finds the rest of the work.
"""

from collections.abc import Iterable, Mapping

from services.controller.job import completed_indexes
from services.controller.job.facts import CompletedIndexes, PodView
from services.controller.job.phases import ALIVE, Do, KillScope, Retain, Transition
from services.controller.job.requests import Request
from shared.api.batch import Job, JobPhase
from shared.api.core import PodPhase

FINISHED_PODS = frozenset({PodPhase.SUCCEEDED, PodPhase.FAILED})
_DIGITS = 10


def doomed_by_transition(
    job: Job, pods: Iterable[PodView], transition: Transition, request: Request | None
) -> tuple[PodView, ...]:
    """Return the pods that carrying out `transition` deletes, in order of name."""
    if transition.target is KillScope.JOB:
        retain = Retain.FINISHED if _is_last_try(job) else transition.retain
        return _sorted(p for p in pods if not (p.deleting or _kept(p, retain)))
    assert request is not None, "a kill of a part is about some pod"
    return _sorted(p for p in pods if not p.deleting and _is_meant(p, transition.target, request))


def _is_last_try(job: Job) -> bool:
    """J21: pods that ended are kept for a look at them when no further try is left."""
    return job.status.retry_count >= job.spec.max_retry - 1


def _kept(pod: PodView, retain: Retain) -> bool:
    if retain is Retain.SUCCEEDED:
        return pod.phase == PodPhase.SUCCEEDED
    return retain is Retain.FINISHED and pod.phase in FINISHED_PODS


def meets_no_pod(pods: Iterable[PodView], transition: Transition, request: Request) -> bool:
    """Whether a transition is about a partition without pods: it does nothing."""
    about = transition.do is Do.KILL and transition.target is KillScope.PARTITION
    return about and not any(_is_meant(pod, KillScope.PARTITION, request) for pod in pods)


def _is_meant(pod: PodView, target: KillScope, request: Request) -> bool:
    if target is KillScope.POD:
        return pod.name == request.pod
    if pod.task != request.task:
        return False
    return target is KillScope.TASK or (pod.partition != "" and pod.partition == request.partition)


def doomed_by_status(job: Job, pods: Mapping[str, PodView]) -> tuple[PodView, ...]:
    """Return the pods that have to go, by the recorded status alone, in order of name.

    A pod that bears no task was not made by the controller: it counts, and goes when the job does.
    """
    phase = job.status.state.phase
    alive = (p for p in pods.values() if not p.deleting)
    done = completed_indexes.recorded(job)
    if phase in ALIVE or phase is None:
        replicas = {f"{job.metadata.name}-{task.name}": task.replicas for task in job.spec.tasks}
        return _sorted(
            p
            for p in alive
            if is_stale(job, p, done) or (p.task and not _is_wanted(p.name, replicas))
        )
    if phase == JobPhase.RESTARTING:
        # Counted after the restart was recorded: one more than `doomed_by_transition` sees.
        spent = job.status.retry_count >= job.spec.max_retry
        retain = Retain.FINISHED if spent else Retain.NONE
        return _sorted(p for p in alive if is_stale(job, p, done) and not _kept(p, retain))
    return _sorted(p for p in alive if p.phase not in FINISHED_PODS)


def _is_wanted(name: str, replicas: Mapping[str, int]) -> bool:
    """Whether a pod bears one of the names that the tasks' pods have: job, task and index."""
    prefix, _, index = name.rpartition("-")
    number = int(index) if index.isdecimal() and index.isascii() and len(index) <= _DIGITS else -1
    return 0 <= number < replicas.get(prefix, 0) and index == str(number)


def is_stale(job: Job, pod: PodView, done: CompletedIndexes) -> bool:
    """Whether a pod is left over from before a restart, or marked for deletion (J24).

    One that has succeeded by the status's own record outlives the kill before a resume (J19).
    """
    if pod.out_of_sync or pod.version >= job.status.version:
        return pod.out_of_sync
    return pod.phase != PodPhase.SUCCEEDED or pod.index not in done.get(pod.task, ())


def _sorted(pods: Iterable[PodView]) -> tuple[PodView, ...]:
    return tuple(sorted(pods, key=lambda p: p.name))
