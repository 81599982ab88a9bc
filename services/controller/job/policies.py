"""Which action answers a request: the policies of the task, then of the job (J10, J11).

Pure rule, called by `plan` for each request in order. A policy's timeout makes the action a delayed
one.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from services.controller.job.requests import Request
from shared.api.batch import Action, Job, JobEvent, LifecyclePolicy
from shared.model.durations import seconds

INTERNAL_EVENTS: Final = frozenset(
    {JobEvent.OUT_OF_SYNC, JobEvent.COMMAND_ISSUED, JobEvent.POD_RUNNING}
)
"""Events that no policy answers: they only ask for a reconciliation of the job."""

INTERNAL_ACTIONS: Final = frozenset(
    {
        Action.SYNC_JOB,
        Action.ENQUEUE_JOB,
        Action.SYNC_QUEUE,
        Action.OPEN_QUEUE,
        Action.CLOSE_QUEUE,
    }
)
"""Actions that follow from no decision about a job: no event tells of them (J14)."""


class PolicyAction(msgspec.Struct, frozen=True, kw_only=True):
    """The action that a policy asks for, and how long to wait first."""

    action: Action
    delay_s: float = 0.0


_ACTIONS: Final = frozenset(Action)

SYNC: Final = PolicyAction(action=Action.SYNC_JOB)


def apply_policies(job: Job, request: Request) -> PolicyAction:
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


def _first_match(policies: Iterable[LifecyclePolicy], request: Request) -> PolicyAction | None:
    for policy in policies:
        if _matches(policy, request) and policy.action in _ACTIONS:
            return PolicyAction(action=Action(policy.action), delay_s=seconds(policy.timeout))
    return None


def events_of(policy: LifecyclePolicy) -> tuple[JobEvent, ...]:
    """Return the events that a policy names, by `event` or by `events`."""
    return (*policy.events, policy.event) if policy.event is not None else policy.events


def _matches(policy: LifecyclePolicy, request: Request) -> bool:
    """Whether `policy` is about `request` (J11): PodPending counts only with a timeout."""
    events = events_of(policy)
    if request.event in events or JobEvent.ANY in events:
        return request.event != JobEvent.POD_PENDING or policy.timeout != ""
    return policy.exit_code is not None and policy.exit_code == request.exit_code != 0
