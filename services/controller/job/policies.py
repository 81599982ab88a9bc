"""Which action a request leads to, and when: policies of the task, then of the job (J10 to J12).

Pure rules, called by `plan` for each request in order. A policy's timeout makes the action a
delayed one. The timeout counts from a time in the objects (a pod's creation, the end of its
container), so a process that starts anew comes to the same moment; the reconciler asks again when
the earliest one is due.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from services.controller.job.phases import KillScope
from services.controller.job.requests import JobRequest
from shared.api import time
from shared.api.batch import Action, Job, JobEvent, LifecyclePolicy
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


def apply_policies(job: Job, request: JobRequest) -> PolicyAction:
    """Return the action for `request`, in Volcano's order of precedence (J10)."""
    if request.action is not None:
        return PolicyAction(action=request.action)
    if request.event in INTERNAL_EVENTS:
        return SYNC
    if request.job_uid != job.metadata.uid or request.version < job.status.version:
        return SYNC
    of_task = next((t.policies for t in job.spec.tasks if t.name == request.task), ())
    for policies in (of_task, job.spec.policies):
        found = _first_match(policies, request)
        if found is not None:
            return found
    return SYNC


def _first_match(policies: Iterable[LifecyclePolicy], request: JobRequest) -> PolicyAction | None:
    for policy in policies:
        if _matches(policy, request) and policy.action in _ACTIONS:
            return PolicyAction(action=Action(policy.action), delay_s=seconds(policy.timeout))
    return None


def events_of(policy: LifecyclePolicy) -> tuple[JobEvent, ...]:
    """Return the events that a policy names, by `event` or by `events`."""
    return (*policy.events, policy.event) if policy.event is not None else policy.events


def _matches(policy: LifecyclePolicy, request: JobRequest) -> bool:
    """Whether `policy` is about `request` (J11): PodPending counts only with a timeout."""
    events = events_of(policy)
    if request.event in events or JobEvent.ANY in events:
        return request.event != JobEvent.POD_PENDING or policy.timeout != ""
    return policy.exit_code is not None and policy.exit_code == request.exit_code != 0


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
    carried out (`after_action`).
    """
    found: list[tuple[JobRequest, Action]] = []
    waiting = list(delayed)
    for request in requests:
        waiting = [d for d in waiting if not _cancels(request, d.request)]
        decided = apply_policies(job, request)
        if decided.delay_s == 0:
            found.append((request, decided.action))
        elif all(d.request.key != request.key for d in waiting):
            since = time.read(request.since or None)
            since = now if since is None else since
            waiting.append(
                Delayed(
                    request=request,
                    action=decided.action,
                    due=since + decided.delay_s,
                    delay_s=decided.delay_s,
                )
            )
    valid = tuple(d for d in waiting if d.due > now or d.request.version >= job.status.version)
    due = [(d.request, d.action) for d in valid if d.due <= now]
    return [*due, *found], valid


def _cancels(new: JobRequest, old: JobRequest) -> bool:
    """Whether a new request cancels the delayed action of an old one (J12)."""
    if old.event == JobEvent.POD_PENDING:
        return new.pod_uid == old.pod_uid and new.event != JobEvent.POD_PENDING
    if old.event in {JobEvent.POD_FAILED, JobEvent.POD_EVICTED}:
        return new.event == JobEvent.POD_RUNNING and new.pod == old.pod
    return False


def after_action(
    delayed: tuple[Delayed, ...], request: JobRequest, action: Action
) -> tuple[Delayed, ...]:
    """Return the delayed actions that are left after an action: those of its scope end (J12).

    A restart of a pod leaves delayed actions on its task or its job as they are.
    """
    left = tuple(d for d in delayed if d.request.key != request.key)
    if action in INTERNAL_ACTIONS:
        return left
    scope = _scope(request, action)
    return tuple(d for d in left if _scope(d.request, d.action) != scope)


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
