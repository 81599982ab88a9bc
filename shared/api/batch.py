"""Job (batch.volcano.sh): the full API type, from which `make crds` makes the CRD (C01).

Pod templates and claim specs travel verbatim as `msgspec.Raw`: the controller makes pods and
claims from exactly what the user wrote, whatever fields a newer Kubernetes adds. A `Raw` holds on
to the buffer that it was decoded from; code that keeps a Job for long decodes it from its own
buffer.

`action` of a policy is free text in Volcano's CRD (C01c): whether it is one of `Action` is checked
by admission and by the controller.
"""

import enum
from collections.abc import Mapping
from typing import Annotated, Final

from msgspec import UNSET, Meta, Raw, UnsetType, field

from shared.api.base import DNS_LABEL, Count, DnsName, Int32, Name, Timestamp, View, default, doc
from shared.api.meta import ObjectMeta, OwnerReference
from shared.api.scheduling import DEFAULT_QUEUE, ONE_TIER, NetworkTopology

DEFAULT_MAX_RETRY = 3


class JobEvent(enum.StrEnum):
    """Events of a job (C01c); `ANY` stands for every one of them in a policy."""

    ANY = "*"
    POD_PENDING = "PodPending"
    POD_RUNNING = "PodRunning"
    POD_FAILED = "PodFailed"
    POD_EVICTED = "PodEvicted"
    UNKNOWN = "Unknown"
    TASK_COMPLETED = "TaskCompleted"
    OUT_OF_SYNC = "OutOfSync"
    COMMAND_ISSUED = "CommandIssued"
    JOB_UPDATED = "JobUpdated"
    TASK_FAILED = "TaskFailed"


class Action(enum.StrEnum):
    """Actions on a job or a queue (C01c, J14); users' policies have the first eight."""

    ABORT_JOB = "AbortJob"
    RESTART_JOB = "RestartJob"
    RESTART_TASK = "RestartTask"
    RESTART_POD = "RestartPod"
    RESTART_PARTITION = "RestartPartition"
    TERMINATE_JOB = "TerminateJob"
    COMPLETE_JOB = "CompleteJob"
    RESUME_JOB = "ResumeJob"
    SYNC_JOB = "SyncJob"
    ENQUEUE_JOB = "EnqueueJob"
    SYNC_QUEUE = "SyncQueue"
    OPEN_QUEUE = "OpenQueue"
    CLOSE_QUEUE = "CloseQueue"


class JobPhase(enum.StrEnum):
    """Phases of a job (J15)."""

    PENDING = "Pending"
    ABORTING = "Aborting"
    ABORTED = "Aborted"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    COMPLETING = "Completing"
    COMPLETED = "Completed"
    TERMINATING = "Terminating"
    TERMINATED = "Terminated"
    FAILED = "Failed"


FINISHED: Final = frozenset({JobPhase.COMPLETED, JobPhase.FAILED, JobPhase.TERMINATED})
"""Final phases: no action leaves them (J20)."""

ENDED: Final = FINISHED | {JobPhase.ABORTED}
"""Phases in which a job stays unless a user acts: an aborted job may be resumed (J15)."""


class TopologyPolicy(enum.StrEnum):
    """How a task's pods are laid out over the NUMA nodes of a machine."""

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE_NUMA_NODE = "single-numa-node"


class LifecyclePolicy(View, frozen=True, kw_only=True):
    """An action and its trigger: one or several events, or one exit code."""

    action: Annotated[str, doc("What is done, such as RestartJob or CompleteJob.")] = ""
    event: Annotated[JobEvent, doc("The event that it answers.")] | None = None
    events: Annotated[tuple[JobEvent, ...], doc("The events that it answers.")] = ()
    exit_code: Annotated[Int32, doc("The exit code that it answers; never 0.")] | None = None
    timeout: Annotated[str, doc("How long to wait first, such as 10m.")] = ""


class VolumeSpec(View, frozen=True, kw_only=True):
    """A volume that all pods of a job mount (J30)."""

    mount_path: Annotated[
        str, Meta(min_length=1, pattern="^[^:]+$"), doc("Where it is mounted; no colon.")
    ]
    volume_claim_name: Annotated[Name, doc("Name of the claim; made up when empty.")] = ""
    volume_claim: Annotated[
        Raw | UnsetType, doc("Spec of a claim to create (core/v1 PersistentVolumeClaimSpec).")
    ] = UNSET


class DependsOn(View, frozen=True, kw_only=True):
    """Tasks that must be ready before this one's pods are made (J25)."""

    name: Annotated[tuple[str, ...], doc("Names of the tasks.")] = ()
    iteration: Annotated[str, doc("any or all of them; all unless set.")] = ""


class PartitionPolicy(View, frozen=True, kw_only=True):
    """How a task's pods divide into partitions that are placed together (J29)."""

    total_partitions: Annotated[Int32, Meta(ge=1), doc("How many partitions there are.")]
    partition_size: Annotated[Int32, Meta(ge=1), doc("Pods in each.")]
    network_topology: (
        Annotated[
            NetworkTopology,
            doc("How near to each other the pods of one partition must run."),
            ONE_TIER,
        ]
        | None
    ) = None
    min_partitions: Annotated[Count, default(0), doc("Partitions that must be placed.")] = 0


class TaskSpec(View, frozen=True, kw_only=True):
    """Pods of one kind within a job (C01b)."""

    name: Annotated[
        str, Meta(max_length=63, pattern=DNS_LABEL), doc("Name; default<index> when empty.")
    ] = ""
    replicas: Annotated[Count, doc("How many pods there are.")] = 0
    min_available: (
        Annotated[Count, doc("Pods that must run together; all of them unless set.")] | None
    ) = None
    template: Annotated[Raw, doc("What a pod looks like (core/v1 PodTemplateSpec).")] = Raw(b"{}")
    policies: Annotated[
        tuple[LifecyclePolicy, ...], doc("What is done on events of this task.")
    ] = ()
    topology_policy: Annotated[TopologyPolicy, doc("NUMA policy of its pods.")] | None = None
    max_retry: Annotated[
        Count, doc("Container restarts after which the task has failed; 3 unless set.")
    ] = 0
    depends_on: Annotated[DependsOn, doc("Tasks that come first.")] | None = None
    partition_policy: (
        Annotated[PartitionPolicy, doc("How its pods divide into partitions.")] | None
    ) = None


class JobSpec(View, frozen=True, kw_only=True):
    """Spec of a job (C01a)."""

    scheduler_name: Annotated[
        str, Meta(max_length=63), doc("Scheduler of its pods; volcano unless set.")
    ] = ""
    min_available: Annotated[
        Count, doc("Pods that must run together; the sum of the tasks' unless set.")
    ] = 0
    volumes: Annotated[tuple[VolumeSpec, ...], doc("Volumes that all its pods mount.")] = ()
    tasks: Annotated[tuple[TaskSpec, ...], Meta(min_length=1), doc("Its pods, by kind.")] = ()
    policies: Annotated[
        tuple[LifecyclePolicy, ...], doc("What is done on events; a task's own come first.")
    ] = ()
    plugins: Annotated[
        Mapping[str, tuple[str, ...]], doc("Job plugins by name, with their arguments.")
    ] = field(default_factory=dict)
    running_estimate: Annotated[str, doc("How long it is expected to run.")] = ""
    queue: Annotated[
        DnsName, default(DEFAULT_QUEUE), doc("Queue that it draws resources from.")
    ] = DEFAULT_QUEUE
    max_retry: Annotated[
        Count, default(DEFAULT_MAX_RETRY), doc("Restarts after which it has failed.")
    ] = DEFAULT_MAX_RETRY
    ttl_seconds_after_finished: (
        Annotated[Count, doc("When it is deleted after its end; never unless set.")] | None
    ) = None
    priority_class_name: Annotated[DnsName, doc("PriorityClass of its pods.")] = ""
    min_success: (
        Annotated[Int32, Meta(ge=1), doc("Pods whose success completes the job.")] | None
    ) = None
    network_topology: (
        Annotated[NetworkTopology, doc("How near to each other its pods must run."), ONE_TIER]
        | None
    ) = None


class JobState(View, frozen=True, kw_only=True):
    """The phase of a job and why."""

    phase: Annotated[JobPhase, doc("Phase of the job.")] | None = None
    reason: Annotated[str, doc("One word why.")] = ""
    message: Annotated[str, doc("Why, for people.")] = ""
    last_transition_time: Annotated[Timestamp, doc("When it entered the phase.")] | None = None


class JobCondition(View, frozen=True, kw_only=True):
    """A phase that the job has been in (J26)."""

    status: Annotated[str, doc("The phase.")]
    last_transition_time: Annotated[Timestamp, doc("When the job entered it last.")] | None = None


class TaskState(View, frozen=True, kw_only=True):
    """Pods of one task by phase."""

    phase: Annotated[Mapping[str, Int32], doc("Phase of pods and how many are in it.")] = field(
        default_factory=dict
    )


class JobStatus(View, frozen=True, kw_only=True):
    """How far a job has come (C01f)."""

    state: Annotated[JobState, doc("Phase and why.")] = JobState()
    min_available: Annotated[Count, doc("Pods that must run together.")] = 0
    task_status_count: Annotated[Mapping[str, TaskState], doc("Pods by task and phase.")] = field(
        default_factory=dict
    )
    pending: Annotated[Count, doc("Pods in phase Pending.")] = 0
    running: Annotated[Count, doc("Pods in phase Running.")] = 0
    succeeded: Annotated[Count, doc("Pods in phase Succeeded.")] = 0
    failed: Annotated[Count, doc("Pods in phase Failed.")] = 0
    terminating: Annotated[Count, doc("Pods that are being deleted.")] = 0
    unknown: Annotated[Count, doc("Pods in no known phase.")] = 0
    version: Annotated[Count, doc("Raised by each kill of the whole job.")] = 0
    retry_count: Annotated[Count, doc("How often it was restarted.")] = 0
    running_duration: Annotated[str, doc("From creation to end.")] = ""
    controlled_resources: Annotated[
        Mapping[str, str], doc("What the controller made for it, such as plugin-svc.")
    ] = field(default_factory=dict)
    conditions: Annotated[tuple[JobCondition, ...], doc("Phases that it has been in.")] = ()


class Job(View, frozen=True, kw_only=True):
    """Pods of several kinds that run as one job."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[JobSpec, doc("What the job asks for.")] = JobSpec()
    status: Annotated[JobStatus, doc("How far it has come.")] = JobStatus()


# --- bus.volcano.sh: an order to a job or a queue, as `vcctl` writes it (C05, J05) ---


class Target(OwnerReference, frozen=True, kw_only=True):
    """The object that a Command is for: an owner reference, whose UID `vcctl` may leave out."""

    uid: Annotated[str, doc("UID of the referent; without it any object of the name is meant.")] = (
        ""
    )


class Command(View, frozen=True, kw_only=True):
    """Do `action` to `target`; has neither spec nor status."""

    metadata: ObjectMeta = ObjectMeta()
    action: Annotated[str, doc("What is to be done, such as AbortJob or ResumeJob.")] = ""
    target: Annotated[Target, doc("The object that it is done to.")] | None = None
    reason: Annotated[str, doc("One word why.")] = ""
    message: Annotated[str, doc("Why, for people.")] = ""
