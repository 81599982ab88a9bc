"""The pods that a forecast imagines: of jobs whose pods are not made yet, and of jobs to come.

Pods of a waiting job may be given as they will be (`Templates`); else they are derived from the
group's minimum, spread evenly. Jobs to come look like recent ones by amounts, queue,
priority and counts; affinity, selectors and volumes of those are left out. Recent ones are known
from the cluster state as they come, and from the events on their admissions after a restart.
"""

import math
import re
from bisect import insort
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from pumice.events.types import GangAdmitted
from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.resources.dimensions import Dimensions, counted, quantity
from services.scheduler.engine.state.cluster_state import ClusterState
from services.visibility.forecast.durations import Subject, Uniform, size_in, subject_of
from shared.api import keys
from shared.api import time as times
from shared.api.core import Container, Pod, PodPhase, PodSpec, PodStatus, ResourceRequirements
from shared.api.meta import ObjectMeta, OwnerReference
from shared.api.scheduling import PodGroup, PodGroupPhase, PodGroupSpec, PodGroupStatus
from shared.model.quantity import BadQuantity
from shared.model.resources import parse_list

Templates = Callable[[Job], Sequence[Pod]]
"""Gives the pods that a job without pods will have; none if they are not known."""

RECENT: Final = 256
"""So many of the latest jobs tell which ones are to come."""
FEW: Final = 8
"""Fewer tell nothing: no job is imagined then."""
_BLOCK: Final = 16
"""So many jobs in a row come as they came: jobs come in bursts."""
_NOT_ADMITTED: Final = frozenset({"", "Pending"})


class Pods(NamedTuple):
    """Equal pods of a job."""

    role: str
    number: int
    requests: tuple[tuple[str, str], ...]
    priority: int


class Arrival(NamedTuple):
    """A job as it came."""

    at: float
    uid: str
    priority_class: str
    owner_kind: str
    subject: Subject
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
    """Return what each of so many pods asks for, of quantities of all. Raises `BadQuantity`."""
    amounts = {name: counted(name, amount) for name, amount in parse_list(minimum).items()}
    each = {name: -(-amount // count) for name, amount in amounts.items()}
    return tuple((name, quantity(name, amount)) for name, amount in each.items() if amount > 0)


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


def without_names(words: str, key: str) -> str:
    """Return words about a group without the names of its pods that `pods` made."""
    _, _, group = key.partition("/")
    return re.sub(rf"{re.escape(group)}~\d+", "one of its pods", words)


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


_ORDER: Final = attrgetter("at", "uid")
"""Times of objects are whole seconds: jobs of a second have an order of their own."""


def _arrival_time(job: Job, now: float) -> float:
    return min(now, times.read(job.created) or now)


class Arrivals:
    """The latest jobs, as they came."""

    def __init__(self, recent: int = RECENT) -> None:
        self._recent = recent
        self._latest: list[Arrival] = []
        """In the order of their times."""
        self._uids: set[str] = set()
        """Of the latest ones."""
        self._known: set[str] | None = None

    def __len__(self) -> int:
        """Return how many jobs are remembered."""
        return len(self._latest)

    def reset(self) -> None:
        """Take the jobs of the next review for old ones: the state was read again."""
        self._known = None

    def review(self, cluster_state: ClusterState, now: float) -> None:
        """Note the jobs that have come since the last call.

        The jobs that are there at the first call are mostly long ones, and say little about those
        that come. Of these only the ones are noted that wait for their admission and came after
        one of the jobs that are known from events: their own events are still to come.
        """
        before, self._known = self._known, set()
        since = self._latest[0].at if self._latest else math.inf
        for job in sorted(cluster_state.jobs.all(), key=lambda job: (job.created, job.key)):
            if not job.has_group:
                continue
            self._known.add(job.uid)
            is_new = before is not None and job.uid not in before
            if is_new or (job.phase in _NOT_ADMITTED and _arrival_time(job, now) >= since):
                self.note(job, cluster_state.dimensions, now)

    def note(self, job: Job, dimensions: Dimensions, now: float) -> None:
        """Note one job that has come."""
        if job.uid in self._uids:
            return
        minimum = {} if job.min_resources is None else dimensions.listed(job.min_resources)
        came = Arrival(
            at=_arrival_time(job, now),
            uid=job.uid,
            priority_class=job.priority_class,
            owner_kind=job.owner_kind,
            subject=subject_of(job),
            annotations=tuple(job.annotations.items()),
            min_available=job.min_available,
            min_resources=tuple(minimum.items()),
            pods=pods_of(job, dimensions),
        )
        self._add(came)

    def learn(self, event: GangAdmitted) -> None:
        """Note the job of an event; one that does not say when the job came tells nothing."""
        at = times.read(event.created)
        if at is None or event.uid in self._uids:
            return
        namespace, _, _ = event.gang.partition("/")
        count, minimum = max(event.min_member, 1), event.min_resources
        try:
            requests = _spread(minimum, count)
        except BadQuantity:
            return
        stated = f"{event.seconds_stated:.15g}" if event.seconds_stated > 0.0 else ""
        came = Arrival(
            at=at,
            uid=event.uid,
            priority_class=event.priority_class,
            owner_kind=event.owner_kind,
            subject=Subject(namespace, event.queue, event.template, size_in(minimum)),
            annotations=((keys.EXPECTED_DURATION, stated),) if stated else (),
            min_available=event.min_member,
            min_resources=tuple(minimum.items()),
            pods=(Pods("", count, requests, event.priority),),
        )
        self._add(came)

    def _add(self, came: Arrival) -> None:
        insort(self._latest, came, key=_ORDER)
        self._uids.add(came.uid)
        if len(self._latest) > self._recent:
            self._uids.remove(self._latest.pop(0).uid)

    def future(self, now: float, uniform: Uniform) -> "FutureArrivals":
        """Return a source of jobs to come."""
        return FutureArrivals(list(self._latest), now, uniform)


class FutureArrivals:
    """Jobs to come in one simulation: stretches of recent ones with the gaps between them.

    The gap since the latest one is not over, and counts as the one before the first: where many
    came at once and none since, few are to come.
    """

    def __init__(self, latest: list[Arrival], now: float, uniform: Uniform) -> None:
        self._latest = latest if len(latest) >= FEW else []
        self._quiet_s = max(0.0, now - latest[-1].at) if latest else 0.0
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
            self._next = int(self._uniform() * len(self._latest))
        self._left -= 1
        self._next = (self._next + 1) % len(self._latest)
        self.at += self._gap()

    def _gap(self) -> float:
        if not self._next:
            return self._quiet_s
        return max(0.0, self._latest[self._next].at - self._latest[self._next - 1].at)
