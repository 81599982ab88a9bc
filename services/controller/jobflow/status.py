"""The jobs of a flow (F01) and its status: its jobs by phase, and its own phase (F03).

A flow begins when one of its jobs does, fails with the first that fails or is stopped, and has
succeeded when all of them completed. Both ends are final; only its own deletion ends a flow
otherwise. A job that has ended stays in the status after it was deleted (by its time to live, by a
person, or by the flow's own policy): what was done is not done again.
"""

import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from shared.api import keys, kinds
from shared.api.batch import FINISHED, Job, JobPhase
from shared.api.flow import (
    FlowCondition,
    FlowJobStatus,
    FlowPhase,
    FlowState,
    JobFlow,
    JobFlowStatus,
    JobTemplate,
    RunningHistory,
)
from shared.api.meta import ObjectMeta
from shared.jobs.users import with_user_of


class FlowProgress(enum.StrEnum):
    """State of the jobs of a flow as a whole."""

    WAITING = "waiting"
    """No job has begun."""
    UNDER_WAY = "under way"
    """A job has begun, and none has failed."""
    BROKEN = "broken"
    """A job has failed or was stopped."""
    WHOLE = "whole"
    """All jobs have completed."""
    DELETED = "deleted"
    """The flow itself is being deleted."""


_P, _R, _S, _F, _T = (
    FlowPhase.PENDING,
    FlowPhase.RUNNING,
    FlowPhase.SUCCEED,
    FlowPhase.FAILED,
    FlowPhase.TERMINATING,
)

NEXT: Final[Mapping[FlowPhase, Mapping[FlowProgress, FlowPhase]]] = {
    _P: {
        FlowProgress.UNDER_WAY: _R,
        FlowProgress.BROKEN: _F,
        FlowProgress.WHOLE: _S,
        FlowProgress.DELETED: _T,
    },
    _R: {FlowProgress.BROKEN: _F, FlowProgress.WHOLE: _S, FlowProgress.DELETED: _T},
    _S: {FlowProgress.DELETED: _T},
    _F: {FlowProgress.DELETED: _T},
    _T: {},
}
"""Phase → transitions out of it. Anything else leaves the phase unchanged."""


def next_phase(was: FlowPhase | None, progress: FlowProgress) -> FlowPhase:
    """Return the phase of a flow; one without a phase begins as Pending."""
    before = was or FlowPhase.PENDING
    return NEXT[before].get(progress, before)


STOPPED: Final = frozenset({JobPhase.FAILED, JobPhase.TERMINATED})

_LISTS: Final = {
    "": "pending_jobs",
    JobPhase.PENDING: "pending_jobs",
    JobPhase.RUNNING: "running_jobs",
    JobPhase.FAILED: "failed_jobs",
    JobPhase.COMPLETED: "completed_jobs",
    JobPhase.TERMINATED: "terminated_jobs",
    JobPhase.COMPLETING: None,
    JobPhase.TERMINATING: None,
}
"""Phase → its list in the status; a job that is about to end is in none, as in Volcano."""
_OTHER: Final = "un_know_jobs"


def status_of(flow: JobFlow, jobs: Sequence[Job]) -> JobFlowStatus:
    """Return the status of a flow over the jobs that it controls."""
    before = {entry.name: entry for entry in flow.status.job_status_list}
    present = {job.metadata.name for job in jobs}
    remembered = [e for n, e in before.items() if n not in present and e.state in FINISHED]
    entries = sorted(
        [*remembered, *(_entry(job, before.get(job.metadata.name)) for job in jobs)],
        key=lambda entry: entry.name,
    )
    lists: dict[str, list[str]] = {}
    for entry in entries:
        if (place := _LISTS.get(entry.state, _OTHER)) is not None:
            lists.setdefault(place, []).append(entry.name)
    conditions = {
        entry.name: flow.status.conditions[entry.name]
        for entry in remembered
        if entry.name in flow.status.conditions
    } | {job.metadata.name: _condition(job) for job in jobs}
    phase = next_phase(flow.status.state.phase, _progress(flow, entries))
    return JobFlowStatus(
        job_status_list=tuple(entries),
        conditions=conditions,
        state=FlowState(phase=phase),
        **{name: tuple(names) for name, names in lists.items()},
    )


def ended_jobs(status: JobFlowStatus) -> Mapping[str, str]:
    """Return the jobs that have ended, those that were deleted since among them: name → phase."""
    return {entry.name: entry.state for entry in status.job_status_list if entry.state in FINISHED}


def has_recorded(flow: JobFlow, job: Job) -> bool:
    """Whether a flow's status records the end of a job: before that it would be made again."""
    return ended_jobs(flow.status).get(job.metadata.name) == job.status.state.phase


def _progress(flow: JobFlow, entries: Iterable[FlowJobStatus]) -> FlowProgress:
    if flow.metadata.deletion_timestamp is not None:
        return FlowProgress.DELETED
    states = {entry.name: entry.state for entry in entries}
    if any(state in STOPPED for state in states.values()):
        return FlowProgress.BROKEN
    desired = [name_of(flow, entry.name) for entry in flow.spec.flows]
    if desired and all(states.get(name) == JobPhase.COMPLETED for name in desired):
        return FlowProgress.WHOLE
    begun = any(state not in {"", JobPhase.PENDING} for state in states.values())
    return FlowProgress.UNDER_WAY if begun else FlowProgress.WAITING


def _entry(job: Job, before: FlowJobStatus | None) -> FlowJobStatus:
    state = job.status.state
    ended = state.phase in FINISHED
    return FlowJobStatus(
        name=job.metadata.name,
        state=state.phase or "",
        start_timestamp=job.metadata.creation_timestamp,
        end_timestamp=state.last_transition_time if ended else None,
        restart_count=job.status.retry_count,
        running_histories=_histories(job, before.running_histories if before else ()),
    )


def _histories(job: Job, before: tuple[RunningHistory, ...]) -> tuple[RunningHistory, ...]:
    """Return the observed phases of a job, the current one last and open."""
    state = job.status.state
    if not state.phase or (before and before[-1].state == state.phase):
        return before
    since = state.last_transition_time
    closed = tuple(
        RunningHistory(
            start_timestamp=history.start_timestamp,
            end_timestamp=history.end_timestamp or since,
            state=history.state,
        )
        for history in before
    )
    return (*closed, RunningHistory(start_timestamp=since, state=state.phase))


def _condition(job: Job) -> FlowCondition:
    status = job.status
    return FlowCondition(
        phase=status.state.phase or "",
        create_time=job.metadata.creation_timestamp,
        running_duration=status.running_duration,
        task_status_count=status.task_status_count,
    )


def name_of(flow: JobFlow, entry: str) -> str:
    """Return the name of the job of one entry of a flow."""
    return f"{flow.metadata.name}-{entry}"


def job_of(flow: JobFlow, template: JobTemplate) -> Job:
    """Return the job that a flow makes from a template."""
    marks = {
        keys.CREATED_BY_TEMPLATE: f"{template.metadata.namespace}.{template.metadata.name}",
        keys.CREATED_BY_FLOW: f"{flow.metadata.namespace}.{flow.metadata.name}",
    }
    return Job(
        metadata=ObjectMeta(
            name=name_of(flow, template.metadata.name),
            namespace=flow.metadata.namespace,
            labels=marks,
            annotations=with_user_of(flow.metadata.annotations, marks),
            owner_references=(kinds.JOBFLOW.controller_reference(flow.metadata),),
        ),
        spec=template.spec,
    )
