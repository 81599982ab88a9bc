"""Volcano's requests to a job: events of its pods, in order and each only once.

A request follows from comparing a pod as it was known with the pod as it is now (J06 to J09), so
that it does not matter how many watch events lie between the two. Its key is (pod uid, event, job
version): adding it again changes nothing, and different exit codes or evictions are never merged.
`at_start` derives again the requests that a process that died may not have handled. A job's record
calls this at each change of a pod (`records`); `plan` handles requests.
"""

import enum
from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from services.controller.job.facts import NONE_COMPLETED, CompletedIndexes, PodView
from shared.api.batch import Action, Job, JobEvent, JobPhase, JobSpec, TaskSpec
from shared.api.core import PodPhase
from shared.api.scheduling import PodGroup, PodGroupPhase

DEFAULT_TASK_RETRIES = 3
NO_INDEX: Final[AbstractSet[int]] = frozenset()
_ALIVE: Final = frozenset({PodPhase.PENDING, PodPhase.RUNNING})
_SYNC_ONLY = frozenset({JobEvent.OUT_OF_SYNC, JobEvent.POD_RUNNING})


class DeadlineEvent(enum.StrEnum):
    """An event that Volcano does not have, so that its CRD lets no policy name it."""

    JOB_DEADLINE_EXCEEDED = "JobDeadlineExceeded"


class JobRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a job, for which a policy may have an action (J03)."""

    event: JobEvent | DeadlineEvent
    job_uid: str
    version: int = 0
    """Job version of the pod that it is about."""
    task: str = ""
    pod: str = ""
    pod_uid: str = ""
    partition: str = ""
    exit_code: int = 0
    action: Action | None = None
    """The action of a Command; else policies decide."""
    command_uid: str = ""
    why: str = ""
    """Message of a phase that the request leads to; empty: the event and the pod."""
    since: str = ""
    """RFC 3339 time that a policy's timeout counts from; empty: from now (J12)."""

    @property
    def key(self) -> tuple[str, str, int]:
        """Return the key by which two requests are the same."""
        return (self.command_uid or self.pod_uid or self.pod, self.event, self.version)


class PodSums:
    """Sums of a job's pods per task, for the rules that ask about all pods of a task.

    A job may have 150,000 pods, and each changes several times: walking them at each change would
    stop the process. Only requests use these sums; the counts of the status are recounted (J26).
    """

    def __init__(self, pods: Iterable[PodView]) -> None:
        self._succeeded: dict[str, set[int]] = {}
        self._restarts: Counter[str] = Counter()
        self._known: dict[str, _Shortage] = {}
        self._tasks: tuple[TaskSpec, ...] = ()
        self._by_name: dict[str, TaskSpec] = {}
        for pod in pods:
            self._count(pod, 1)

    def change(self, before: PodView | None, after: PodView | None) -> None:
        """Follow the change of one pod; None stands for "is not there"."""
        if before is not None:
            self._count(before, -1)
        if after is not None:
            self._count(after, 1)

    def _count(self, pod: PodView, sign: int) -> None:
        if pod.phase in _ALIVE:
            self._restarts[pod.task] += sign * pod.restarts
        elif pod.phase == PodPhase.SUCCEEDED:
            done = self._succeeded.setdefault(pod.task, set())
            if sign > 0:
                done.add(pod.index)
            else:
                done.discard(pod.index)
                self.restarted(pod.task)

    def restarted(self, task: str) -> None:
        """Record that a succeeded index of a task no longer counts."""
        self._known.pop(task, None)

    def task(self, spec: JobSpec, name: str) -> TaskSpec | None:
        """Return a task of the job by its name: a job may have thousands of them."""
        if self._tasks is not spec.tasks:
            self._tasks = spec.tasks
            self._by_name = {task.name: task for task in reversed(spec.tasks)}
        return self._by_name.get(name)

    def restarts(self, task: str) -> int:
        """Return how often containers of the task's pods that are alive have restarted."""
        return self._restarts[task]

    def all_succeeded(self, task: TaskSpec, completed: AbstractSet[int]) -> bool:
        """Return whether all replicas have succeeded, those of `completed` among them.

        The two sets are joined only when so many indexes have come that none may be missing.
        """
        done = self._succeeded.get(task.name, NO_INDEX)
        size = len(done) + len(completed)
        known = self._known.get(task.name)
        if known is None or known.may_be_over(completed, size, task.replicas):
            missing = task.replicas - (size if size < task.replicas else len(done | completed))
            known = self._known[task.name] = _Shortage(completed, size, task.replicas, missing)
        return known.missing <= 0


class _Shortage(NamedTuple):
    """Lower bound of the indexes of a task that have not succeeded."""

    completed: AbstractSet[int]
    size: int
    """Of `completed` and of the indexes of pods that have succeeded, together."""
    replicas: int
    missing: int
    """At least so many; a pod that succeeds adds one index to each of the two sets at most."""

    def may_be_over(self, completed: AbstractSet[int], size: int, replicas: int) -> bool:
        """Whether none may be missing by now."""
        is_same = completed is self.completed and replicas == self.replicas
        return not is_same or size - self.size >= self.missing


def compare(
    job: Job,
    before: PodView | None,
    after: PodView | None,
    sums: PodSums,
    *,
    deleted_by_us: bool = False,
    completed: CompletedIndexes = NONE_COMPLETED,
) -> tuple[JobRequest, ...]:
    """Return the requests that follow from the change of one pod (one uid).

    `sums` are of the job's pods as they are now, the changed one included; `completed` says which
    have succeeded, there or gone (`completed_indexes`). None stands for "is not there".
    """
    if after is None:
        if before is None:
            return ()
        done = before.index in completed.get(before.task, ())
        return (_ended(job, before, sums, desired=deleted_by_us or done),)
    if after.out_of_sync:
        known = before is not None and before.out_of_sync
        return () if known else (_request(job, after, JobEvent.OUT_OF_SYNC),)
    found = []
    if before is None and after.phase == PodPhase.PENDING:
        found.append(_request(job, after, JobEvent.POD_PENDING))
    if after.restarts != (before.restarts if before else 0):
        found += _restarted_too_often(job, after, sums)
    if after.phase != (before.phase if before else PodPhase.PENDING):
        found += _new_phase(job, after, sums, completed)
    return tuple(found)


def at_start(
    job: Job,
    pods: Mapping[str, PodView],
    sums: PodSums,
    completed: CompletedIndexes = NONE_COMPLETED,
) -> tuple[JobRequest, ...]:
    """Return the requests that a process has to assume unhandled when it starts.

    `sums` are of `pods`.

    Pods of the current version that ended, and pods that the recorded counts hold but that are no
    longer there (evicted meanwhile). Requests of a pod of an older version were handled by the
    action that raised the version; a finished or aborting job has none.
    """
    if job.status.state.phase not in {JobPhase.PENDING, JobPhase.RUNNING, JobPhase.RESTARTING}:
        return ()
    order = {task.name: n for n, task in enumerate(job.spec.tasks)}
    own = sorted(
        (p for p in pods.values() if p.version >= job.status.version and not p.deleting),
        key=lambda p: (order.get(p.task, len(order)), p.index, p.name),
    )
    found: list[JobRequest] = []
    completed_tasks: set[str] = set()
    for pod in own:
        for request in compare(job, None, pod, sums, completed=completed):
            completes = request.event == JobEvent.TASK_COMPLETED
            if request.event in _SYNC_ONLY or (completes and request.task in completed_tasks):
                continue
            if completes:
                completed_tasks.add(request.task)
            found.append(request)
    return (*found, *_missing(job, pods, completed))


def _missing(
    job: Job, pods: Mapping[str, PodView], completed: CompletedIndexes
) -> tuple[JobRequest, ...]:
    """Return unobserved evictions: the status counts more pods of a task than exist."""
    if job.status.state.phase == JobPhase.RESTARTING:
        return ()
    found = []
    of_task = Counter(pod.task for pod in pods.values())
    for task in job.spec.tasks:
        recorded = job.status.task_status_count.get(task.name)
        if recorded is None:
            continue
        existing = of_task[task.name]
        done = completed.get(task.name, NO_INDEX)
        existing += sum(1 for i in done if i < task.replicas and pod_name(job, task, i) not in pods)
        absent = (
            i for i in range(task.replicas) if i not in done and pod_name(job, task, i) not in pods
        )
        for index in islice(absent, max(0, sum(recorded.phase.values()) - existing)):
            lost = PodView(
                name=pod_name(job, task, index),
                uid="",
                task=task.name,
                index=index,
                version=job.status.version,
            )
            found.append(_request(job, lost, JobEvent.POD_EVICTED))
    return tuple(found)


def of_group(job: Job, before: PodGroup | None, after: PodGroup | None) -> tuple[JobRequest, ...]:
    """Return the requests that follow from a change of the PodGroup: Unknown is an event (J09)."""
    was = before.status.phase if before is not None else None
    if after is None or after.status.phase in {was, None}:
        return ()
    unknown = after.status.phase == PodGroupPhase.UNKNOWN
    return (
        JobRequest(
            event=JobEvent.UNKNOWN if unknown else JobEvent.OUT_OF_SYNC,
            job_uid=job.metadata.uid,
            version=job.status.version,
            pod_uid=after.metadata.uid,
        ),
    )


def pod_name(job: Job, task: TaskSpec, index: int) -> str:
    """Return the name of a pod of a job (J24)."""
    return f"{job.metadata.name}-{task.name}-{index}"


def _request(job: Job, pod: PodView, event: JobEvent, *, exit_code: int = 0) -> JobRequest:
    return JobRequest(
        event=event,
        job_uid=job.metadata.uid,
        version=pod.version,
        task=pod.task,
        pod=pod.name,
        pod_uid=pod.uid,
        partition=pod.partition,
        exit_code=exit_code,
        since=_since(pod, event),
    )


def _since(pod: PodView, event: JobEvent) -> str:
    """Return the time of the event from the pod; for an eviction it is now."""
    if event == JobEvent.POD_EVICTED:
        return ""
    return pod.created if event == JobEvent.POD_PENDING else pod.ended


def _ended(job: Job, pod: PodView, sums: PodSums, *, desired: bool) -> JobRequest:
    """Return the request for a pod that is gone: evicted, unless that was intended (J08)."""
    task = sums.task(job.spec, pod.task)
    surplus = task is None or pod.index >= task.replicas
    no_loss = desired or pod.out_of_sync or surplus
    return _request(job, pod, JobEvent.OUT_OF_SYNC if no_loss else JobEvent.POD_EVICTED)


def _new_phase(
    job: Job, pod: PodView, sums: PodSums, completed: CompletedIndexes
) -> tuple[JobRequest, ...]:
    match pod.phase:
        case PodPhase.FAILED if pod.deleting:
            # It failed because it was deleted or evicted: its end is an eviction (`_ended`).
            return (_request(job, pod, JobEvent.OUT_OF_SYNC),)
        case PodPhase.FAILED:
            return (_request(job, pod, JobEvent.POD_FAILED, exit_code=pod.exit_code),)
        case PodPhase.SUCCEEDED if _task_completed(job.spec, pod, sums, completed):
            return (_request(job, pod, JobEvent.TASK_COMPLETED),)
        case PodPhase.RUNNING:
            return (_request(job, pod, JobEvent.POD_RUNNING),)
        case PodPhase.PENDING:
            return (_request(job, pod, JobEvent.POD_PENDING),)
        case _:
            return (_request(job, pod, JobEvent.OUT_OF_SYNC),)


def _task_completed(
    spec: JobSpec, pod: PodView, sums: PodSums, completed: CompletedIndexes
) -> bool:
    """Whether all replicas of the pod's task have succeeded (J07)."""
    task = sums.task(spec, pod.task)
    if task is None or task.replicas == 0:
        return False
    return sums.all_succeeded(task, completed.get(pod.task, NO_INDEX))


def _restarted_too_often(job: Job, pod: PodView, sums: PodSums) -> tuple[JobRequest, ...]:
    """TaskFailed when the containers of a task have restarted too often (J07).

    Unlike in Volcano the event is not lost when the phase changed in the same update: facts are
    coalesced here, so that would happen far more often.
    """
    task = sums.task(job.spec, pod.task)
    if task is None or task.replicas == 0 or task.max_retry < 0:
        return ()
    if sums.restarts(pod.task) < (task.max_retry or DEFAULT_TASK_RETRIES):
        return ()
    return (_request(job, pod, JobEvent.TASK_FAILED),)
