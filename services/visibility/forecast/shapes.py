"""The pods that a forecast imagines: of jobs whose pods are not made yet, and of jobs to come.

Pods of a waiting job may be given as they will be (`Templates`); else they are derived from the
group's minimum, spread evenly. Jobs to come look like recent ones (`arrivals`) by amounts, queue,
priority and counts; affinity, selectors and volumes of those are left out.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from pumice.events.types import GangAdmitted
from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.resources.dimensions import Dimensions, counted, quantity
from services.visibility.forecast.durations import HistoricJob, size_in, subject_of
from shared.api import keys
from shared.api import time as times
from shared.api.core import Container, Pod, PodPhase, PodSpec, PodStatus, ResourceRequirements
from shared.api.meta import ObjectMeta, OwnerReference
from shared.api.scheduling import PodGroup, PodGroupPhase, PodGroupSpec, PodGroupStatus
from shared.model.quantity import BadQuantity
from shared.model.resources import parse_list

PODS_MAX: Final = 10_000
"""Pods that are imagined of one group. A larger one, whose minimum anybody may write, is imagined
without the rest, so that it does not start."""
Templates = Callable[[Job], Sequence[Pod]]
"""Gives the pods that a job without pods will have; none if they are not known."""


class Pods(NamedTuple):
    """Equal pods of a job."""

    role: str
    number: int
    requests: tuple[tuple[str, str], ...]
    priority: int


class ArrivalShape(NamedTuple):
    """A job as it was submitted."""

    at: float
    uid: str
    priority_class: str
    owner_kind: str
    subject: HistoricJob
    annotations: tuple[tuple[str, str], ...]
    min_available: int
    min_resources: tuple[tuple[str, str], ...]
    pods: tuple[Pods, ...]


def arrival_of(job: Job, dimensions: Dimensions, *, at: float) -> ArrivalShape:
    """Return a job of a cluster state as it was submitted."""
    minimum = {} if job.min_resources is None else dimensions.listed(job.min_resources)
    return ArrivalShape(
        at=at,
        uid=job.uid,
        priority_class=job.priority_class,
        owner_kind=job.controller.kind if job.controller else "",
        subject=subject_of(job),
        annotations=tuple(job.annotations.items()),
        min_available=job.min_available,
        min_resources=tuple(minimum.items()),
        pods=pods_of(job, dimensions),
    )


def arrival_in(event: GangAdmitted) -> ArrivalShape | None:
    """Return the job of an event as it was submitted; None without time or size."""
    at = times.read(event.created)
    if at is None:
        return None
    namespace, _, _ = event.gang.partition("/")
    count, minimum = max(event.min_member, 1), event.min_resources
    try:
        requests = _spread(minimum, count)
    except BadQuantity:
        return None
    stated = f"{event.seconds_stated:.15g}" if event.seconds_stated > 0.0 else ""
    return ArrivalShape(
        at=at,
        uid=event.uid,
        priority_class=event.priority_class,
        owner_kind=event.owner_kind,
        subject=HistoricJob(namespace, event.queue, event.template, size_in(minimum)),
        annotations=((keys.EXPECTED_DURATION, stated),) if stated else (),
        min_available=event.min_member,
        min_resources=tuple(minimum.items()),
        pods=(Pods("", count, requests, event.priority),),
    )


def pods_of(job: Job, dimensions: Dimensions) -> tuple[Pods, ...]:
    """Return what a job's pods request, be it a guess from its minimum."""
    if not job.tasks:
        return _by_minimum(job, dimensions)
    found: Counter[tuple[str, tuple[tuple[str, str], ...], int]] = Counter()
    for task in job.tasks.values():
        requests = tuple(dimensions.listed(task.task_class.request).items())
        found[task.role, requests, task.pod_priority] += 1
    return tuple(Pods(role, count, asked, rank) for (role, asked, rank), count in found.items())


def _by_minimum(job: Job, dimensions: Dimensions) -> tuple[Pods, ...]:
    count = max(job.min_available, 1)
    requests: tuple[tuple[str, str], ...] = ()
    if job.min_resources is not None:
        requests = tuple(dimensions.listed(-(-job.min_resources // count)).items())
    roles = dict(job.min_task_member) if job.role_minima_count else {}
    roles[""] = count - sum(roles.values())
    return tuple(Pods(role, n, requests, job.priority) for role, n in roles.items() if n > 0)


def _spread(minimum: Mapping[str, str], count: int) -> tuple[tuple[str, str], ...]:
    """Return what each of so many pods requests, of quantities of all. Raises `BadQuantity`."""
    amounts = {name: counted(name, amount) for name, amount in parse_list(minimum).items()}
    each = {name: -(-amount // count) for name, amount in amounts.items()}
    return tuple((name, quantity(name, amount)) for name, amount in each.items() if amount > 0)


def pods(key: str, shape: Sequence[Pods], *, now: float, scheduler_name: str) -> list[Pod]:
    """Return pods of a group, all pending: `PODS_MAX` at most."""
    namespace, _, group = key.partition("/")
    created = times.format_seconds(now)
    found: list[Pod] = []
    for of_role in shape:
        resources = ResourceRequirements(requests=dict(of_role.requests))
        spec = PodSpec(
            scheduler_name=scheduler_name,
            containers=(Container(name="main", resources=resources),),
            priority=of_role.priority,
        )
        annotations = {keys.GROUP_NAME: group}
        if of_role.role:
            annotations[keys.TASK_SPEC] = of_role.role
        for _ in range(min(of_role.number, PODS_MAX - len(found))):
            name = f"{group}~{len(found)}"
            meta = ObjectMeta(
                name=name,
                namespace=namespace,
                uid=f"imagined-{namespace}/{name}",
                creation_timestamp=created,
                annotations=annotations,
            )
            pending = PodStatus(phase=PodPhase.PENDING)
            found.append(Pod(metadata=meta, spec=spec, status=pending))
    return found


def without_names(text: str, key: str) -> str:
    """Return a message about a group without the names of pods that `pods` made."""
    _, _, group = key.partition("/")
    return re.sub(rf"{re.escape(group)}~\d+", "one of its pods", text)


def group(key: str, arrival: ArrivalShape, *, now: float) -> PodGroup:
    """Return the group of a job to come."""
    namespace, _, name = key.partition("/")
    return PodGroup(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            uid=f"imagined-{key}",
            creation_timestamp=times.format_seconds(now),
            annotations=dict(arrival.annotations),
            owner_references=_owners(arrival.owner_kind),
        ),
        spec=PodGroupSpec(
            queue=arrival.subject.queue,
            min_member=arrival.min_available,
            min_resources=dict(arrival.min_resources),
            priority_class_name=arrival.priority_class,
        ),
        status=PodGroupStatus(phase=PodGroupPhase.PENDING),
    )


def _owners(kind: str) -> tuple[OwnerReference, ...]:
    if not kind:
        return ()
    owner = OwnerReference(api_version="", kind=kind, name="", uid="", controller=True)
    return (owner,)
