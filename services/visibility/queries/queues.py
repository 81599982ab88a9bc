"""The tree of queues with the figures of the plugin that shares the cluster between them.

Deserved, allocated and reserved amounts are what `proportion` or `capacity` decide by, as they tell
them to metrics (`queue_figures`). Where queues are a tree to the plugin, its figures of a parent
hold those below; where it knows no tree, they are added up here.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np

from pumice.plugins import IntArray
from services.scheduler.config import SchedulerConfig
from services.scheduler.engine.jobs.records import Job, Queue
from services.scheduler.engine.jobs.rollups import allocated_of
from services.scheduler.engine.resources.dimensions import CPU_DIM, MEMORY_DIM
from services.scheduler.engine.session.session import Session
from services.visibility.queries.wording import Amounts, amount
from shared.api.meta import ObjectMeta
from shared.api.scheduling import ROOT_QUEUE, PodGroupPhase
from shared.api.visibility import QueueResource, QueueTree
from shared.model.resources import EPSILON

_SHARING: Final = "capacity"
_HIERARCHY: Final = "enableHierarchy"
_ALWAYS: Final = (CPU_DIM, MEMORY_DIM)
_RUNNING: Final = frozenset({PodGroupPhase.RUNNING.value, PodGroupPhase.UNKNOWN.value})
_RESOURCES_MAX: Final = 50
"""Most resources of one queue in a result, of those that the queue names or uses."""


class _Sums(NamedTuple):
    """Figures of a queue with the queues below it."""

    allocated: Amounts
    inqueue: Amounts
    pending: Amounts
    jobs: Counter[str]


def queue_trees(session: Session, config: SchedulerConfig) -> tuple[QueueTree, ...]:
    """Return all queues, each behind its parent, as a session whose actions have run has them."""
    return tuple(_Trees(session, is_tree=knows_tree(config)).all())


def knows_tree(config: SchedulerConfig) -> bool:
    """Return whether the plugin that shares the cluster takes queues as a tree."""
    return any(
        option.name == _SHARING and option.flags[_HIERARCHY]
        for tier in config.tiers
        for option in tier.plugins
    )


class Family:
    """Parents and children of queues; a parent that is unknown, or a ring, makes a root."""

    def __init__(self, queues: Mapping[str, Queue]) -> None:
        self._queues = queues
        self._children: dict[str, list[str]] = {}
        for name in sorted(queues):
            self._children.setdefault(self.parent(name), []).append(name)

    def parent(self, name: str) -> str:
        """Return the parent of a queue, "" for one that has none."""
        if name == ROOT_QUEUE or self._is_in_a_ring(name):
            return ""
        parent = self._queues[name].parent or ROOT_QUEUE
        return parent if parent in self._queues else ""

    def children(self, name: str) -> tuple[str, ...]:
        """Return the queues right below one."""
        return tuple(self._children.get(name, ()))

    def with_ancestors(self, name: str) -> list[str]:
        """Return a queue and its ancestors, from the queue to the root."""
        ancestors = [name]
        while parent := self.parent(ancestors[-1]):
            ancestors.append(parent)
        return ancestors

    def below(self, name: str) -> set[str]:
        """Return a queue and all below it."""
        found = {name}
        for child in self.children(name):
            found |= self.below(child)
        return found

    def walk(self) -> Iterator[tuple[str, int]]:
        """Yield all queues with their depth, each behind its parent."""
        worklist = [(name, 0) for name in reversed(self.children(""))]
        while worklist:
            name, depth = worklist.pop()
            yield name, depth
            worklist += [(child, depth + 1) for child in reversed(self.children(name))]

    def _is_in_a_ring(self, name: str) -> bool:
        seen, at = {name}, self._queues[name].parent
        while at and at != ROOT_QUEUE and at in self._queues:
            if at in seen:
                return at == name
            seen.add(at)
            at = self._queues[at].parent
        return False


class _Trees:
    """Makes the trees of one session."""

    def __init__(self, session: Session, *, is_tree: bool) -> None:
        self._session = session
        self._is_tree = is_tree
        self._family = Family(session.queues)
        self._figures = {of.name: of for account in session.hooks.queue_figures for of in account()}
        self._sums = self._summed()

    def all(self) -> Iterator[QueueTree]:
        """Yield all queues, each behind its parent."""
        for name, depth in self._family.walk():
            yield self._tree(self._session.queues[name], depth)

    def _summed(self) -> dict[str, _Sums]:
        session, family = self._session, self._family
        empty = np.zeros_like(session.total)
        allocated = session.rollup(allocated_of).sums()
        pending = _pending(session.jobs, empty)
        phases = _phases(session.cluster_state.jobs.all())
        sums = {name: _Sums(empty, empty, empty, Counter()) for name in session.queues}
        for name in session.queues:
            of = self._figures.get(name)
            holds = of.allocated if of else allocated.get(name, empty)
            reserves = of.inqueue if of else empty
            for above in family.with_ancestors(name):
                known, counts = sums[above], above == name or not self._is_tree
                sums[above] = _Sums(
                    known.allocated + holds if counts else known.allocated,
                    known.inqueue + reserves if counts else known.inqueue,
                    known.pending + pending.get(name, empty),
                    known.jobs + phases.get(name, Counter()),
                )
        return sums

    def _tree(self, queue: Queue, depth: int) -> QueueTree:
        family, jobs = self._family, self._sums[queue.name].jobs
        return QueueTree(
            metadata=ObjectMeta(
                name=queue.name, uid=queue.uid, creation_timestamp=queue.created or None
            ),
            parent=family.parent(queue.name),
            depth=depth,
            children=family.children(queue.name),
            state=queue.state,
            weight=queue.weight,
            running_jobs=sum(jobs[phase] for phase in _RUNNING),
            inqueue_jobs=jobs[PodGroupPhase.INQUEUE.value],
            pending_jobs=jobs[PodGroupPhase.PENDING.value] + jobs[""],
            resources=tuple(self._resources(queue)),
        )

    def _resources(self, queue: Queue) -> Iterator[QueueResource]:
        names, sums = self._session.resources, self._sums[queue.name]
        figures = self._figures.get(queue.name)
        # Without a tree the plugin compares each queue alone; a parent shows sums for its readers.
        judged = self._is_tree or not self._family.children(queue.name)
        deserved = queue.deserved if figures is None else figures.deserved
        amounts = (deserved, queue.guarantee, sums.allocated, sums.inqueue, sums.pending)
        used = np.any([each[: len(names)] > 0 for each in amounts], axis=0)
        dims = {*_ALWAYS, *queue.deserved_dims, *np.flatnonzero(used).tolist()}
        dims |= {dim for dim, name in enumerate(names) if name in queue.capability}
        for dim in sorted(dims)[:_RESOURCES_MAX]:
            name = names[dim]
            states = bool(deserved[dim]) or (judged and dim in queue.deserved_dims)
            yield QueueResource(
                resource=name,
                deserved=amount(name, deserved[dim]) if states else "",
                guarantee=amount(name, queue.guarantee[dim]) if queue.guarantee[dim] else "",
                capability=amount(name, queue.capability[name]) if name in queue.capability else "",
                allocated=amount(name, sums.allocated[dim]),
                inqueue=amount(name, sums.inqueue[dim]),
                pending=amount(name, sums.pending[dim]),
                total=amount(name, self._session.total[dim]),
                overused=judged and states and bool(sums.allocated[dim] - deserved[dim] >= EPSILON),
            )


def _pending(jobs: Iterable[Job], empty: IntArray) -> dict[str, IntArray]:
    """Return what jobs request that are not admitted, by queue."""
    found: dict[str, IntArray] = {}
    for job in jobs:
        if job.is_pending:
            requested = job.requested if job.min_resources is None else job.min_resources
            found[job.queue] = found.get(job.queue, empty) + requested
    return found


def _phases(jobs: Iterable[Job]) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for job in jobs:
        found.setdefault(job.queue, Counter())[job.phase] += 1
    return found
