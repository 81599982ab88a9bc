"""One pure pass over a Job: facts and requests in, stages of effects and the next status out.

A pass handles requests in order until one changes the phase or none is left. Then it does what the
phase requires: a sync, or the rest of a kill. The order of effects makes a crash harmless (ADR 8):

- A phase is entered *before* its effects. The pods to delete follow from the recorded phase and
  version (`kills.to_delete_by_status`), or from an annotation of the pod, so a new process
  continues where the old one crashed. Requests of an older version have no effect, so no restart
  counts twice.
- Pending is written *after* the PodGroup is created, so that a watcher of the one finds the other.
  If creating the group fails, the next pass writes Pending first.
- A phase is left *after* its effects: Restarting ends only when no pod is left to delete.
- No phase is skipped when several facts arrive together: each phase is a write of its own.
- A Command is deleted after the status contains its uid (in `state.message`). A Command whose uid
  is in the status is only deleted.

The reconciler drops requests after all stages were carried out; otherwise it repeats the pass.
"""

from collections.abc import Iterable, Sequence

import msgspec

from services.controller.job import completed_indexes, effects, job_events, kills, status, sync
from services.controller.job.deadline import events_of, exceeded
from services.controller.job.facts import (
    NONE_COMPLETED,
    CompletedIndexes,
    Counts,
    JobFacts,
    PodView,
    count,
)
from services.controller.job.phases import (
    ALIVE,
    COMMAND_ISSUED,
    Do,
    KillScope,
    Transition,
    transition_for,
)
from services.controller.job.policies import INTERNAL_ACTIONS, Delayed, after_actions, due_actions
from services.controller.job.requests import JobRequest
from services.controller.job.validate import queue_problem
from shared.api.batch import FINISHED, Action, Command, Job, JobEvent, JobPhase, JobStatus
from shared.api.keys import PLUGIN_MARK
from shared.api.patch import merge_patch

Stage = tuple[effects.Effect, ...]


class Pass(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one pass: what to carry out, and when the next pass is due."""

    stages: tuple[Stage, ...] = ()
    answered: frozenset[tuple[str, str, int]] = frozenset()
    """Keys of the requests to drop when all stages are done."""
    delayed: tuple[Delayed, ...] = ()
    """Actions that wait for their policies' timeouts (J12)."""
    requeue: bool = False
    """Whether another pass is due immediately."""
    reconcile_at: float | None = None
    """Time of the next pass if nothing changes, in Unix seconds."""


class ActionResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one action: Volcano's `Execute`, without its side effects."""

    status: JobStatus
    to_delete: tuple[PodView, ...] = ()
    transition: Transition


def execute(
    job: Job,
    pods: Iterable[PodView],
    action: Action,
    request: JobRequest | None,
    *,
    now: float,
    completed: CompletedIndexes = NONE_COMPLETED,
) -> ActionResult:
    """Apply `action` by the table of transitions; `job` has its defaults filled in (J16 to J21).

    `completed` holds the indexes that have succeeded; a kill removes those that it restarts.
    """
    phase = job.status.state.phase or JobPhase.PENDING
    transition = transition_for(phase, action)
    views = tuple(pods)
    if transition.do is Do.KILL:
        to_delete = kills.to_delete_by_transition(job, views, transition, request)
        completed = completed_indexes.after_kill(completed, transition, request, job, views)
    else:
        to_delete = kills.to_delete_by_status(job, {p.name: p for p in views})
    gone = completed_indexes.gone(job, completed, {p.name: p for p in views})
    counts = count(views, to_delete=frozenset(p.name for p in to_delete), gone=gone)
    after = status.with_counts(job.status, counts)
    resources = completed_indexes.with_marks(job.status.controlled_resources, job, completed, None)
    after = msgspec.structs.replace(after, controlled_resources=resources)
    if transition.do is Do.KILL and transition.scope is KillScope.JOB:
        after = msgspec.structs.replace(after, version=after.version + 1)
    if transition.enters is not None:
        after = msgspec.structs.replace(after, retry_count=after.retry_count + transition.retry)
        reason, message = job_events.cause(request)
        after = status.entered(
            job, after, transition.enters, now=now, reason=reason, message=message
        )
    elif (then := _by_rule(transition, job, after, counts)) is not None:
        after = _entered_by_rule(job, after, then, now=now)
    return ActionResult(status=after, to_delete=to_delete, transition=transition)


def _entered_by_rule(job: Job, after: JobStatus, phase: JobPhase, *, now: float) -> JobStatus:
    """Return a status in the phase that follows from the counts, with the reason of a failure."""
    reason, message = job_events.why_failed(job, after) if phase == JobPhase.FAILED else ("", "")
    if job.status.state.reason in status.KEPT and phase in FINISHED:
        reason, message = job.status.state.reason, job.status.state.message
    return status.entered(job, after, phase, now=now, reason=reason, message=message)


def _by_rule(transition: Transition, job: Job, after: JobStatus, counts: Counts) -> JobPhase | None:
    return transition.then.decide(job.spec, after, counts) if transition.then is not None else None


def advance(
    facts: JobFacts, waiting: Sequence[JobRequest], delayed: tuple[Delayed, ...], *, now: float
) -> Pass:
    """Return the next pass of a job: the stages of effects to carry out now."""
    job = facts.job
    if job.metadata.deletion_timestamp is not None:
        # The garbage collector deletes its objects (J22).
        return Pass(answered=frozenset(r.key for r in waiting))
    if recorded := [c for c in facts.commands if _is_recorded(job, c)]:
        return Pass(stages=(tuple(_delete(c) for c in recorded),), delayed=delayed, requeue=True)
    orders = tuple(_order(job, command) for command in facts.commands)
    known = {d.request.key for d in delayed}
    requests = (*orders, *waiting, *exceeded(facts, now=now))
    ready, later = due_actions(job, requests, delayed, now=now)
    if (begun := _unwritten_start(facts, ready, now=now)) is not None:
        return Pass(stages=((begun,),), delayed=delayed, requeue=True)
    records = [job_events.postponed(d, job.status) for d in later if d.request.key not in known]
    seen = {r.key for r in waiting} - {r.key for r, _ in ready}
    return _handle_requests(facts, ready, later, records, seen, now=now)


def _handle_requests(
    facts: JobFacts,
    ready: Sequence[tuple[JobRequest, Action]],
    delayed: tuple[Delayed, ...],
    records: list[effects.RecordEvent],
    seen: set[tuple[str, str, int]],
    *,
    now: float,
) -> Pass:
    """Handle the requests in `ready`, then do what the phase requires."""
    job = facts.job
    commands = {c.metadata.uid: c for c in facts.commands}
    partitions = kills.partitions(facts.pods.values()) if ready else frozenset()
    done: list[tuple[JobRequest, Action]] = []
    for request, action in ready:
        done.append((request, action))
        records += events_of(request)
        if request.command_uid:
            records.append(job_events.ordered(commands[request.command_uid]))
        transition = transition_for(job.status.state.phase or JobPhase.PENDING, action)
        meets_no_pod = kills.meets_no_pod(partitions, transition, request)
        if _restarts(job, transition) and not meets_no_pod:
            step = execute(
                job, facts.pods.values(), action, request, now=now, completed=facts.completed
            )
            step = _without_phase_change(job, step)
            records.append(job_events.executed(request, action, job.status, step.status))
            return Pass(
                stages=_entering(facts, step, request, records),
                answered=frozenset(seen.union(r.key for r, _ in done)),
                delayed=after_actions(delayed, done),
                requeue=True,
            )
        if action not in INTERNAL_ACTIONS:
            records.append(job_events.executed(request, action, job.status, job.status))
        if transition.do is Do.KILL and not meets_no_pod:
            job = _count_kill(job)
    stages = _level(msgspec.structs.replace(facts, job=job), facts.job.status, now=now)
    if records:
        stages = (tuple(records), *stages)
    if facts.commands:
        # What a Command changed is written before the Command is deleted, or a crash in between
        # would lose the change.
        stages = (*map(_as_urgent, stages), tuple(_delete(c) for c in facts.commands))
    return Pass(
        stages=stages,
        answered=frozenset(seen.union(r.key for r, _ in done)),
        delayed=after_actions(delayed, done),
        requeue=any(_changes_phase(effect) for stage in stages for effect in stage),
        reconcile_at=job_events.reconcile_at(facts, now=now),
    )


def _as_urgent(stage: Stage) -> Stage:
    return tuple(
        msgspec.structs.replace(effect, urgent=True)
        if isinstance(effect, effects.WriteJobStatus)
        else effect
        for effect in stage
    )


def _restarts(job: Job, transition: Transition) -> bool:
    """Whether a transition deletes pods that are kept by the present phase alone."""
    more = job.status.state.phase == JobPhase.RESTARTING and transition.do is Do.KILL
    return transition.enters is not None or more


def _unwritten_start(
    facts: JobFacts, ready: Sequence[tuple[JobRequest, Action]], *, now: float
) -> effects.WriteJobStatus | None:
    """Return the write of Running for a job that will be killed and is still recorded as Pending.

    Its pods may have started and failed between two reconciliations. Volcano handles the start
    first and apart, so that the job was Running before it is killed (J16).
    """
    job = facts.job
    if job.status.state.phase != JobPhase.PENDING or not facts.pods or facts.problems:
        return None
    if not any(_restarts(job, transition_for(JobPhase.PENDING, action)) for _, action in ready):
        return None
    step = execute(
        job, facts.pods.values(), Action.SYNC_JOB, None, now=now, completed=facts.completed
    )
    has_begun = step.status.state.phase != JobPhase.PENDING
    return _write(job.status, step.status) if has_begun else None


def _count_kill(job: Job) -> Job:
    """Raise the version for one more kill in a phase that kills anyway (J20)."""
    counted = msgspec.structs.replace(job.status, version=job.status.version + 1)
    return msgspec.structs.replace(job, status=counted)


def _without_phase_change(job: Job, step: ActionResult) -> ActionResult:
    """Return a step without its change of phase: `_level` leaves a phase after the kill."""
    if step.transition.enters is not None:
        return step
    was = job.status
    stays = msgspec.structs.replace(
        step.status,
        state=was.state,
        conditions=was.conditions,
        running_duration=was.running_duration,
    )
    return msgspec.structs.replace(step, status=stays)


def _changes_phase(effect: effects.Effect) -> bool:
    return isinstance(effect, effects.WriteJobStatus) and effect.status.state.phase != effect.was


def _is_recorded(job: Job, command: Command) -> bool:
    uid = command.metadata.uid
    return job.status.state.reason == COMMAND_ISSUED and uid in job.status.state.message


def _delete(command: Command) -> effects.DeleteCommand:
    return effects.DeleteCommand(name=command.metadata.name, uid=command.metadata.uid)


def _order(job: Job, command: Command) -> JobRequest:
    known = command.action in frozenset(Action)
    return JobRequest(
        event=JobEvent.COMMAND_ISSUED,
        job_uid=job.metadata.uid,
        version=job.status.version,
        action=Action(command.action) if known else Action.SYNC_JOB,
        command_uid=command.metadata.uid,
    )


def _entering(
    facts: JobFacts, step: ActionResult, request: JobRequest, records: Iterable[effects.RecordEvent]
) -> tuple[Stage, ...]:
    """Write the phase, then kill: the order that survives a crash between the two.

    Which pods a kill of a task or pod deletes does not follow from the phase, so they are marked:
    all others before the phase is written, the pod of the request after it. After a crash the
    marks, or that pod's own request, say what is left to do.
    """
    whole = step.transition.scope is KillScope.JOB
    others = () if whole else tuple(p for p in step.to_delete if p.name != request.pod)
    marks = tuple(_mark(p) for p in others if not p.out_of_sync)
    first: list[effects.Effect] = []
    if written := _write(facts.job.status, step.status):
        first.append(written)
    first += records
    last = tuple(_mark(p) for p in step.to_delete if not whole and p.name == request.pod)
    kill = _without_group(facts) if whole else []
    kill += [effects.DeletePod(name=p.name, uid=p.uid) for p in step.to_delete]
    return tuple(stage for stage in (marks, tuple(first), last, tuple(kill)) if stage)


def _mark(pod: PodView) -> effects.MarkPod:
    return effects.MarkPod(name=pod.name, uid=pod.uid)


def _without_group(facts: JobFacts) -> list[effects.Effect]:
    if facts.group is None:
        return []
    meta = facts.group.metadata
    return [effects.DeleteGroup(name=meta.name, uid=meta.uid)]


def _level(facts: JobFacts, before: JobStatus, *, now: float) -> tuple[Stage, ...]:
    """Return the stages that the present phase needs, independent of how it was reached."""
    phase = facts.job.status.state.phase
    if phase is None:
        opened = status.entered(facts.job, facts.job.status, JobPhase.PENDING, now=now)
        job = msgspec.structs.replace(facts.job, status=opened)
        return _sync_alive(msgspec.structs.replace(facts, job=job), before, now=now)
    if phase in ALIVE:
        return _sync_alive(facts, before, now=now)
    return _finish_kill(facts, before, now=now)


def _sync_alive(facts: JobFacts, before: JobStatus, *, now: float) -> tuple[Stage, ...]:
    job = facts.job
    reason, why = _blocked_by(facts)
    if why:
        explained = status.explained(job.status, reason=reason, message=why)
        write = _write(before, explained)
        is_new = explained.state.message != before.state.message
        record = effects.RecordEvent(reason=reason, message=why, warning=True)
        return tuple(s for s in (((write,) if write else ()), ((record,) if is_new else ())) if s)
    if (amend := sync.amendment(facts)) is not None:
        return ((amend,),)
    step = execute(
        job, facts.pods.values(), Action.SYNC_JOB, None, now=now, completed=facts.completed
    )
    if before.state.phase is None:
        step = _without_phase_change(job, step)  # a new job is Pending first, even without tasks
    over = step.status.state.phase not in ALIVE
    after = msgspec.structs.replace(
        step.status,
        min_available=job.spec.min_available,
        controlled_resources=completed_indexes.with_marks(
            sync.marks(job), job, facts.completed, facts.pods if over else None
        ),
    )
    if after.state.reason in status.HELD:
        after = status.explained(after, reason="", message="")
    if not facts.commands:  # one that is carried out is recorded in the same place
        after = job_events.explained(facts, after, now=now)
    write = _write(before, after)
    if write is not None and after.state.phase not in ALIVE:
        return ((write,),)
    stages = sync.stages_of(facts)
    if write is None:
        return stages
    if before.state.phase is not None:
        explains = after.state.reason in status.WAITS_FOR_ROOM
        return ((write,), *stages) if explains else (*stages, (write,))
    made_first = 1 if facts.group is None and not facts.interrupted else 0
    return (*stages[:made_first], (write,), *stages[made_first:])


def _blocked_by(facts: JobFacts) -> tuple[str, str]:
    """Return reason and message of what keeps a job from being synced, or two empty texts."""
    if facts.problems:
        return status.INVALID_SPEC, "; ".join(facts.problems)
    if facts.group is None and not facts.pods:
        queue = facts.job.spec.queue
        problem = queue_problem(queue, facts.queue, is_leaf=facts.queue_is_leaf)
        if problem:
            return status.QUEUE_NOT_OPEN, problem
        if facts.claims_missing:
            return status.CLAIM_MISSING, _without_claims(facts)
    return "", ""


def _without_claims(facts: JobFacts) -> str:
    """Return the message on claims that the user named and has to create (J30)."""
    volumes = facts.job.spec.volumes
    at = {volume.volume_claim_name: n for n, volume in reversed(list(enumerate(volumes)))}
    return "; ".join(
        f"spec.volumes[{at[name]}].volumeClaimName: no claim {name!r} in this namespace: "
        "create it or name another"
        for name in facts.claims_missing
    )


def _finish_kill(facts: JobFacts, before: JobStatus, *, now: float) -> tuple[Stage, ...]:
    """Delete what a kill has left, then leave the phase if its rule says so (J18 to J20)."""
    job = facts.job
    to_delete = kills.to_delete_by_status(job, facts.pods)
    over = job.status.state.phase in FINISHED
    done = facts.completed if over else completed_indexes.recorded(job)
    gone_before = completed_indexes.gone(job, done, facts.pods)
    counts = count(
        facts.pods.values(), to_delete=frozenset(p.name for p in to_delete), gone=gone_before
    )
    after = status.with_counts(job.status, counts)
    if over:
        after = status.not_below(after, before)
    phase = job.status.state.phase
    assert phase is not None, "a job without a phase is alive"
    transition = transition_for(phase, Action.SYNC_JOB)
    gone: list[effects.Effect] = []
    if phase != JobPhase.RESTARTING:
        gone += _without_group(facts)
        gone += _without_companions(facts)
        resources = completed_indexes.with_marks(_kept_marks(job), job, done, facts.pods)
        after = msgspec.structs.replace(after, controlled_resources=resources)
    elif any(not p.out_of_sync for p in to_delete):
        gone += _without_group(facts)
    gone += [effects.DeletePod(name=p.name, uid=p.uid) for p in to_delete]
    next_phase = None if to_delete else _by_rule(transition, job, after, counts)
    if next_phase is not None:
        after = _entered_by_rule(job, after, next_phase, now=now)
    write = _write(before, after)
    return tuple(stage for stage in (tuple(gone), (write,) if write else ()) if stage)


def _without_companions(facts: JobFacts) -> list[effects.Effect]:
    """Delete the plugins' companions, once (J21): the marks in the status say which there are."""
    if facts.problems or _kept_marks(facts.job) == facts.job.status.controlled_resources:
        return []
    made = tuple(c for c in sync.companions(facts.job) if not c.keep)
    return [effects.DropCompanions(companions=made)] if made else []


def _kept_marks(job: Job) -> dict[str, str]:
    kept = job.status.controlled_resources.items()
    return {mark: name for mark, name in kept if not mark.startswith(PLUGIN_MARK)}


def _write(before: JobStatus, after: JobStatus) -> effects.WriteJobStatus | None:
    """Return the write that turns one status into the other, None when they say the same."""
    patch = merge_patch(before, after)
    if not patch:
        return None
    deferrable = _COUNTS | {"state"} if job_events.only_explains(before, after) else _COUNTS
    urgent = not patch.keys() <= deferrable
    return effects.WriteJobStatus(patch=patch, status=after, was=before.state.phase, urgent=urgent)


_COUNTS = frozenset(
    {
        "pending", "running", "succeeded", "failed", "terminating", "unknown", "taskStatusCount",
        "version",
    }
)  # fmt: skip
"""Fields whose change alone may wait a little."""
