"""Which action a request leads to, and when: policies of the task, then of the job (J10 to J12).

Pure rules, called by `plan` for each request in order. A policy's timeout makes the action a
delayed one. The timeout counts from a time in the objects (a pod's creation, the end of its
container), so a process that restarts comes to the same moment; the reconciler asks again when
the earliest one is due.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from services.controller.job.phases import KillScope
from services.controller.job.requests import DeadlineEvent, JobRequest
from shared.api import keys, time
from shared.api.batch import Action, Job, JobEvent, LifecyclePolicy
from shared.jobs.wall_time import ACTIONS
from shared.model.durations import seconds

INTERNAL_EVENTS: Final = frozenset(
    {JobEvent.OUT_OF_SYNC, JobEvent.COMMAND_ISSUED, JobEvent.POD_RUNNING}
)
"""Events that no policy is about: they only have the job reconciled."""

INTERNAL_ACTIONS: Final = frozenset(
    {
        Action.SYNC_JOB,
        Action.ENQUEUE_JOB,
        Action.SYNC_QUEUE,
        Action.OPEN_QUEUE,
        Action.CLOSE_QUEUE,
    }
)
"""Actions that no policy or Command decides: no Kubernetes Event is recorded for them (J14)."""


class PolicyAction(msgspec.Struct, frozen=True, kw_only=True):
    """The action that a policy asks for, and how long to wait first."""

    action: Action
    delay_s: float = 0.0


_ACTIONS: Final = frozenset(Action)

SYNC: Final = PolicyAction(action=Action.SYNC_JOB)


class PolicyTables:
    """The policies of a job and its tasks, so arranged that a request costs no walk over them.

    A job may have thousands of policies, and thousands of its pods may fail at once.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._of_job = _Table(job.spec.policies)
        self._of_task: dict[str, _Table] = {}
        for task in job.spec.tasks:
            if task.policies and task.name not in self._of_task:
                self._of_task[task.name] = _Table(task.policies)

    def action(self, request: JobRequest) -> PolicyAction:
        """Return the action for a request: of its task's policies, then of the job's (J10)."""
        if request.action is not None:
            return PolicyAction(action=request.action)
        if request.event in INTERNAL_EVENTS:
            return SYNC
        job = self._job
        if request.job_uid != job.metadata.uid or request.version < job.status.version:
            return SYNC
        if request.event == DeadlineEvent.JOB_DEADLINE_EXCEEDED:
            return self._at_deadline(request)
        of_task = self._of_task.get(request.task)
        found = of_task.first(request) if of_task is not None else None
        return found or self._of_job.first(request) or SYNC

    def _at_deadline(self, request: JobRequest) -> PolicyAction:
        """Return the action of the annotation, else of a policy about any event, else the end.

        It ends the run as a whole and at once, so that the deadline is a certain end.
        """
        stated = self._job.metadata.annotations.get(keys.DEADLINE_ACTION, "")
        policy = self._of_job.first(request)
        for action in (stated, policy.action if policy is not None else ""):
            if action in ACTIONS:
                return PolicyAction(action=Action(action))
        return PolicyAction(action=Action.TERMINATE_JOB)


class _Table:
    """One list of policies, by what they are about (J11): the first that matches counts."""

    def __init__(self, policies: Sequence[LifecyclePolicy]) -> None:
        self._policies = policies
        self._by_event: dict[str, int] = {}
        """Event → place of the first policy; PodPending counts only with a timeout."""
        self._any: dict[bool, int] = {}
        """The same for policies about any event: with a timeout, and all of them."""
        self._by_exit_code: dict[int, int] = {}
        for at, policy in enumerate(policies):
            if policy.action not in _ACTIONS:
                continue
            is_timed = policy.timeout != ""
            for event in events_of(policy):
                if event == JobEvent.ANY:
                    self._any.setdefault(False, at)
                    if is_timed:
                        self._any.setdefault(True, at)
                elif event != JobEvent.POD_PENDING or is_timed:
                    self._by_event.setdefault(event, at)
            if policy.exit_code:
                self._by_exit_code.setdefault(policy.exit_code, at)

    def first(self, request: JobRequest) -> PolicyAction | None:
        """Return what the first policy about a request says, None where none is."""
        places = (
            self._by_event.get(request.event),
            self._any.get(request.event == JobEvent.POD_PENDING),
            self._by_exit_code.get(request.exit_code),
        )
        at = min((place for place in places if place is not None), default=None)
        if at is None:
            return None
        policy = self._policies[at]
        return PolicyAction(action=Action(policy.action), delay_s=seconds(policy.timeout))


def events_of(policy: LifecyclePolicy) -> tuple[JobEvent, ...]:
    """Return the events that a policy names, by `event` or by `events`."""
    return (*policy.events, policy.event) if policy.event is not None else policy.events


_KILL_SCOPE: Final[Mapping[Action, KillScope]] = {
    Action.RESTART_TASK: KillScope.TASK,
    Action.RESTART_POD: KillScope.POD,
    Action.RESTART_PARTITION: KillScope.PARTITION,
}
"""Actions that do not kill the whole job."""


class Delayed(msgspec.Struct, frozen=True, kw_only=True):
    """An action that is due later."""

    request: JobRequest
    action: Action
    due: float
    """Unix seconds."""
    delay_s: float = 0.0
    """The policy's timeout."""


def due_actions(
    job: Job, requests: Iterable[JobRequest], delayed: tuple[Delayed, ...], *, now: float
) -> tuple[list[tuple[JobRequest, Action]], tuple[Delayed, ...]]:
    """Return the actions to carry out now, in order, and the delayed ones.

    Delayed actions that are due come first, and are among the delayed ones until they have been
    carried out (`after_actions`).
    """
    found: list[tuple[JobRequest, Action]] = []
    tables, waiting = PolicyTables(job), _Waiting(delayed)
    for request in requests:
        waiting.cancel(request)
        decided = tables.action(request)
        if decided.delay_s == 0:
            found.append((request, decided.action))
        elif request.key not in waiting.by_key:
            since = time.read(request.since or None)
            since = now if since is None else since
            waiting.add(
                Delayed(
                    request=request,
                    action=decided.action,
                    due=since + decided.delay_s,
                    delay_s=decided.delay_s,
                )
            )
    valid = tuple(
        d for d in waiting.by_key.values() if d.due > now or d.request.version >= job.status.version
    )
    due = [(d.request, d.action) for d in valid if d.due <= now]
    return [*due, *found], valid


class _Waiting:
    """Delayed actions, by what cancels them (J12)."""

    def __init__(self, delayed: Iterable[Delayed]) -> None:
        self.by_key: dict[tuple[str, str, int], Delayed] = {}
        self._pending: dict[str, list[Delayed]] = {}
        """Pod uid → actions about its being Pending, which any other event of it cancels."""
        self._lost: dict[str, list[Delayed]] = {}
        """Pod → actions about its failure or eviction: it runs again."""
        for each in delayed:
            self.add(each)

    def add(self, one: Delayed) -> None:
        self.by_key[one.request.key] = one
        if one.request.event == JobEvent.POD_PENDING:
            self._pending.setdefault(one.request.pod_uid, []).append(one)
        elif one.request.event in {JobEvent.POD_FAILED, JobEvent.POD_EVICTED}:
            self._lost.setdefault(one.request.pod, []).append(one)

    def cancel(self, new: JobRequest) -> None:
        """Drop what a new request cancels."""
        cancelled: list[Delayed] = []
        if new.event != JobEvent.POD_PENDING:
            cancelled += self._pending.pop(new.pod_uid, ())
        if new.event == JobEvent.POD_RUNNING:
            cancelled += self._lost.pop(new.pod, ())
        for each in cancelled:
            self.by_key.pop(each.request.key, None)


def after_actions(
    delayed: tuple[Delayed, ...], done: Iterable[tuple[JobRequest, Action]]
) -> tuple[Delayed, ...]:
    """Return the delayed actions that are left after actions: those of their scopes end (J12).

    A restart of a pod leaves delayed actions on its task or its job as they are.
    """
    keys: set[tuple[str, str, int]] = set()
    scopes: set[tuple[KillScope, str, str]] = set()
    for request, action in done:
        keys.add(request.key)
        if action not in INTERNAL_ACTIONS:
            scopes.add(_scope(request, action))
    return tuple(
        d
        for d in delayed
        if d.request.key not in keys and _scope(d.request, d.action) not in scopes
    )


def _scope(request: JobRequest, action: Action) -> tuple[KillScope, str, str]:
    """Return the job, task, pod or partition that an action kills, as a comparable value."""
    scope = _KILL_SCOPE.get(action, KillScope.JOB)
    match scope:
        case KillScope.JOB:
            return scope, "", ""
        case KillScope.TASK:
            return scope, request.task, ""
        case KillScope.POD:
            return scope, request.pod, ""
        case KillScope.PARTITION:
            return scope, request.task, request.partition
