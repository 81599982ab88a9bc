"""Volcano's syncJob: companions, PodGroup and pods that a job's spec requires (J22 to J25, J27).

Pure; `plan` calls it in the phases in which pods are created. It only returns effects for objects
that are missing or differ, so it can be repeated at any time.
"""

import zlib
from collections import Counter

import msgspec

from services.controller.job import completed_indexes, effects, group, kills, rejected_creates
from services.controller.job.facts import JobFacts, PodView
from services.controller.job.podtemplate import PodBuilder, claim_name, claim_names, claims
from services.controller.job.requests import pod_name
from shared.api import keys
from shared.api.base import Json
from shared.api.batch import Job, TaskSpec
from shared.api.core import PodPhase
from shared.api.keys import PLUGIN_MARK, VOLUME_MARK
from shared.api.scheduling import PodGroupPhase
from shared.jobplugins.catalogue import plugins_of
from shared.jobplugins.interface import Companion
from shared.jobs.wall_time import limit_by_queue

Stage = tuple[effects.Effect, ...]


def stages_of(facts: JobFacts) -> tuple[Stage, ...]:
    """Return the effects in stages, which run one after the other; empty if none is needed."""
    job = facts.job
    to_delete = kills.to_delete_by_status(job, facts.pods)
    deletes = tuple(effects.DeletePod(name=p.name, uid=p.uid) for p in to_delete)
    if any(rejected_creates.is_no_pod(name) for name in facts.not_due):
        return (deletes,) if deletes else ()
    creates = tuple(pods_to_make(facts)) if gate_is_open(facts) else ()
    beside: list[effects.Effect] = []
    assert facts.desired_group is not None, "only valid jobs are synced"
    if facts.group is None:
        beside.append(effects.CreateGroup(body=group.group_body(job, facts.desired_group)))
    elif patch := group.group_patch(facts.group, facts.desired_group, job):
        meta = facts.group.metadata
        beside.append(effects.PatchGroup(name=meta.name, uid=meta.uid, patch=patch))
    desired = companions(job)
    mark = digest(desired)
    touched = bool(creates or to_delete or beside or facts.rejection[0])
    begins = facts.group is None  # perhaps again: companions may have been deleted meanwhile
    if desired and (begins or (facts.applied != mark and (touched or not _marked(job)))):
        ensure = effects.EnsureCompanions(companions=desired, digest=mark, anew=begins)
        # The scheduler waits for a new group, so it comes first. Pods of an existing job need the
        # host names in its companions, so those come first.
        beside = [*beside, ensure] if begins else [ensure, *beside]
    stages: tuple[Stage, ...] = (tuple(beside), (*deletes, *creates))
    return tuple(stage for stage in stages if stage)


def amendment(facts: JobFacts) -> effects.AmendJob | None:
    """Return the patch of the job itself that must precede its pods; None if none is needed.

    It adds the annotation of a job whose queue forwards jobs to other clusters (J33), the wall time
    of its queue, and names of claims that the user left out (J30): pods, the PodGroup and users
    read them there.
    """
    job = facts.job
    patch: Json = {}
    annotations = {}
    if _is_forwarded(facts) and job.metadata.annotations.get(keys.JOB_FORWARDING) != "true":
        annotations[keys.JOB_FORWARDING] = "true"
    if limit := _new_limit(facts):
        annotations[keys.MAX_RUNTIME] = limit
    if annotations:
        patch["metadata"] = {"annotations": annotations}
    if not all(volume.volume_claim_name for volume in job.spec.volumes):
        patch["spec"] = {"volumes": [_named(job, i) for i in range(len(job.spec.volumes))]}
    return effects.AmendJob(patch=patch) if patch else None


def _new_limit(facts: JobFacts) -> str:
    """Return the wall time that a job without pods gets from its queue; "" if it has one."""
    if facts.group is not None or facts.pods or facts.queue is None:
        return ""
    return limit_by_queue(facts.job.metadata.annotations, facts.queue.metadata.annotations)


def _named(job: Job, index: int) -> Json:
    """Return a volume of the job in plain JSON, with the name of its claim."""
    volume = msgspec.structs.replace(
        job.spec.volumes[index], volume_claim_name=claim_name(job, index)
    )
    plain: Json = msgspec.json.decode(msgspec.json.encode(volume))
    return plain


def gate_is_open(facts: JobFacts) -> bool:
    """Whether pods may be created: the scheduler has made the PodGroup Inqueue (J23).

    Its status may be late by more than the admission, which a controller may have missed (ADR 35):
    a pod that has run since the PodGroup was made says as much.
    """
    if facts.group is None:
        return False
    if facts.admitted or facts.group.status.phase not in {None, PodGroupPhase.PENDING}:
        return True
    made = facts.group.metadata.creation_timestamp
    return made is not None and any(
        pod.phase != PodPhase.PENDING and pod.created >= made for pod in facts.pods.values()
    )


def companions(job: Job) -> tuple[Companion, ...]:
    """Return the companion objects of a valid job: those of its plugins, then its claims."""
    made = [c for _, plugin, args in plugins_of(job) for c in plugin.companions(job, args)]
    return (*made, *claims(job))


def digest(desired: tuple[Companion, ...]) -> int:
    """Return a number that changes with the content of the companions; never 0."""
    return zlib.crc32(msgspec.json.encode([c.body for c in desired])) | 1 << 32


def marks(job: Job) -> dict[str, str]:
    """Return `status.controlledResources` of a job in a phase with pods (§2.2, J30)."""
    made = {f"{PLUGIN_MARK}{name}": name for name, plugin, _ in plugins_of(job) if plugin.marked}
    made.update({f"{VOLUME_MARK}{name}": name for name in claim_names(job)})
    return dict(sorted(made.items()))


def _marked(job: Job) -> bool:
    return marks(job).items() <= dict(job.status.controlled_resources).items()


def pods_to_make(facts: JobFacts) -> list[effects.CreatePods]:
    """Return the pods to create per task.

    A pod that is still being deleted holds its name. A pod that has succeeded is not missing, even
    if its object is gone: it never runs again.
    """
    made = []
    readiness = _Readiness(facts)
    for task in facts.job.spec.tasks:
        done = facts.completed.get(task.name, ())
        missing = tuple(
            i
            for i in range(task.replicas)
            if (name := pod_name(facts.job, task, i)) not in facts.pods
            and name not in facts.not_due
            and i not in done
        )
        if missing and readiness.may_start(task):
            assert facts.group is not None, "the gate is open"
            builder = PodBuilder(
                facts.job,
                task,
                forwarding=_is_forwarded(facts),
                group=facts.group.metadata.name,
            )
            made.append(
                effects.CreatePods(
                    builder=builder, indexes=missing, version=facts.job.status.version
                )
            )
    return made


def _is_forwarded(facts: JobFacts) -> bool:
    """Whether the job's queue forwards jobs to other clusters (J33)."""
    return facts.queue is not None and bool(facts.queue.spec.extend_clusters)


class _Readiness:
    """The ready tasks, on which other tasks may depend (J25)."""

    def __init__(self, facts: JobFacts) -> None:
        tasks = facts.job.spec.tasks
        self._ready: dict[str, bool] = {}
        """Task → whether so many of its pods are ready or have succeeded as it needs."""
        if any(task.depends_on is not None for task in tasks):
            done = Counter(pod.task for pod in facts.pods.values() if _counts(pod))
            done.update(completed_indexes.gone(facts.job, facts.completed, facts.pods))
            self._ready = {
                task.name: done[task.name] >= (task.min_available or 0) for task in tasks
            }

    def may_start(self, task: TaskSpec) -> bool:
        """Whether the tasks that `task` waits for are ready: all of them unless it says any."""
        depends = task.depends_on
        if depends is None or not depends.name:
            return True
        ready = [self._ready[name] for name in depends.name if name in self._ready]
        return any(ready) if depends.iteration == "any" else all(ready)


def _counts(pod: PodView) -> bool:
    return not pod.deleting and (pod.ready or pod.phase == PodPhase.SUCCEEDED)
