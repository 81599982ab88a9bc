"""The pods that a forecast imagines: of jobs whose pods are not made yet, and of jobs to come.

Pods of a waiting job may be given as they will be (`Templates`); else they are told from what is
known: the group's minimum, spread evenly. Jobs to come look like recent ones by amounts, queue,
priority and counts; affinity, selectors and volumes of those are left out.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from pumice.plugins import IntArray
from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.resources.dimensions import Dimensions, quantity
from services.scheduler.engine.state.cluster_state import ClusterState
from services.visibility.forecast.durations import Uniform
from shared.api import keys
from shared.api import time as times
from shared.api.core import Container, Pod, PodPhase, PodSpec, PodStatus, ResourceRequirements
from shared.api.meta import ObjectMeta, OwnerReference
from shared.api.scheduling import PodGroup, PodGroupPhase, PodGroupSpec, PodGroupStatus
from shared.jobs.durations import template_of
from shared.model.resources import PODS

Templates = Callable[[Job], Sequence[Pod]]
"""Gives the pods that a job without pods will have; none if they are not known."""

RECENT: Final = 256
"""So many of the latest jobs tell which ones are to come."""
FEW: Final = 8
"""Fewer tell nothing: no job is imagined then."""
_BLOCK: Final = 16
"""So many jobs in a row come as they came: jobs come in bursts."""


class Pods(NamedTuple):
    """Equal pods of a job."""

    role: str
    number: int
    requests: tuple[tuple[str, str], ...]
    priority: int


class Arrival(NamedTuple):
    """A job as it came."""

    at: float
    namespace: str
    queue: str
    priority_class: str
    owner_kind: str
    template: str
    annotations: tuple[tuple[str, str], ...]
    min_available: int
    min_resources: tuple[tuple[str, str], ...]
    pods: tuple[Pods, ...]


def pods_of(job: Job, dimensions: Dimensions) -> tuple[Pods, ...]:
    """Return what a job's pods ask for, be it a guess from its minimum."""
    if not job.tasks:
        return _by_minimum(job, dimensions)
    found: Counter[tuple[str, tuple[tuple[str, str], ...], int]] = Counter()
    for task in job.tasks.values():
        requests = _listed(task.task_class.request, dimensions)
        found[task.role, requests, task.pod_priority] += 1
    return tuple(Pods(role, count, asked, rank) for (role, asked, rank), count in found.items())


def _by_minimum(job: Job, dimensions: Dimensions) -> tuple[Pods, ...]:
    count = max(job.min_available, 1)
    requests: tuple[tuple[str, str], ...] = ()
    if job.min_resources is not None:
        requests = _listed(-(-job.min_resources // count), dimensions)
    roles = dict(job.min_task_member) if job.role_minima_count else {}
    roles[""] = count - sum(roles.values())
    return tuple(Pods(role, n, requests, job.priority) for role, n in roles.items() if n > 0)


def _listed(amounts: IntArray, dimensions: Dimensions) -> tuple[tuple[str, str], ...]:
    return tuple(
        (name, quantity(name, int(amount)))
        for name, amount in zip(dimensions.names, amounts.tolist(), strict=False)
        if amount > 0 and name != PODS
    )


def pods(key: str, shape: Sequence[Pods], *, now: float, scheduler_name: str) -> list[Pod]:
    """Return pods of a group, all pending."""
    namespace, _, group = key.partition("/")
    created = times.format_seconds(now)
    found: list[Pod] = []
    for of_role in shape:
        asked = ResourceRequirements(requests=dict(of_role.requests))
        spec = PodSpec(
            scheduler_name=scheduler_name,
            containers=(Container(name="main", resources=asked),),
            priority=of_role.priority,
        )
        annotations = {keys.GROUP_NAME: group}
        if of_role.role:
            annotations[keys.TASK_SPEC] = of_role.role
        for _ in range(of_role.number):
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


def group(key: str, arrival: Arrival, *, now: float) -> PodGroup:
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
            queue=arrival.queue,
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


class Arrivals:
    """The latest jobs, as they came."""

    def __init__(self, recent: int = RECENT) -> None:
        self._latest: deque[Arrival] = deque(maxlen=recent)
        self._known: set[str] | None = None

    def __len__(self) -> int:
        """Return how many jobs are remembered."""
        return len(self._latest)

    def begin_anew(self) -> None:
        """Take the jobs of the next review for old ones: the state was read again."""
        self._known = None

    def review(self, cluster_state: ClusterState, now: float) -> None:
        """Note the jobs that have come since the last call; the first one notes none.

        The jobs that are there at the beginning are those that live long, and tell little of those
        that come.
        """
        before, self._known = self._known, set()
        for job in sorted(cluster_state.jobs.all(), key=lambda job: (job.created, job.key)):
            if not job.has_group:
                continue
            self._known.add(job.uid)
            if before is not None and job.uid not in before:
                self.note(job, cluster_state.dimensions, now)

    def note(self, job: Job, dimensions: Dimensions, now: float) -> None:
        """Note one job that has come."""
        minimum = () if job.min_resources is None else _listed(job.min_resources, dimensions)
        came = Arrival(
            at=min(now, times.read(job.created) or now),
            namespace=job.namespace,
            queue=job.queue,
            priority_class=job.priority_class,
            owner_kind=job.owner_kind,
            template=template_of(job.owner_job or job.key, job.annotations),
            annotations=tuple(job.annotations.items()),
            min_available=job.min_available,
            min_resources=minimum,
            pods=pods_of(job, dimensions),
        )
        self._latest.append(came)

    def to_come(self, now: float, uniform: Uniform) -> "Coming":
        """Return a source of jobs to come."""
        return Coming(list(self._latest), now, uniform)


class Coming:
    """Jobs to come in one play: stretches of recent ones with the gaps between them."""

    def __init__(self, latest: list[Arrival], now: float, uniform: Uniform) -> None:
        ordered = sorted(latest, key=lambda arrival: arrival.at)
        self._latest = ordered if len(ordered) >= FEW else []
        self._uniform = uniform
        self._left = 0
        self._next = 0
        self.at = now
        """When the next one comes; never, if nothing is known."""
        self._advance()

    def take(self) -> Arrival:
        """Return the job that comes at `at`."""
        found = self._latest[self._next]
        self._advance()
        return found

    def _advance(self) -> None:
        if not self._latest:
            self.at = float("inf")
            return
        if not self._left:
            self._left = _BLOCK
            self._next = int(self._uniform() * (len(self._latest) - 1))
        self._left -= 1
        self._next = self._next % (len(self._latest) - 1) + 1
        self.at += max(0.0, self._latest[self._next].at - self._latest[self._next - 1].at)
