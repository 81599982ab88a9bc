"""The PodGroup and the pods that a Job would have: made by the controller's own code."""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
from msgspec.structs import replace

from services.controller.job.facts import JobFacts
from services.controller.job.group import desired_group, group_body
from services.controller.job.requests import pod_name
from services.controller.job.sync import pods_to_make
from services.visibility.queries.cluster_mirror import ClusterMirror
from shared.api import keys
from shared.api.batch import Job
from shared.api.core import Pod
from shared.api.kinds import NAMESPACE, QUEUE
from shared.api.scheduling import (
    DEFAULT_QUEUE,
    PodGroup,
    PodGroupPhase,
    PodGroupStatus,
    Queue,
    podgroup_of,
)
from shared.api.time import format_seconds
from shared.jobs.defaults import defaulted
from shared.jobs.problems import Problem, texts
from shared.jobs.rules import job_problems, queue_problems
from shared.jobs.templates import read_template

PODS_MAX: Final = 10_000
"""Most pods of a job in a query."""
_UID: Final = "what-if"
_OF_KUBERNETES: Final = "system-"
"""Priority classes that the API server makes itself."""
_AT: Final = "spec.job"
_POD: Final = msgspec.json.Decoder(Pod)


class BadQuery(ValueError):  # noqa: N818 - reads as the fact it states
    """An invalid query; `field` names the wrong field."""

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(message)
        self.field = field


class ImaginedGang:
    """A Job as it would be: its PodGroup, and its pods once that has entered its queue."""

    def __init__(self, job: Job, group: PodGroup, mirror: ClusterMirror) -> None:
        self._job = job
        self._priorities = mirror.priorities()
        self._default_priority = mirror.default_priority()
        self._policies = mirror.preemption_policies()
        self.group = group

    @property
    def key(self) -> str:
        """Return the key of the PodGroup."""
        return self.group.metadata.key

    def pods(self) -> Iterator[Pod]:
        """Yield the pods that the controller makes first: others wait for tasks before them."""
        facts = JobFacts(job=self._job, pods={}, group=self.group)
        for made in pods_to_make(facts):
            for index in made.indexes:
                yield self._as_created(_POD.decode(made.builder.body(index)))

    def _as_created(self, pod: Pod) -> Pod:
        """Return a pod with what the API server fills in."""
        priority_class = pod.spec.priority_class_name
        known = self._priorities.get(priority_class, self._default_priority)
        policy = pod.spec.preemption_policy or self._policies.get(priority_class)
        return replace(
            pod,
            metadata=replace(
                pod.metadata,
                uid=f"{_UID}/{pod.metadata.name}",
                creation_timestamp=self.group.metadata.creation_timestamp,
            ),
            spec=replace(pod.spec, priority=known, preemption_policy=policy),
        )


def imagined(job: Job, mirror: ClusterMirror, *, namespace: str, now: float) -> ImaginedGang:
    """Return the gang of a Job that would be created at `now`. Raises `BadQuery`."""
    meta = replace(
        job.metadata,
        name=job.metadata.name or f"{job.metadata.generate_name}0",
        namespace=namespace,
        uid=_UID,
        creation_timestamp=format_seconds(now),
    )
    full = defaulted(replace(job, metadata=meta), scheduler_name=mirror.scheduler_names[0])
    _refuse(list(job_problems(full)))
    _check(full, mirror)
    _check_priorities(full, mirror)
    if _has_taken_name(full, mirror):  # another name will do: no rule reads it
        name = f"{full.metadata.name[:40].rstrip('-.')}-{_UID}"
        full = replace(full, metadata=replace(full.metadata, name=name))
    group = _group(full, mirror)
    _refuse(list(_of_queue(group.spec.queue, mirror)))
    check_names(_resources(full, group), mirror, field=f"{_AT}.spec.tasks")
    return ImaginedGang(full, group, mirror)


def _has_taken_name(job: Job, mirror: ClusterMirror) -> bool:
    """Return whether a job has the name, or had it and has left pods."""
    meta = job.metadata
    return mirror.group_of(meta.key) is not None or any(
        mirror.state.pod(f"{meta.namespace}/{pod_name(job, task, index)}") is not None
        for task in job.spec.tasks
        for index in range(task.replicas)
    )


def _check(job: Job, mirror: ClusterMirror) -> None:
    if job.spec.scheduler_name not in mirror.scheduler_names:
        text = f"pods of scheduler {job.spec.scheduler_name!r} are placed by another scheduler"
        raise BadQuery(text, field=f"{_AT}.spec.schedulerName")
    pods = sum(task.replicas for task in job.spec.tasks)
    if pods > PODS_MAX:
        raise BadQuery(
            f"{pods} pods are too many for one query: {PODS_MAX} at most",
            field=f"{_AT}.spec.tasks",
        )


def _check_priorities(job: Job, mirror: ClusterMirror) -> None:
    """Refuse a priority class that is not there: the API server refuses pods that name it."""
    known = mirror.priorities()
    places = [(job.spec.priority_class_name, f"{_AT}.spec.priorityClassName")]
    for at, task in enumerate(job.spec.tasks):
        field = f"{_AT}.spec.tasks[{at}].template.spec.priorityClassName"
        places.append((read_template(task).spec.priority_class_name, field))
    for name, field in places:
        if name and name not in known and not name.startswith(_OF_KUBERNETES):
            raise BadQuery(f"there is no PriorityClass {name!r}: create it first", field=field)


def check_names(names: Iterable[str], mirror: ClusterMirror, *, field: str) -> None:
    """Refuse more new names of resources than the arrays of the engine have room for.

    A name that was seen keeps its place: queries must not make them larger. Raises `BadQuery`.
    """
    known = mirror.state.dimensions
    unknown = sorted(name for name in set(names) if known.find(name) is None)
    if len(known.names) + len(unknown) > known.capacity:
        text = f"no object in the cluster has named the resource {', '.join(unknown[:5])}"
        raise BadQuery(text, field=field)


def _resources(job: Job, group: PodGroup) -> Iterator[str]:
    yield from group.spec.min_resources
    for task in job.spec.tasks:
        spec = read_template(task).spec
        for container in (*spec.containers, *spec.init_containers):
            yield from container.resources.requests


def _refuse(problems: list[Problem]) -> None:
    if problems:
        raise BadQuery("; ".join(texts(problems)), field=f"{_AT}.{problems[0].path}")


def _of_queue(name: str, mirror: ClusterMirror) -> Iterator[Problem]:
    queue: Queue | None = mirror.kept.get(QUEUE.token, name)
    children = sum(each.parent == name for each in mirror.state.jobs.queues.values())
    state = queue.status.state if queue is not None else None
    yield from queue_problems(name, state, exists=queue is not None, children=children)


def _group(job: Job, mirror: ClusterMirror) -> PodGroup:
    body = group_body(job, desired_group(job, mirror.priorities()))
    group = msgspec.convert(body, PodGroup)
    space = mirror.kept.get(NAMESPACE.token, job.metadata.namespace)
    stated = space.metadata.annotations.get(keys.SCHEDULING_QUEUE_NAME) if space else None
    spec = group.spec
    if spec.queue == DEFAULT_QUEUE and stated is not None:
        spec = replace(spec, queue=stated)  # as admission does (W40)
    return replace(
        group,
        metadata=replace(
            group.metadata,
            uid=_UID,
            name=podgroup_of(job.metadata.name, _UID),
            creation_timestamp=job.metadata.creation_timestamp,
        ),
        spec=spec,
        status=PodGroupStatus(phase=PodGroupPhase.PENDING),
    )
