"""Reads a job's objects from the API server: the Job, its PodGroup, its pods.

Pods are read with types of this module: when a container that has ended had begun is of no interest
to any service, and so it is in none of their views.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from shared.api import keys
from shared.api.base import View
from shared.api.batch import Job
from shared.api.kinds import JOB, POD, PODGROUP, decode
from shared.api.meta import ObjectMeta
from shared.api.scheduling import (
    PodGroup,
    PodGroupCondition,
    PodGroupConditionType,
    podgroup_of,
)
from shared.api.time import read
from shared.kube.client import Kube, Selection
from shared.runtime.errors import Gone
from shared.trace import NOTHING, Objects, PodTimes


class _Times(View, frozen=True):
    started_at: str | None = None
    finished_at: str | None = None


class _State(View, frozen=True):
    running: _Times | None = None
    terminated: _Times | None = None


class _Container(View, frozen=True):
    state: _State = _State()


class _Status(View, frozen=True):
    phase: str = ""
    container_statuses: tuple[_Container, ...] = ()


class TracedPod(View, frozen=True):
    """The times of a pod."""

    metadata: ObjectMeta = ObjectMeta()
    status: _Status = _Status()


_PODS: Final = msgspec.structs.replace(POD, alias="timed-pods", type=TracedPod)


async def objects_of(kube: Kube, namespace: str, name: str) -> Objects:
    """Return what the API server has of a job; empty when it has none. Raises PumiceError."""
    try:
        job: Job = decode(JOB, await kube.get(JOB, namespace, name))
    except Gone:
        return NOTHING
    group = await _group(kube, job)
    of_job = Selection(namespace=namespace, label_selector=f"{keys.JOB_NAME}={name}")
    return fold(job, group, (await kube.list(_PODS, of_job)).items)


async def _group(kube: Kube, job: Job) -> PodGroup | None:
    meta = job.metadata
    try:
        body = await kube.get(PODGROUP, meta.namespace, podgroup_of(meta.name, meta.uid))
    except Gone:
        return None
    group: PodGroup = decode(PODGROUP, body)
    return group


def fold(job: Job, group: PodGroup | None, pods: Sequence[TracedPod]) -> Objects:
    """Return the times in a job's objects; pods of another job of that name are left out. Pure."""
    state = job.status.state
    wait = _wait(group)
    return Objects(
        uid=job.metadata.uid,
        posted_s=read(job.metadata.creation_timestamp),
        queue=job.spec.queue,
        phase=state.phase.value if state.phase else "",
        phase_s=read(state.last_transition_time),
        group_made_s=read(group.metadata.creation_timestamp) if group else None,
        waits_since_s=read(wait.last_transition_time) if wait else None,
        why=(wait.message or wait.reason) if wait else "",
        pods=tuple(_pod(pod) for pod in pods if _is_of(pod, job)),
    )


def _is_of(pod: TracedPod, job: Job) -> bool:
    return any(owner.uid == job.metadata.uid for owner in pod.metadata.owner_references)


def _wait(group: PodGroup | None) -> PodGroupCondition | None:
    """Return the condition that says why a group waits, unless it was scheduled since."""
    conditions = (
        [each for each in group.status.conditions if each.status == "True"] if group else []
    )
    last = max(conditions, key=lambda each: each.last_transition_time or "", default=None)
    return last if last and last.type == PodGroupConditionType.UNSCHEDULABLE else None


def _pod(pod: TracedPod) -> PodTimes:
    meta = pod.metadata
    states = [container.state for container in pod.status.container_statuses]
    times = [state.running or state.terminated or _Times() for state in states]
    begun = [at for at in (read(each.started_at) for each in times) if at is not None]
    ended = [at for at in (read(each.finished_at) for each in times) if at is not None]
    return PodTimes(
        key=meta.key,
        uid=meta.uid,
        made_s=read(meta.creation_timestamp),
        running_s=min(begun, default=None),
        ended_s=max(ended) if ended and len(ended) == len(states) else None,
        phase=pod.status.phase,
    )
