"""The state machine of a Job as one table: (phase, action) → SYNC or KILL, and the next phase.

Read a row as: in this phase, on this action, SYNC (make and delete pods by the spec) or KILL
(delete pods), then either enter a phase in any case (`enters`), or ask a rule whether the counts
of pods call for another phase (`then`). A phase without a row for an action uses its `None` row; a
phase without any row raises. The rules are pure functions of the spec, the recorded status and the
present counts. Used by `plan` (J15 to J20, J37, J39).
"""

import enum
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from services.controller.job.facts import Counts
from services.controller.job.minresources import least_started
from shared.api.batch import Action, JobPhase, JobSpec, JobStatus

COMMAND_ISSUED: Final = "CommandIssued"
"""Reason of a phase that a Command has brought about."""


class Do(enum.Enum):
    """Effect of a transition on the pods."""

    SYNC = "sync"
    KILL = "kill"


class KillScope(enum.Enum):
    """The pods that a kill may delete."""

    JOB = "job"
    TASK = "task"
    POD = "pod"
    PARTITION = "partition"


class Retain(enum.Enum):
    """The pods in scope that a kill keeps."""

    NONE = "none"
    FINISHED = "finished"
    """Succeeded and Failed pods stay, for their logs (J16, J21)."""
    SUCCEEDED = "succeeded"
    """Succeeded pods stay: the job continues where it stopped (J19)."""


class PhaseRule(msgspec.Struct, frozen=True, kw_only=True):
    """When the counts call for another phase."""

    leads_to: Mapping[JobPhase, str]
    """Each phase that it can return → when it does, as text for the diagram in docs/states.md."""
    decide: Callable[[JobSpec, JobStatus, Counts], JobPhase | None]


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table."""

    do: Do
    scope: KillScope = KillScope.JOB
    retain: Retain = Retain.NONE
    enters: JobPhase | None = None
    retry: bool = False
    """Whether this is another try: retryCount rises on entering Restarting (J37)."""
    then: PhaseRule | None = None


def _leave_pending(spec: JobSpec, _status: JobStatus, counts: Counts) -> JobPhase | None:
    """Enter Running when minAvailable pods run or have ended (J16)."""
    started = counts.running + counts.succeeded + counts.failed
    return JobPhase.RUNNING if least_started(spec) <= started else None


def _leave_running(spec: JobSpec, _status: JobStatus, counts: Counts) -> JobPhase | None:
    """Enter Completed or Failed, or go back to Pending, in Volcano's order (J17)."""
    replicas = sum(task.replicas for task in spec.tasks)
    if replicas == 0:
        return None
    if spec.min_success is not None and counts.succeeded >= spec.min_success:
        return JobPhase.COMPLETED
    if counts.succeeded + counts.failed == replicas:
        return _final_phase(spec, counts)
    if counts.pending > replicas - least_started(spec):
        return JobPhase.PENDING
    return None


def _final_phase(spec: JobSpec, counts: Counts) -> JobPhase:
    """Completed or Failed, once every pod has ended (J17)."""
    minima = {
        t.name: t.replicas if t.min_available is None else t.min_available for t in spec.tasks
    }
    if spec.min_available >= sum(minima.values()):
        for task in spec.tasks:
            if (
                task.min_available is not None
                and counts.succeeded_of(task.name) < minima[task.name]
            ):
                return JobPhase.FAILED
    if spec.min_success is not None:
        return JobPhase.FAILED
    return JobPhase.COMPLETED if counts.succeeded >= spec.min_available else JobPhase.FAILED


def _leave_restarting(spec: JobSpec, status: JobStatus, counts: Counts) -> JobPhase | None:
    """Enter Failed when the tries are used up, else Pending once there is room (J18, J37).

    A resume counts as a try, as in Volcano, but it is an order of the owner: it fails no job.
    """
    if status.retry_count >= spec.max_retry and not _is_resumed(status):
        return JobPhase.FAILED
    replicas = sum(task.replicas for task in spec.tasks)
    return JobPhase.PENDING if replicas - counts.terminating >= spec.min_available else None


def _is_resumed(status: JobStatus) -> bool:
    """Tell whether a job is Restarting because its owner has resumed it."""
    state = status.state
    return state.reason == COMMAND_ISSUED and state.message.startswith(Action.RESUME_JOB.value)


_FROM_PENDING: Final = PhaseRule(
    leads_to={JobPhase.RUNNING: "minAvailable pods run or have ended"}, decide=_leave_pending
)
_FROM_RUNNING: Final = PhaseRule(
    leads_to={
        JobPhase.COMPLETED: "minSuccess reached, or all pods ended and enough succeeded",
        JobPhase.FAILED: "all pods ended and too few succeeded",
        JobPhase.PENDING: "fewer than minAvailable pods left that are not Pending",
    },
    decide=_leave_running,
)
_FROM_RESTARTING: Final = PhaseRule(
    leads_to={
        JobPhase.FAILED: "maxRetry tries used up, unless it is resumed",
        JobPhase.PENDING: "room for minAvailable pods",
    },
    decide=_leave_restarting,
)


def _once_no_pod_is_alive(final: JobPhase) -> PhaseRule:
    """Return the rule that leads to `final` once no pod is alive (J19)."""

    def no_pod_alive(_spec: JobSpec, _status: JobStatus, counts: Counts) -> JobPhase | None:
        alive = counts.pending + counts.running + counts.terminating
        return final if alive == 0 else None

    return PhaseRule(leads_to={final: "no pod is alive"}, decide=no_pod_alive)


def _kill(enters: JobPhase) -> Transition:
    return Transition(do=Do.KILL, retain=Retain.FINISHED, enters=enters)


def _restart(scope: KillScope) -> Transition:
    return Transition(do=Do.KILL, scope=scope, enters=JobPhase.RESTARTING, retry=True)


_ON_ACTION: Final[Mapping[Action | None, Transition]] = {
    Action.RESTART_JOB: _restart(KillScope.JOB),
    Action.RESTART_TASK: _restart(KillScope.TASK),
    Action.RESTART_POD: _restart(KillScope.POD),
    Action.RESTART_PARTITION: _restart(KillScope.PARTITION),
    Action.ABORT_JOB: _kill(JobPhase.ABORTING),
    Action.COMPLETE_JOB: _kill(JobPhase.COMPLETING),
    Action.TERMINATE_JOB: _kill(JobPhase.TERMINATING),
}
"""Effect of an action on a job that is alive (J16, J17)."""

_RESUMED: Final = Transition(
    do=Do.KILL, retain=Retain.SUCCEEDED, enters=JobPhase.RESTARTING, retry=True
)
_STILL_KILLING: Final = Transition(do=Do.KILL, then=_FROM_RESTARTING)
_STAY_ENDED: Final[Mapping[Action | None, Transition]] = {
    None: Transition(do=Do.KILL, retain=Retain.FINISHED)
}


def _killing(final: JobPhase) -> Mapping[Action | None, Transition]:
    return {None: Transition(do=Do.KILL, retain=Retain.FINISHED, then=_once_no_pod_is_alive(final))}


TABLE: Final[Mapping[JobPhase, Mapping[Action | None, Transition]]] = {
    JobPhase.PENDING: {**_ON_ACTION, None: Transition(do=Do.SYNC, then=_FROM_PENDING)},
    JobPhase.RUNNING: {**_ON_ACTION, None: Transition(do=Do.SYNC, then=_FROM_RUNNING)},
    JobPhase.RESTARTING: {
        Action.SYNC_JOB: Transition(do=Do.SYNC, then=_FROM_RESTARTING),
        Action.RESTART_TASK: msgspec.structs.replace(_STILL_KILLING, scope=KillScope.TASK),
        Action.RESTART_POD: msgspec.structs.replace(_STILL_KILLING, scope=KillScope.POD),
        Action.RESTART_PARTITION: msgspec.structs.replace(
            _STILL_KILLING, scope=KillScope.PARTITION
        ),
        None: _STILL_KILLING,
    },
    JobPhase.ABORTING: {
        Action.RESUME_JOB: _RESUMED,
        **_killing(JobPhase.ABORTED),
    },
    JobPhase.ABORTED: {Action.RESUME_JOB: _RESUMED, **_STAY_ENDED},
    JobPhase.COMPLETING: _killing(JobPhase.COMPLETED),
    JobPhase.TERMINATING: _killing(JobPhase.TERMINATED),
    JobPhase.COMPLETED: _STAY_ENDED,
    JobPhase.TERMINATED: _STAY_ENDED,
    JobPhase.FAILED: _STAY_ENDED,
}

ALIVE: Final = frozenset({JobPhase.PENDING, JobPhase.RUNNING})
"""Phases in which missing pods are created."""


def transition_for(phase: JobPhase, action: Action) -> Transition:
    """Return the row for `action` in `phase`; KeyError when the table has no such phase."""
    rows = TABLE[phase]
    return rows[action] if action in rows else rows[None]
