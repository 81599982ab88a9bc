"""Plans a flow: jobs to create, jobs to delete, its status and its Events.

A job is made once: when all its targets have Completed, and not again after it has ended. A job
that was deleted before its end is made again. A flow that failed starts no more jobs; those that
run go on (F02, F03).
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from services.controller.jobflow.status import ended_jobs, job_of, name_of, status_of
from shared.api.batch import Job, JobPhase
from shared.api.flow import Flow, FlowPhase, JobFlow, JobFlowStatus, JobTemplate, RetainPolicy
from shared.jobs.flows import flow_problems
from shared.jobs.problems import texts

NOTES_MAX: Final = 20
"""Notes of one sort that are recorded on a flow."""


class FlowEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An Event about a flow; all of them are warnings."""

    reason: str
    message: str


class FlowPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Writes of one pass, in this order: the status, deletions, creations."""

    status: JobFlowStatus
    delete: tuple[Job, ...] = ()
    create: tuple[Job, ...] = ()
    notes: tuple[FlowEvent, ...] = ()


def plan(flow: JobFlow, jobs: Sequence[Job], templates: Mapping[str, JobTemplate]) -> FlowPlan:
    """Return the plan of a flow from the jobs it controls and its namespace's templates."""
    status = status_of(flow, jobs)
    if status.state.phase in {FlowPhase.SUCCEED, FlowPhase.FAILED, FlowPhase.TERMINATING}:
        return FlowPlan(status=status, delete=_jobs_to_delete(flow, status, jobs))
    if faults := tuple(flow_problems(flow)):
        notes = tuple(FlowEvent(reason="InvalidJobFlow", message=text) for text in texts(faults))
        return FlowPlan(status=status, notes=notes)
    create, notes = _missing(flow, status, jobs, templates)
    return FlowPlan(
        status=status,
        create=create,
        notes=(*_first_notes(notes), *_first_notes(_ignored_fields(flow))),
    )


def entries(flow: JobFlow) -> dict[str, Flow]:
    """Return the entries by name; of several with one name the last one counts (W60)."""
    return {entry.name: entry for entry in flow.spec.flows}


def _jobs_to_delete(flow: JobFlow, status: JobFlowStatus, jobs: Sequence[Job]) -> tuple[Job, ...]:
    """Return the jobs to delete: all of a succeeded flow, if its policy says so (F04)."""
    desired = flow.spec.job_retain_policy is RetainPolicy.DELETE
    over = status.state.phase is FlowPhase.SUCCEED
    return tuple(jobs) if desired and over else ()


def _missing(
    flow: JobFlow,
    status: JobFlowStatus,
    jobs: Sequence[Job],
    templates: Mapping[str, JobTemplate],
) -> tuple[tuple[Job, ...], tuple[FlowEvent, ...]]:
    present = {job.metadata.name for job in jobs}
    ended = ended_jobs(status)
    create, notes = [], []
    for entry in entries(flow).values():
        name = name_of(flow, entry.name)
        if name in present or name in ended or not _may_start(flow, entry, ended):
            continue
        template = templates.get(entry.name)
        if template is None:
            notes.append(
                FlowEvent(
                    reason="JobTemplateMissing",
                    message=f"There is no JobTemplate {entry.name} in namespace "
                    f"{flow.metadata.namespace}: job {name} waits for it",
                )
            )
        else:
            create.append(job_of(flow, template))
    return tuple(create), tuple(notes)


def _first_notes(notes: Sequence[FlowEvent]) -> tuple[FlowEvent, ...]:
    """Return the first notes, and how many more there are: a flow may have thousands of entries."""
    left = len(notes) - NOTES_MAX
    if left <= 0:
        return tuple(notes)
    more = FlowEvent(reason=notes[0].reason, message=f"and {left} more")
    return (*notes[:NOTES_MAX], more)


def _may_start(flow: JobFlow, entry: Flow, ended: Mapping[str, str]) -> bool:
    return all(ended.get(name_of(flow, target)) == JobPhase.COMPLETED for target in _targets(entry))


def _targets(entry: Flow) -> tuple[str, ...]:
    return entry.depends_on.targets if entry.depends_on is not None else ()


def _ignored_fields(flow: JobFlow) -> list[FlowEvent]:
    """Return the fields of a flow that have no effect, here as in Volcano (F02)."""
    notes = []
    for number, entry in enumerate(flow.spec.flows):
        path = f"spec.flows[{number}]"
        unread = []
        if entry.patch is not None:
            unread.append(f"{path}.patch")
        if entry.depends_on is not None and entry.depends_on.probe is not None:
            unread.append(f"{path}.dependsOn.probe")
        notes += [
            FlowEvent(reason="FieldNotRead", message=f"{field} has no effect, as in Volcano")
            for field in unread
        ]
    return notes
