"""Questions about a job that could be submitted, a queue as it would be, nodes that come or go.

The change is folded in, cycles are decided until nothing more happens, and all of it is taken out
again (`rehearsal`). Between cycles the controller is simulated: a job that has entered its queue
gets its pods, and the pods of a drained node come again, to wait for another one. A waiting
job's own ones are not known here, since Jobs travel sealed (ADR 18): an even share of its group's
minimum stands in for each. Of a bind it is taken that it succeeds, of an eviction that the pod
is gone before the next cycle.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Final

import msgspec
from msgspec.structs import replace

from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.plan import Eviction, JobExplanation, Plan
from services.scheduler.engine.session.session import Session
from services.scheduler.engine.state.cluster_state import BadFact
from services.scheduler.policy.actions.defrag import REASON
from services.visibility.forecast.shapes import pods, pods_of
from services.visibility.queries.cluster_mirror import ClusterMirror
from services.visibility.queries.gangs import (
    BadQuery,
    ImaginedGang,
    check_names,
    imagined,
)
from services.visibility.queries.moves import defragmenting, moves_of
from services.visibility.queries.node_counts import SHAPES_MAX, Counts, fewest
from services.visibility.queries.pending import waits
from services.visibility.queries.rehearsal import Rehearsal
from services.visibility.queries.survey import DecisionPolicy
from services.visibility.queries.wording import owner_of, shortages
from shared.api import time as times
from shared.api.core import Node, Pod
from shared.api.kinds import NODE, POD, PODGROUP, QUEUE
from shared.api.scheduling import Queue, QueueState
from shared.api.visibility import (
    Delay,
    EvictedPod,
    ExpectedStart,
    LosingJob,
    NeededNodes,
    ObjectRef,
    TaskPlacement,
    WhatIfStatus,
)
from shared.api.whatifs import AddedNodes, QueueChange, WhatIfSpec
from shared.model.status import TaskStatus

NODES_MAX: Final = 1_000
"""Nodes that one query adds or drains."""

OutOfTime = Callable[[], bool]
"""Returns whether the time limit of the query is over."""

ForecastFor = Callable[[Collection[str]], Mapping[str, ExpectedStart]]
"""Simulates on the cluster state as it is; returns when the PodGroups of keys would start."""


def no_time_limit() -> bool:
    """Set no bound."""
    return False


def no_forecast(_: Collection[str]) -> Mapping[str, ExpectedStart]:
    """Return no expected start."""
    return {}


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a rehearsal."""

    started: frozenset[str]
    """PodGroups that waited before and have what they need at least."""
    status: WhatIfStatus


def what_if(
    mirror: ClusterMirror,
    policy: DecisionPolicy,
    spec: WhatIfSpec,
    *,
    namespace: str,
    now: float,
    out_of_time: OutOfTime = no_time_limit,
    forecast_for: ForecastFor = no_forecast,
) -> WhatIfStatus:
    """Return what is decided with a change. The cluster state is the same before and after.

    A job that does not start now has an expected start, as far as `forecast_for` knows. Raises
    `BadQuery`.
    """
    check(spec, mirror)
    gang = None
    if spec.job is not None:
        gang = imagined(spec.job, mirror, namespace=namespace, now=now)
    needed: tuple[NeededNodes, ...] = ()
    if gang is not None and spec.shapes:
        spec, needed = _with_fewest_nodes(mirror, policy, spec, gang, out_of_time, now=now)
    waiting = {job.key for job in mirror.state.jobs.all() if waits(job)}
    with Rehearsal(mirror, policy, now=now) as rehearsal:
        plain = _WhatIf(rehearsal, mirror, None, waiting, out_of_time, now=now).run().started
    asked = spec.defragment
    moving = policy if asked is None else defragmenting(policy, asked)
    with Rehearsal(mirror, moving, now=now) as rehearsal:
        changed = _WhatIf(rehearsal, mirror, gang, waiting, out_of_time, now=now)
        changed.change(spec)
        outlook = changed.run()
        moves = tuple(moves_of(rehearsal, mirror))
        late = plain - outlook.started
        delayed = _delays(mirror, late, forecast_for(sorted(late)) if late else {}, now)
        starting = _refs(mirror, outlook.started - plain)
    expected = None
    if gang is not None and not outlook.status.starts_now:
        with Rehearsal(mirror, policy, now=now) as rehearsal:
            _WhatIf(rehearsal, mirror, gang, waiting, out_of_time, now=now).change(spec)
            # A forecast would give it pods of an even share of its minimum each.
            for pod in gang.pods():
                rehearsal.put(POD, pod)
            expected = forecast_for([gang.key]).get(gang.key)
    return replace(
        outlook.status,
        needed_nodes=needed,
        moves=moves,
        makes_moves=policy.makes_moves,
        delays=delayed,
        starting=starting,
        expected_start=expected,
    )


def _with_fewest_nodes(
    mirror: ClusterMirror,
    policy: DecisionPolicy,
    spec: WhatIfSpec,
    gang: ImaginedGang,
    out_of_time: OutOfTime,
    *,
    now: float,
) -> tuple[WhatIfSpec, tuple[NeededNodes, ...]]:
    """Return the query with the fewest nodes of its shapes by which the job starts, and these.

    No pod is to be evicted for it. Where a node for each pod does not suffice, nodes are not what
    is missing: the query is then decided with as many, and none are named.
    """

    def with_nodes(counts: Counts) -> WhatIfSpec:
        shapes = zip(counts, spec.shapes, strict=True)
        more = tuple(AddedNodes(count=n, template=shape) for n, shape in shapes if n)
        return replace(spec, add_nodes=(*spec.add_nodes, *more))

    def starts(counts: Counts) -> bool:
        with Rehearsal(mirror, policy, now=now) as rehearsal:
            tried = _WhatIf(rehearsal, mirror, gang, set(), out_of_time, now=now)
            tried.change(with_nodes(counts))
            status = tried.run().status
        return status.starts_now and not status.evictions

    most = min(sum(1 for _ in gang.pods()), NODES_MAX // len(spec.shapes))
    all_of_each = (most,) * len(spec.shapes)
    found = fewest(starts, all_of_each, is_over=out_of_time)
    if found is None:
        return with_nodes(all_of_each), ()
    names = (shape.metadata.name for shape in spec.shapes)
    needed = zip(names, found, strict=True)
    return with_nodes(found), tuple(NeededNodes(shape=name, count=n) for name, n in needed if n)


def check(spec: WhatIfSpec, mirror: ClusterMirror) -> None:
    """Refuse a query that is too large or names what is not there. Raises `BadQuery`."""
    if spec.job is None and not spec.changes_cluster:
        raise BadQuery("name a job, a queue, or nodes to add or drain", field="spec")
    if spec.queue is not None and spec.change_queue is not None:
        raise BadQuery(
            "give a queue as it would be (queue) or what changes of one, not both",
            field="spec.changeQueue",
        )
    for at, added in enumerate(spec.add_nodes):
        if added.count < 1:
            raise BadQuery(
                f"{added.count} is no number of nodes to add: 1 at least",
                field=f"spec.addNodes[{at}].count",
            )
    if spec.shapes and spec.job is None:
        raise BadQuery("give the job that nodes of these shapes are for", field="spec.shapes")
    if len(spec.shapes) > SHAPES_MAX:
        raise BadQuery(
            f"{len(spec.shapes)} shapes are too many for one question: {SHAPES_MAX} at most",
            field="spec.shapes",
        )
    nodes = sum(added.count for added in spec.add_nodes) + len(spec.drain_nodes)
    if nodes > NODES_MAX:
        raise BadQuery(
            f"{nodes} nodes are too many for one query: {NODES_MAX} at most",
            field="spec.addNodes",
        )
    for at, name in enumerate(spec.drain_nodes):
        if mirror.kept.get(NODE.token, name) is None:
            raise BadQuery(f"there is no node {name!r}", field=f"spec.drainNodes[{at}]")


class _WhatIf:
    """One what-if, from the change to the result."""

    def __init__(
        self,
        rehearsal: Rehearsal,
        mirror: ClusterMirror,
        gang: ImaginedGang | None,
        waiting: set[str],
        out_of_time: OutOfTime,
        *,
        now: float,
    ) -> None:
        self._rehearsal = rehearsal
        self._now = now
        self._mirror = mirror
        self._gang = gang
        self._waiting = waiting
        self._out_of_time = out_of_time
        self._displaced: dict[str, tuple[str, str]] = {}
        """Pods of drained nodes, by uid: their keys, and those of their PodGroups."""
        self._drained: set[str] = set()
        self._placements: Counter[tuple[str, str]] = Counter()
        self._starts = False
        self._why: JobExplanation | None = None

    # --- the change --------------------------------------------------------------------------

    def change(self, spec: WhatIfSpec) -> None:
        """Fold the change in. Raises `BadQuery`."""
        if spec.queue is not None:
            self._put_queue(spec.queue, field="spec.queue.spec")
        if spec.change_queue is not None:
            changed = changed_queue(spec.change_queue, self._mirror)
            self._put_queue(changed, field="spec.changeQueue")
        for at, added in enumerate(spec.add_nodes):
            for node in added_nodes(added, at, self._mirror):
                self._check_time("its nodes")
                self._rehearsal.put(NODE, node)
        for name in spec.drain_nodes:
            self._drain(name)
        if self._gang is not None:
            self._rehearsal.put(PODGROUP, self._gang.group)

    def _put_queue(self, queue: Queue, *, field: str) -> None:
        known: Queue | None = self._mirror.kept.get(QUEUE.token, queue.metadata.name)
        status = known.status if known else replace(queue.status, state=QueueState.OPEN)
        spec = queue.spec
        names = (*spec.capability, *spec.deserved, *spec.guarantee.resource)
        check_names(names, self._mirror, field=field)
        meta = replace(queue.metadata, uid=known.metadata.uid if known else "what-if")
        try:
            self._rehearsal.put(QUEUE, replace(queue, metadata=meta, status=status))
        except BadFact as error:
            raise BadQuery(str(error), field=field) from error

    def _drain(self, name: str) -> None:
        node: Node = self._mirror.kept.get(NODE.token, name)
        self._rehearsal.put(NODE, replace(node, spec=replace(node.spec, unschedulable=True)))
        self._drained.add(name)
        drained = list(self._mirror.state.nodes.tasks_on(name))
        tasks = [task for task in drained if task.job_key and task.status in _HOLDING]
        self._displaced.update({task.uid: (task.key, task.job_key) for task in tasks})
        self._rehearsal.displace(tasks)

    # --- cycles ------------------------------------------------------------------------------

    def run(self) -> Outlook:
        """Decide until nothing more happens; return the outcome."""
        self._rehearsal.run(
            self._gang.key if self._gang else "",
            self._inspect,
            is_over=self._out_of_time,
            pods_to_make=self._pods_of,
        )
        started = frozenset(key for key in self._waiting if self._has_started(key))
        return Outlook(started=started, status=self._status())

    def _inspect(self, session: Session, plan: Plan) -> None:
        """Read the outcome for the job of the query from a session."""
        job = session.job(self._gang.key) if self._gang else None
        if job is None:
            return
        self._why = next((why for why in plan.explanations if why.job == job.key), None)
        clears = any(map(_is_for_imagined, (*self._rehearsal.evicted.values(), *plan.evictions)))
        follows = clears and session.hooks.job_pipelined(job)
        self._starts = bool(job.tasks) and (session.hooks.job_ready(job) == 0 or follows)
        self._placements = Counter(
            (task.role, task.node) for status in _PLACED for task in job.by_status[status].values()
        )

    def _check_time(self, what: str) -> None:
        """Raise `BadQuery` where the time is over before the cluster is as it is imagined."""
        if self._out_of_time():
            raise BadQuery(f"the query is too large: {what} take too long", field="spec")

    def _pods_of(self, job: Job) -> Iterator[Pod]:
        if self._gang is not None and job.key == self._gang.key:
            made = self._gang.pods()
        else:
            shape = pods_of(job, self._mirror.state.dimensions)
            name = self._mirror.scheduler_names[0]
            made = iter(pods(job.key, shape, now=self._now, scheduler_name=name))
        for pod in made:
            self._check_time("its pods")
            yield pod

    def _has_started(self, key: str) -> bool:
        job = self._mirror.state.jobs.get(key)
        return job is not None and job.has_group and not waits(job)

    # --- the result --------------------------------------------------------------------------

    def _status(self) -> WhatIfStatus:
        starts, why = self._starts, None if self._starts else self._why
        placements = [
            TaskPlacement(task=role, node=node, pods=pods)
            for (role, node), pods in sorted(self._placements.items())
        ]
        return WhatIfStatus(
            starts_now=starts,
            gate=why.gate if why else "",
            message=why.message + why.details if why else "",
            shortages=shortages(why.shortages) if why else (),
            placements=tuple(placements) if starts else (),
            evictions=tuple(self._evictions()),
            drained_pods=len(self._displaced),
            unplaced_pods=sum(not self._has_place(uid) for uid in self._displaced),
            losing=tuple(self._losing()),
        )

    def _has_place(self, uid: str) -> bool:
        task = self._mirror.state.task(uid)
        return task is not None and task.status in _HOLDING and task.node not in self._drained

    def _losing(self) -> Iterator[LosingJob]:
        """Yield the jobs with pods on drained nodes for which there is no place elsewhere."""
        lost = Counter(key for uid, (_, key) in self._displaced.items() if not self._has_place(uid))
        for key, pods_lost in sorted(lost.items()):
            job = self._mirror.state.jobs.get(key)
            if job is not None:
                yield LosingJob(
                    job=owner_of(job), queue=job.queue, pods=pods_lost, stops=not job.is_ready
                )

    def _evictions(self) -> Iterable[EvictedPod]:
        """Return the pods that go because of the change: for the job, or with a node."""
        gone = {uid: pod for uid, (pod, _) in self._displaced.items()}
        for uid, victim in self._rehearsal.evicted.items():
            preemptor = victim.preemptor_uid
            if victim.reason == REASON:
                continue
            if not preemptor or _is_for_imagined(victim) or preemptor in self._displaced:
                gone[uid] = victim.pod
        for uid, pod in sorted(gone.items(), key=itemgetter(1)):
            task = self._mirror.state.task(uid)
            job = self._mirror.state.jobs.get(task.job_key) if task else None
            namespace, _, name = pod.partition("/")
            yield EvictedPod(
                namespace=namespace,
                name=name,
                job=owner_of(job).name if job else "",
                queue=job.queue if job else "",
            )


def _is_for_imagined(victim: Eviction) -> bool:
    return victim.preemptor_uid.startswith("what-if/")


_PLACED: Final = (TaskStatus.ALLOCATED, TaskStatus.BINDING, TaskStatus.PIPELINED)
_HOLDING: Final = frozenset({TaskStatus.BINDING, TaskStatus.BOUND, TaskStatus.RUNNING})


def changed_queue(change: QueueChange, mirror: ClusterMirror) -> Queue:
    """Return a queue that is there with a change. Raises `BadQuery`."""
    known: Queue | None = mirror.kept.get(QUEUE.token, change.name)
    if known is None:
        raise BadQuery(f"there is no queue {change.name!r}", field="spec.changeQueue.name")
    spec = known.spec
    guarantee = replace(spec.guarantee, resource={**spec.guarantee.resource, **change.guarantee})
    return replace(
        known,
        spec=replace(
            spec,
            weight=spec.weight if change.weight is None else change.weight,
            capability={**spec.capability, **change.capability},
            deserved={**spec.deserved, **change.deserved},
            guarantee=guarantee,
        ),
    )


def added_nodes(added: AddedNodes, at: int, mirror: ClusterMirror) -> Iterator[Node]:
    """Yield nodes to imagine. Raises `BadQuery`."""
    field = f"spec.addNodes[{at}]"
    template = added.template
    if added.like:
        template = mirror.kept.get(NODE.token, added.like)
        if template is None:
            raise BadQuery(f"there is no node {added.like!r}", field=f"{field}.like")
    if template is None:
        raise BadQuery("name a node that is there (like), or give a template", field=field)
    has = template.status.allocatable or template.status.capacity
    check_names(has, mirror, field=f"{field}.template.status.allocatable")
    status = replace(template.status, allocatable=has)
    for number in range(added.count):
        name = f"what-if-{at}-{number}"
        labels = {**template.metadata.labels, "kubernetes.io/hostname": name}
        meta = replace(template.metadata, name=name, uid=name, labels=labels)
        spec = replace(template.spec, unschedulable=False)
        yield replace(template, metadata=meta, spec=spec, status=status)


def _delays(
    mirror: ClusterMirror, keys: Iterable[str], starts: Mapping[str, ExpectedStart], now: float
) -> tuple[Delay, ...]:
    """Return jobs that would start now without the change, and the median of their new starts.

    Where the forecast knows no start, by how much is left open.
    """
    found = [mirror.state.jobs.get(key) for key in sorted(keys)]
    return tuple(
        Delay(job=owner_of(job), queue=job.queue, seconds=_later(starts.get(job.key), now))
        for job in found
        if job
    )


def _later(expected: ExpectedStart | None, now: float) -> float | None:
    at = times.read(expected.median) if expected is not None else None
    return None if at is None else max(0.0, round(at - now))


def _refs(mirror: ClusterMirror, keys: Iterable[str]) -> tuple[ObjectRef, ...]:
    found = [mirror.state.jobs.get(key) for key in sorted(keys)]
    return tuple(owner_of(job) for job in found if job)
