"""JobFlow and JobTemplate (flow.volcano.sh): jobs that start when others have ended (C06, C07).

Full API types, from which `make crds` makes the CRDs. A JobTemplate's spec is a job's spec; a
JobFlow names templates, and which of them come first.

⚠ `probe` and `patch` are in the schema and have no effect, here as in Volcano (F02).
"""

import enum
from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, field

from shared.api.base import Count, Name, Timestamp, View, doc
from shared.api.batch import JobSpec, TaskState
from shared.api.meta import ObjectMeta

Port = Annotated[int, Meta(ge=0, le=65535)]


class RetainPolicy(enum.StrEnum):
    """Whether the jobs of a flow that succeeded are kept (F04)."""

    RETAIN = "retain"
    DELETE = "delete"


class FlowPhase(enum.StrEnum):
    """Phases of a flow (F03)."""

    SUCCEED = "Succeed"
    TERMINATING = "Terminating"
    FAILED = "Failed"
    RUNNING = "Running"
    PENDING = "Pending"


class HttpHeader(View, frozen=True, kw_only=True):
    """A header of an HTTP probe."""

    name: Annotated[str, doc("Name of the header.")]
    value: Annotated[str, doc("Value of the header.")]


class HttpGet(View, frozen=True, kw_only=True):
    """A probe by HTTP; not read (F02)."""

    task_name: Annotated[Name, doc("Task whose pods are asked.")] = ""
    path: Annotated[str, doc("Path of the request.")] = ""
    port: Annotated[Port, doc("Port of the request.")] = 0
    http_header: Annotated[HttpHeader, doc("Header of the request.")] | None = None


class TcpSocket(View, frozen=True, kw_only=True):
    """A probe by TCP; not read (F02)."""

    task_name: Annotated[Name, doc("Task whose pods are asked.")] = ""
    port: Annotated[Port, doc("Port that must be open.")]


class TaskStatusProbe(View, frozen=True, kw_only=True):
    """A probe by the phase of a task; not read (F02)."""

    task_name: Annotated[Name, doc("Task that is looked at.")] = ""
    phase: Annotated[str, Meta(max_length=63), doc("Phase that it must have.")] = ""


class Probe(View, frozen=True, kw_only=True):
    """Further conditions for a start; not read (F02)."""

    http_get_list: Annotated[tuple[HttpGet, ...], doc("Probes by HTTP; not read.")] = ()
    tcp_socket_list: Annotated[tuple[TcpSocket, ...], doc("Probes by TCP; not read.")] = ()
    task_status_list: Annotated[
        tuple[TaskStatusProbe, ...], doc("Probes by phases of tasks; not read.")
    ] = ()


class FlowDependsOn(View, frozen=True, kw_only=True):
    """Condition under which a job of a flow starts."""

    targets: Annotated[tuple[str, ...], doc("Flows whose jobs must be Completed.")] = ()
    probe: Annotated[Probe, doc("Not read.")] | None = None


class Patch(View, frozen=True, kw_only=True):
    """Changes to a template; not read (F02)."""

    job_spec: Annotated[JobSpec, doc("Not read.")] | None = None


class Flow(View, frozen=True, kw_only=True):
    """One job of a flow."""

    name: Annotated[str, Meta(min_length=1), doc("Name of the JobTemplate.")]
    depends_on: Annotated[FlowDependsOn, doc("Jobs of the flow that come first.")] | None = None
    patch: Annotated[Patch, doc("Not read.")] | None = None


class JobFlowSpec(View, frozen=True, kw_only=True):
    """The jobs of a flow and their order (C06a)."""

    flows: Annotated[tuple[Flow, ...], doc("Its jobs.")] = ()
    job_retain_policy: (
        Annotated[RetainPolicy, doc("Whether its jobs stay when it succeeded; they do unless set.")]
        | None
    ) = None


class RunningHistory(View, frozen=True, kw_only=True):
    """A time that a job spent in one phase."""

    start_timestamp: Annotated[Timestamp, doc("When the job entered the phase.")] | None = None
    end_timestamp: Annotated[Timestamp, doc("When the job left the phase.")] | None = None
    state: Annotated[str, doc("The phase.")] = ""


class FlowJobStatus(View, frozen=True, kw_only=True):
    """How one job of a flow stands."""

    name: Annotated[str, doc("Name of the job.")] = ""
    state: Annotated[str, doc("Phase of the job.")] = ""
    start_timestamp: Annotated[Timestamp, doc("When the job was created.")] | None = None
    end_timestamp: Annotated[Timestamp, doc("When the job ended.")] | None = None
    restart_count: Annotated[Count, doc("How often the job was restarted.")] = 0
    running_histories: Annotated[
        tuple[RunningHistory, ...], doc("Phases that the job has been in.")
    ] = ()


class FlowCondition(View, frozen=True, kw_only=True):
    """How one job of a flow has come along."""

    phase: Annotated[str, doc("Phase of the job.")] = ""
    create_time: Annotated[Timestamp, doc("When the job was created.")] | None = None
    running_duration: Annotated[str, doc("How long the job ran.")] = ""
    task_status_count: Annotated[Mapping[str, TaskState], doc("Pods by task and phase.")] = field(
        default_factory=dict
    )


class FlowState(View, frozen=True, kw_only=True):
    """The phase of a flow."""

    phase: Annotated[FlowPhase, doc("Phase of the flow.")] | None = None


class JobFlowStatus(View, frozen=True, kw_only=True):
    """How far a flow has come (C06a)."""

    pending_jobs: Annotated[tuple[str, ...], doc("Jobs in phase Pending.")] = ()
    running_jobs: Annotated[tuple[str, ...], doc("Jobs in phase Running.")] = ()
    failed_jobs: Annotated[tuple[str, ...], doc("Jobs in phase Failed.")] = ()
    completed_jobs: Annotated[tuple[str, ...], doc("Jobs in phase Completed.")] = ()
    terminated_jobs: Annotated[tuple[str, ...], doc("Jobs that were stopped.")] = ()
    un_know_jobs: Annotated[tuple[str, ...], doc("Jobs in none of these phases.")] = ()
    job_status_list: Annotated[tuple[FlowJobStatus, ...], doc("Each job.")] = ()
    conditions: Annotated[Mapping[str, FlowCondition], doc("Each job by its name.")] = field(
        default_factory=dict
    )
    state: Annotated[FlowState, doc("Phase of the flow.")] = FlowState()


class JobFlow(View, frozen=True, kw_only=True):
    """Jobs that start when others of them have completed."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[JobFlowSpec, doc("Its jobs and their order.")] = JobFlowSpec()
    status: Annotated[JobFlowStatus, doc("How far it has come.")] = JobFlowStatus()


class JobTemplateStatus(View, frozen=True, kw_only=True):
    """Status of a template."""

    job_depends_on_list: Annotated[
        tuple[str, ...], doc("Jobs made from it, as namespace.name (F05).")
    ] = ()


class JobTemplate(View, frozen=True, kw_only=True):
    """A job that flows are made of (C07)."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[JobSpec, doc("What its jobs ask for.")] = JobSpec()
    status: Annotated[JobTemplateStatus, doc("What came of it.")] = JobTemplateStatus()
