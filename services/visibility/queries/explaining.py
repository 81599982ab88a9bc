"""The explanation of one job: gates in order, holders of short resources, remedies.

The gate that stops a job, its texts and amounts are what the leading scheduler has decided and
published. Where it has published nothing, or the amounts may have changed since, a session of its
engine here decides; where that finds another gate by now, the answer has both. All else is looked
up in a session in which no action has run. A change is named as a help only if a rehearsal of it
opens the gate (`helps`).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pumice.plugins import IntArray
from services.scheduler.decide import open_session
from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.plan import JobExplanation as Why
from services.scheduler.engine.plan import shortened
from services.scheduler.engine.resources.dimensions import quantity
from services.scheduler.engine.session.binding import awaited
from services.scheduler.engine.session.session import Session
from services.scheduler.engine.status.messages import NEVER
from services.scheduler.engine.tasks.task import Task, TaskClass
from services.visibility.forecast.ends import stated_end
from services.visibility.queries.cluster_mirror import ClusterMirror
from services.visibility.queries.helps import BlockedJob, Helps, helps
from services.visibility.queries.holders import holders
from services.visibility.queries.live import EndOf
from services.visibility.queries.pending import (
    PublishedWait,
    at_place,
    has_old_amounts,
    waits,
)
from services.visibility.queries.survey import DecisionPolicy
from services.visibility.queries.whatif import OutOfTime, no_time_limit
from services.visibility.queries.wording import controller_of, meta_of, owner_of, shortages
from shared.api.kinds import JOB, POD
from shared.api.meta import ObjectMeta
from shared.api.scheduling import PodGroupPhase
from shared.api.time import format_seconds
from shared.api.visibility import (
    Explanation,
    Finding,
    Gate,
    NodesReason,
    ObjectRef,
    ResourceShortage,
)
from shared.model.status import TaskStatus

PASSED: Final = "Passed"
FAILED: Final = "Failed"
NOT_REACHED: Final = "NotReached"
_GATES: Final = ("enqueue", "gang", "queue", "quota", "binder", "topology", "predicate")
"""In the order in which a job meets them."""
_REASONS_MAX: Final = 50
_PREPARED: Final = "drivers prepare the devices"
_STARTS: Final = "its pods have nodes and start there"
_BOUND_AGAIN: Final = "the pod is bound once more"
_TRIED_AGAIN: Final = "the scheduler tries again when the cluster changes"
_PASSED_SINCE: Final = "the scheduler handles it in its next cycle; nothing stops it any more"
_BEFORE_THE_QUEUE: Final = frozenset({"", PodGroupPhase.PENDING.value})
_UNDECIDED: Final = (
    "the scheduler has not handled it yet and does so in its next cycle; nothing is known that "
    "stops it"
)


class ExplainedJob(Struct, frozen=True, kw_only=True):
    """The object of the query, and its gang."""

    about: ObjectRef
    job: Job | None
    task: Task | None = None


def subject_of(mirror: ClusterMirror, namespace: str, name: str) -> ExplainedJob | None:
    """Return the Job of a name, else the PodGroup, else the pod."""
    key = f"{namespace}/{name}"
    job = mirror.group_of(key) or mirror.state.jobs.get(key)
    if job is not None and job.has_group:
        return ExplainedJob(about=owner_of(job), job=job)
    task = mirror.state.pod(key)
    if task is None:
        return None
    about = ObjectRef(kind=POD.kind, namespace=namespace, name=name)
    return ExplainedJob(about=about, job=mirror.state.jobs.get(task.job_key), task=task)


def explain(
    mirror: ClusterMirror,
    policy: DecisionPolicy,
    subject: ExplainedJob,
    why: Why | None,
    *,
    now: float,
    decided: PublishedWait | None = None,
    found_at: float | None = None,
    ends: EndOf = stated_end,
    out_of_time: OutOfTime = no_time_limit,
) -> Explanation:
    """Return the explanation of a job or one of its pods.

    `why` is what stops it in a session on the state of `found_at` (Unix seconds), None for nothing;
    `decided` is what the leader has published.
    """
    job = subject.job
    meta = ObjectMeta(name=subject.about.name, namespace=subject.about.namespace)
    if job is None or not job.has_group:
        return Explanation(metadata=meta, about=subject.about, phase=_phase(subject))
    awaits = _of_binds(subject) if why is None and decided is None else None
    stated = decided.why if decided is not None else why or awaits
    if decided is not None and why is not None and has_old_amounts(decided, why.gate, now):
        stated = why
    elif stated is not None and why is not None:
        stated = replace(stated, details=at_place(stated.details, why.position))
    session = open_session(mirror.state, policy.config, now=now, plugins=policy.plugins)
    try:
        named, more = holders(session, job, why, ends) if why else ((), 0)
        undecided = stated is None and _is_unplaced(subject)
        gates = tuple(_gates(job, stated, _order(session, job, stated), is_decided=not undecided))
        short = tuple(_short(session, job, stated)) if stated else ()
    finally:
        session.close()
    found = Helps()
    if why is not None:
        stop = BlockedJob(job=job.key, why=why, holders=[each.key for each in named])
        found = helps(mirror, policy, stop, now=now, out_of_time=out_of_time)
        event = _next_event(job, why, found) or _refused_bind(mirror, job) or _TRIED_AGAIN
    elif decided is not None and decided.why.gate == "binder":
        event = _BOUND_AGAIN
    elif awaits:
        event = _PREPARED
    else:
        event = _next_without_gate(subject, job, is_decided=decided is not None)
    return Explanation(
        metadata=meta_of(job) if subject.task is None else meta,
        about=subject.about,
        owner=controller_of(job),
        pod_group=job.name,
        queue=job.queue,
        phase=_phase(subject),
        position=(why or stated).position if stated else 0,
        gates=gates,
        nodes=stated.nodes if stated else 0,
        reasons=_reasons(stated.reasons) if stated else (),
        shortages=short,
        holders=tuple(each.holder for each in named),
        remaining_holders=more,
        would_help=found.changes,
        next_event=event,
        decided_at=None if decided is None else format_seconds(decided.at),
        latest=_latest(why, decided, now if found_at is None else found_at),
    )


def _short(session: Session, job: Job, why: Why) -> Iterator[ResourceShortage]:
    """Yield what is short; at the gate of the nodes with the pods that request it and their room.

    One node may have as much free as a pod requests: then it is short for the pods in all. A queue
    that has too little is behind that, too, where the nodes have no more.
    """
    missing = max(1, job.min_available - job.ready_count)
    pending = sorted(job.by_status[TaskStatus.PENDING].values(), key=Task.order)
    for each in shortages(why.shortages):
        dim = session.resource(each.resource)
        asking = [t for t in pending if dim is not None and t.task_class.request[dim] > 0]
        if why.gate not in {"predicate", "quota"} or dim is None or not asking:
            yield each
            continue
        fits = _places(session, asking[0].task_class)
        if why.gate == "quota" and fits.sum() >= missing:
            yield each
            continue
        if why.gate == "quota":  # the queue's amount, which is no node's
            free = _largest_free(session, asking[0].task_class, dim)
            each = replace(each, free=quantity(each.resource, free))  # noqa: PLW2901
        yield replace(
            each,
            pods=len(asking) if job.is_ready else min(missing, len(asking)),
            nodes=int((fits > 0).sum()),
            places=int(fits.sum()),
        )


def _places(session: Session, task_class: TaskClass) -> IntArray:
    """Return for how many pods of a class each node has room that no other rule closes."""
    open_ = session.candidates(task_class).open
    ledger = session.ledger
    dims = np.flatnonzero(task_class.request > 0)
    free = (ledger.allocatable - ledger.used)[dims][:, : open_.shape[0]]
    per_node: IntArray = (free // task_class.request[dims, None]).min(axis=0).clip(min=0)
    return per_node * open_


def _largest_free(session: Session, task_class: TaskClass, dim: int) -> int:
    """Return how much of a resource a node has free where no other rule keeps the pods away."""
    open_ = session.candidates(task_class).open
    ledger = session.ledger
    free = (ledger.allocatable - ledger.used)[dim, : open_.shape[0]]
    return int(free[open_].max(initial=0))


def _of_binds(subject: ExplainedJob) -> Why | None:
    """Return what binds in flight wait for, None where they wait for nothing.

    Intents are for binders alone: what they have written says that a pod is being bound.
    """
    job = subject.job
    pending = job.by_status[TaskStatus.PENDING].values() if job is not None else ()
    awaits = [text for task in pending if subject.task in (None, task) and (text := awaited(task))]
    if job is None or not awaits:
        return None
    message = f"before {len(awaits)} of its pods are bound, {awaits[0]}"
    return Why(
        job=job.key,
        job_uid=job.uid,
        queue=job.queue,
        owner_job=job.owner_job,
        gate="binder",
        message=shortened(message),
    )


def _latest(why: Why | None, decided: PublishedWait | None, at: float) -> Finding | None:
    """Return what a session has found since, if it is not the gate that the leader published."""
    gate = why.gate if why else ""
    if decided is None or decided.why.gate == gate or decided.at > at:
        return None
    message = why.message + why.details if why else ""
    return Finding(at=format_seconds(at), gate=gate, message=message)


def _phase(subject: ExplainedJob) -> str:
    if subject.task is not None:
        return subject.task.status.label
    return subject.job.phase or "Pending" if subject.job else ""


def _order(session: Session, job: Job, why: Why | None) -> tuple[str, ...]:
    """Return the gates in the order in which this job meets them.

    A queue that is unknown stops it before all others. That pods have to wait until others have
    left is said of the gang once every other gate is passed.
    """
    if why is None:
        return _GATES
    if why.gate == "queue" and session.queue(job.queue) is None:
        return ("queue", *(gate for gate in _GATES if gate != "queue"))
    if why.gate == "gang" and job.tasks and session.hooks.job_valid(job) is None:
        return (*(gate for gate in _GATES if gate != "gang"), "gang")
    return _GATES if why.gate in _GATES else (*_GATES, why.gate)


def _is_unplaced(subject: ExplainedJob) -> bool:
    """Return whether the gang, or the pod, still has to be placed."""
    if subject.task is not None:
        return subject.task.status is TaskStatus.PENDING
    return subject.job is not None and (waits(subject.job) or _has_no_place(subject.job))


def _has_no_place(job: Job) -> bool:
    """Return whether a gang of pods without requests, which needs no room, is not placed yet."""
    return bool(job.by_status[TaskStatus.PENDING]) and not job.allocated_count


def _is_starting(job: Job) -> bool:
    """Return whether a gang has its nodes, and its phase does not show yet that it runs."""
    return job.is_ready and job.phase in {*_BEFORE_THE_QUEUE, PodGroupPhase.INQUEUE.value}


def _gates(job: Job, why: Why | None, order: Sequence[str], *, is_decided: bool) -> Iterator[Gate]:
    """Yield the gates; a job that is not decided on has passed only what its object shows."""
    state = PASSED
    for name in order:
        if not is_decided and not _shows(job, name):
            state = NOT_REACHED
        if why is not None and name == why.gate:
            yield Gate(name=name, state=FAILED, message=why.message + why.details)
            state = NOT_REACHED
        else:
            yield Gate(name=name, state=state, message=_passed(job, name, state))


def _shows(job: Job, gate: str) -> bool:
    """Return whether a job's objects show that it has passed a gate."""
    if gate == "enqueue":
        return job.phase not in _BEFORE_THE_QUEUE
    return gate == "gang" and bool(job.tasks) and job.task_count >= job.min_available


def _passed(job: Job, gate: str, state: str) -> str:
    if state != PASSED:
        return ""
    if gate == "enqueue":
        return f"admitted to queue {job.queue}"
    if gate == "gang" and job.tasks:
        there, needed = job.task_count, job.min_available
        pods = "1 pod is" if there == 1 else f"{there} pods are"
        return f"{pods} there, {needed} {'is' if needed == 1 else 'are'} needed{_run_below(job)}"
    return ""


def _run_below(job: Job) -> str:
    """Say of a gang that has lost pods how many run on, below its minimum."""
    running = len(job.by_status[TaskStatus.RUNNING])
    if not 0 < running < job.min_available:
        return ""
    return f"; {running} of them {'runs' if running == 1 else 'run'}: below its minimum"


def _reasons(reasons: Mapping[str, int]) -> tuple[NodesReason, ...]:
    ordered = sorted(reasons.items(), key=lambda stated: (-stated[1], stated[0]))
    return tuple(NodesReason(reason=text, nodes=nodes) for text, nodes in ordered[:_REASONS_MAX])


def _next_event(job: Job, why: Why, found: Helps) -> str:
    """Return what is to happen next that lets the job start, as rehearsals have shown."""
    if why.gate == "gang" and job.task_count < job.min_available:
        return f"its owner creates its pods; if it does not: {_describe(job)}"
    if job.gated:
        pods = "1 pod" if job.gated == 1 else f"{job.gated} pods"
        return f"the scheduling gates of {pods} are lifted"
    if why.gate == "binder":
        return _BOUND_AGAIN
    if found.starts:
        evicts = f", {_pods(found.evicted)} evicted for it" if found.evicted else ""
        return f"the scheduler places it{evicts}"
    if found.leaving:
        return f"pods that terminate leave their nodes ({found.leaving} in the cluster)"
    if found.ends:
        short = ", ".join(short.resource for short in why.shortages[:3]) or "a place"
        one = f"a job that holds {short} ends"
        return one if found.ends == 1 else f"the {found.ends} jobs that hold most {short} end"
    if NEVER in why.details:
        return f"nothing that ends helps: {NEVER}"
    return ""


def _next_without_gate(subject: ExplainedJob, job: Job, *, is_decided: bool) -> str:
    """Return what is to happen next of a job that nothing stops in the state that is known.

    What the leader has published last may still name the gate that it has passed since.
    """
    if _is_unplaced(subject):
        return _PASSED_SINCE if is_decided else _UNDECIDED
    return _STARTS if _is_starting(job) else ""


def _refused_bind(mirror: ClusterMirror, job: Job) -> str:
    """Return the bind of a gang that has to succeed and was refused last time."""
    refused = mirror.state.refusals.binds_of(job)
    if not refused:
        return ""
    return f"a bind of pod {job.tasks[refused[0].uid].name} succeeds; {refused[0].refusal}"


def _describe(job: Job) -> str:
    """Return the command that shows what the owner of a job reports."""
    owner = controller_of(job)
    group = owner.api_version.rpartition("/")[0]
    is_of_volcano = owner.kind == JOB.kind and group in {"", JOB.group}
    kind = "vcjob" if is_of_volcano else owner.kind.lower()
    return f"kubectl -n {job.namespace} describe {kind} {owner.name}"


def _pods(number: int) -> str:
    return "1 pod is" if number == 1 else f"{number} pods are"
