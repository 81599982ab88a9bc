"""Kubernetes Events about a job's life, and the reasons for its phases (J34).

An event begins with Volcano's words, which scripts look for (`Start to execute action RestartJob`);
what follows is ours and says from where to where, and why. `occasion` distinguishes Events with the
same text about two occurrences.

Why a job waits is in its own status as well: the column WHY of `kubectl get vcjob -o wide`. The
PodGroup says it as soon as scheduling does. The job repeats it when it has been Pending for
`LONG_S`: most jobs wait for moments, and a write for each of them would be a load without a reader.
Pure; called by `plan`, the reconciler writes the events.
"""

from typing import Final

from services.controller.job import status
from services.controller.job.deadline import deadline_of
from services.controller.job.effects import RecordEvent
from services.controller.job.facts import JobFacts
from services.controller.job.group import why_pending
from services.controller.job.phases import COMMAND_ISSUED
from services.controller.job.policies import Delayed
from services.controller.job.requests import DeadlineEvent, JobRequest
from shared.api import time
from shared.api.batch import Action, Command, Job, JobPhase, JobStatus
from shared.api.core import PodPhase
from shared.api.scheduling import PodGroupConditionType
from shared.model import durations

LONG_S: Final = 30.0
UNSCHEDULABLE: Final = PodGroupConditionType.UNSCHEDULABLE.value
"""Reason of a job's state that repeats what its PodGroup says."""

EXECUTE_ACTION = "ExecuteAction"
MAX_RETRY: Final = "MaxRetryReached"
TOO_FEW_SUCCEEDED: Final = "TooFewSucceeded"
"""Reasons of a job that has failed."""


def ordered(command: Command) -> RecordEvent:
    """Return the Event of a Command that is carried out now, or that cannot be carried out."""
    known = command.action in frozenset(Action)
    if known:
        message = f"Start to execute command {command.action} and delete it once it is recorded"
    else:
        message = f"Command {command.metadata.name}: no action {command.action!r}, nothing is done"
    return RecordEvent(
        reason=COMMAND_ISSUED,
        message=message,
        warning=not known,
        occasion=command.metadata.uid,
    )


def executed(
    request: JobRequest, action: Action, before: JobStatus, after: JobStatus
) -> RecordEvent:
    """Return the Event of an action: action, new phase and reason."""
    was, now = before.state.phase, after.state.phase
    led = f"stays {was}" if was == now else f"{was} → {now}"
    _, why = cause(request)
    return RecordEvent(
        reason=EXECUTE_ACTION,
        message=f"Start to execute action {action}: {led}, {why}",
        occasion=_occasion(request, before),
    )


def postponed(delayed: Delayed, before: JobStatus) -> RecordEvent:
    """Return the event of an action that waits for its policy's timeout (J12)."""
    _, why = cause(delayed.request)
    after = durations.text(round(delayed.delay_s))
    return RecordEvent(
        reason=EXECUTE_ACTION,
        message=f"Execute action {delayed.action} after {after}: {why}",
        occasion=_occasion(delayed.request, before),
    )


def cause(request: JobRequest | None) -> tuple[str, str]:
    """Return reason and message of a phase that follows from a request."""
    if request is None:
        return "", ""
    if request.event == DeadlineEvent.JOB_DEADLINE_EXCEEDED:
        return request.event.value, request.why
    if request.why:
        return status.REFUSED, request.why
    if request.command_uid:
        return COMMAND_ISSUED, f"{request.action} by command {request.command_uid}"
    about = f"pod {request.pod}" if request.pod else "the job"
    code = f", exit code {request.exit_code}" if request.exit_code else ""
    return request.event.value, f"{request.event.value} of {about}{code}"


def why_failed(job: Job, after: JobStatus) -> tuple[str, str]:
    """Return reason and message of a job that fails by its counts; `after` has these (J17, J18)."""
    spec, was = job.spec, job.status.state
    if was.phase == JobPhase.RESTARTING:
        last = f"; the last one: {was.message}" if was.message else ""
        return MAX_RETRY, (
            f"maxRetry {spec.max_retry} is used up: each restart and each resume is a try, "
            f"this was number {after.retry_count}{last}. Raise spec.maxRetry, or find what fails"
        )
    ended = f"all pods have ended, {after.succeeded} succeeded and {after.failed} failed"
    if spec.min_success is not None:
        return TOO_FEW_SUCCEEDED, f"{ended}: minSuccess asks for {spec.min_success}"
    each = [t.replicas if t.min_available is None else t.min_available for t in spec.tasks]
    for task in spec.tasks if spec.min_available >= sum(each) else ():
        recorded = after.task_status_count.get(task.name)
        done = recorded.phase.get(PodPhase.SUCCEEDED, 0) if recorded is not None else 0
        if task.min_available is not None and done < task.min_available:
            return TOO_FEW_SUCCEEDED, (
                f"{ended}: task {task.name} has {done}, its minAvailable asks for "
                f"{task.min_available}"
            )
    return TOO_FEW_SUCCEEDED, f"{ended}: minAvailable asks for {spec.min_available}"


def _occasion(request: JobRequest, before: JobStatus) -> str:
    """Return a text that is unique per occurrence, and the same when a pass is repeated."""
    return "/".join(map(str, (*request.key, before.version, before.retry_count)))


def explained(facts: JobFacts, after: JobStatus, *, now: float) -> JobStatus:
    """Return `after` with the reason why the job waits, or without it if it no longer does."""
    reason, message = facts.rejection
    if reason:
        return status.explained(after, reason=reason, message=message)
    if after.state.reason in status.WAITS_FOR_ROOM:
        after = status.explained(after, reason="", message="")
    if after.state.phase != JobPhase.PENDING:
        return after
    condition = why_pending(facts.group)
    if condition is None:
        ours = after.state.reason == UNSCHEDULABLE
        return status.explained(after, reason="", message="") if ours else after
    if now < _due(after):
        return after
    return status.explained(after, reason=UNSCHEDULABLE, message=condition.message)


def reconcile_at(facts: JobFacts, *, now: float) -> float | None:
    """Return when a waiting job reports its reason, or when a running one has to end; or None."""
    due = [deadline_of(facts)]
    if facts.job.status.state.phase == JobPhase.PENDING and why_pending(facts.group) is not None:
        due.append(_due(facts.job.status))
    return min((at for at in due if at is not None and now < at), default=None)


def only_explains(before: JobStatus, after: JobStatus) -> bool:
    """Tell whether two states differ only in the reason why the job waits."""
    one, other = before.state, after.state
    return UNSCHEDULABLE in {one.reason, other.reason} and one.phase == other.phase


def _due(status_now: JobStatus) -> float:
    since = status_now.state.last_transition_time
    return time.parse(since) + LONG_S if since else 0.0
