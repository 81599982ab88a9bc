"""Records which pods of a job have succeeded: a completed index never runs again.

Succeeded pods are deleted with their node, or by a clean-up of old pods. Without a record they
would be missing, and be created and run again. So the status names the indexes that have succeeded,
per task, in the same write as the counts (`status.controlledResources`, the one map of a job's
status that is free: `succeeded-worker: "0-3,7"`). Only a restart of an index, its task, its
partition or the job strikes it out, in the write that says so. A failed pod is not recorded:
policies decide about it, and pods of a lost node are set to Failed before they are deleted.

A pod counts as succeeded if it was so before its deletion was requested.
"""

from collections.abc import Iterable, Iterator, Mapping

from services.controller.job.facts import NONE_COMPLETED, CompletedIndexes, PodView
from services.controller.job.phases import KillScope, Retain, Transition
from services.controller.job.requests import JobRequest
from shared.api.batch import Job, TaskSpec
from shared.api.core import PodPhase
from shared.api.keys import SUCCEEDED_MARK
from shared.model.numbers import whole


def recorded(job: Job) -> dict[str, set[int]]:
    """Return the completed indexes in a job's status; unreadable text counts as empty."""
    marks = job.status.controlled_resources
    return {
        task.name: set(_indexes(marks[mark], below=task.replicas))
        for task in job.spec.tasks
        if (mark := f"{SUCCEEDED_MARK}{task.name}") in marks
    }


def with_marks(
    resources: Mapping[str, str],
    job: Job,
    completed: CompletedIndexes,
    missing_in: Mapping[str, PodView] | None,
) -> dict[str, str]:
    """Return `resources` with the marks of `completed` added, in order of names.

    With `missing_in` only indexes without a pod among these are added: when a job ends, its
    existing pods need no record.
    """
    marks = {k: v for k, v in resources.items() if not k.startswith(SUCCEEDED_MARK)}
    existing = _by_task(missing_in or {})
    for task in job.spec.tasks:
        marked = _within(task, completed) - existing.get(task.name, set())
        if marked:
            marks[f"{SUCCEEDED_MARK}{task.name}"] = ",".join(_ranges(sorted(marked)))
    return dict(sorted(marks.items()))


def has_succeeded(job: Job, pod: PodView) -> bool:
    """Whether an existing pod is to be recorded."""
    of_now = pod.version >= job.status.version and not (pod.out_of_sync or pod.deleting)
    return pod.phase == PodPhase.SUCCEEDED and of_now


def succeeded_and_gone(job: Job, rv: int, pod: PodView) -> bool:
    """Whether the pod of a tombstone is to be recorded; its `rv` is that of its deletion.

    The restart of a task, a partition or a pod may have removed its record, without a new version
    of the job. So after any restart only a pod counts that went after the job's last write, whose
    version is `rv`.
    """
    return has_succeeded(job, pod) and (job.status.retry_count == 0 or pod.rv > rv)


def gone(job: Job, completed: CompletedIndexes, pods: Mapping[str, PodView]) -> dict[str, int]:
    """Return per task the number of succeeded pods that no longer exist."""
    if not any(completed.values()):
        return {}
    found = {}
    existing = _by_task(pods)
    for task in job.spec.tasks:
        if absent := _within(task, completed) - existing.get(task.name, set()):
            found[task.name] = len(absent)
    return found


def after_kill(
    completed: CompletedIndexes,
    transition: Transition,
    request: JobRequest | None,
    job: Job,
    pods: Iterable[PodView],
) -> CompletedIndexes:
    """Return the completed indexes after a kill, without those that it restarts.

    A resumed job keeps the indexes that succeeded before it was stopped: their pods are of an older
    version and no longer count by themselves.
    """
    if transition.scope is KillScope.JOB:
        match transition.retain:
            case Retain.NONE:
                return NONE_COMPLETED
            case Retain.FINISHED:
                return completed
            case Retain.SUCCEEDED:
                return _with_succeeded(completed, pods)
    assert request is not None, "a kill of a task or pod has a request"
    task = next((t for t in job.spec.tasks if t.name == request.task), None)
    if task is None:
        return completed
    remaining = {
        i
        for i in _within(task, completed)
        if not _is_in_scope(task, i, transition.scope, request, job)
    }
    return {**completed, task.name: remaining}


def _with_succeeded(completed: CompletedIndexes, pods: Iterable[PodView]) -> CompletedIndexes:
    known = {task: set(indexes) for task, indexes in completed.items()}
    for pod in pods:
        if pod.phase == PodPhase.SUCCEEDED and pod.task and not (pod.out_of_sync or pod.deleting):
            known.setdefault(pod.task, set()).add(pod.index)
    return known


def _is_in_scope(
    task: TaskSpec, index: int, scope: KillScope, request: JobRequest, job: Job
) -> bool:
    policy = task.partition_policy
    name = f"{job.metadata.name}-{task.name}-{index}"
    partition = str(index // policy.partition_size) if policy is not None else ""
    return (
        scope is KillScope.TASK
        or (scope is KillScope.POD and name == request.pod)
        or (scope is KillScope.PARTITION and partition == request.partition)
    )


def _within(task: TaskSpec, completed: CompletedIndexes) -> set[int]:
    return {index for index in completed.get(task.name, ()) if index < task.replicas}


def _by_task(pods: Mapping[str, PodView]) -> dict[str, set[int]]:
    """Return the indexes of the existing pods, by task."""
    found: dict[str, set[int]] = {}
    for pod in pods.values():
        found.setdefault(pod.task, set()).add(pod.index)
    return found


def _ranges(indexes: Iterable[int]) -> Iterator[str]:
    """Yield `3` or `3-7` for each run of a sorted list."""
    first = last = -1
    for index in indexes:
        if first >= 0 and index == last + 1:
            last = index
            continue
        if first >= 0:
            yield f"{first}-{last}" if last > first else f"{first}"
        first = last = index
    if first >= 0:
        yield f"{first}-{last}" if last > first else f"{first}"


def _indexes(text: str, *, below: int) -> Iterator[int]:
    for run in text.split(","):
        low, dash, high = run.partition("-")
        first, last = whole(low), whole(high if dash else low)
        if first is not None and last is not None:
            yield from range(first, min(last + 1, below))
