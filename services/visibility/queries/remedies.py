"""Changes that could let a job start: of its queue, of nodes, of its pods.

Each kind is tried from a change that is large enough for all that is missing; where that helps, a
smaller one is looked for, which has to help as well.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.plan import JobExplanation
from services.scheduler.engine.resources.dimensions import PODS_DIM, counted, quantity
from services.scheduler.engine.tasks.task import Task
from services.visibility.forecast.shapes import pods, pods_of
from services.visibility.queries.cluster_mirror import ClusterMirror
from services.visibility.queries.queues import Family
from services.visibility.queries.rehearsal import Rehearsal
from services.visibility.queries.wording import listed
from shared.api.core import Node, NodeSpec, NodeStatus, Pod
from shared.api.kinds import NODE, POD, QUEUE, Kind
from shared.api.meta import ObjectMeta
from shared.api.scheduling import Queue, QueueState, QueueStatus
from shared.model.numbers import plural
from shared.model.resources import parse_list
from shared.model.status import VALID, TaskStatus

_KINDS_OF_PODS: Final = 4
"""So many classes of a job's pods are considered, those that request what is short first."""
_NODES: Final = 3
"""So many nodes of a kind are tried one by one: those with most room."""
_NODES_MAX: Final = 5_000
"""More nodes are not tried: as many as a cluster of Kubernetes may have."""
_PODS: Final = "110"
_HOST: Final = "kubernetes.io/hostname"
_OF_QUEUES: Final = frozenset({"enqueue", "queue", "quota"})
_OF_NODES: Final = _OF_QUEUES | {"predicate", "topology"}

Change = Callable[[Rehearsal], Any]
Starts = Callable[[Change], bool]
"""Returns whether the job starts after a change."""


class Remedy(NamedTuple):
    """A change and its description."""

    words: str
    change: Change


class PodShape(NamedTuple):
    """Equal pods that a job lacks."""

    number: int
    request: dict[str, int]
    selector: Mapping[str, str] = {}


def nothing(_: Rehearsal) -> None:
    """Change nothing."""


def without_leaving(rehearsal: Rehearsal) -> None:
    """Let all pods that terminate have ended."""
    rehearsal.end_leaving()


def put_objects(kind: Kind, objects: Sequence[Any]) -> Change:
    """Return the change that folds objects of a kind in."""

    def change(rehearsal: Rehearsal) -> None:
        for obj in objects:
            rehearsal.put(kind, obj)

    return change


def end_of(groups: Sequence[str]) -> Change:
    """Return the change that ends the jobs of these PodGroups."""

    def change(rehearsal: Rehearsal) -> None:
        for key in groups:
            rehearsal.end(key)

    return change


class Remedies:
    """The changes that let one job start."""

    def __init__(
        self, mirror: ClusterMirror, job: Job, why: JobExplanation, starts: Starts, *, now: float
    ) -> None:
        self._mirror = mirror
        self._dimensions = mirror.state.dimensions
        self._now = now
        self._job = job
        self._why = why
        self._starts = starts
        self._missing = max(1, job.min_available - job.ready_count)
        self._shapes = list(self._missing_pods())

    def found(self) -> Iterator[str]:
        """Yield the description of each, the smallest of its kind."""
        gate = self._why.gate
        if gate == "gang":
            yield from self._of_owner()
        none = True
        if gate in _OF_NODES:
            for remedy in (*self._of_known_nodes(), *self._of_queue(), *self._of_new_nodes()):
                none = False
                yield remedy
        if none and gate in _OF_QUEUES:
            yield from self._of_both()

    # --- what the job lacks ------------------------------------------------------------------

    def _missing_pods(self) -> Iterator[PodShape]:
        """Yield the pods that are to be placed, those first that request what is short."""
        names = self._mirror.state.dimensions.names
        if not self._job.tasks:
            for shape in pods_of(self._job, self._mirror.state.dimensions):
                requested = parse_list(dict(shape.requests))
                request = {
                    name: counted(name, amount) for name, amount in requested.items() if amount
                }
                yield PodShape(shape.number, request)
            return
        by_class: dict[int, list[Task]] = {}
        pending = self._job.by_status[TaskStatus.PENDING].values()
        for task in sorted(pending, key=lambda task: task.order()):
            by_class.setdefault(task.task_class.id, []).append(task)
        short = {each.resource for each in self._why.shortages}
        found = []
        for tasks in by_class.values():
            of = tasks[0].task_class
            dims = [dim for dim in np.flatnonzero(of.request > 0).tolist() if dim != PODS_DIM]
            request = {names[dim]: int(of.request[dim]) for dim in dims}
            found.append(PodShape(len(tasks), request, dict(of.node_selector)))
        yield from sorted(found, key=lambda shape: -len(short & shape.request.keys()))

    def _lacks(self) -> dict[str, int]:
        """Return what the missing pods request in all, of the resources that are short."""
        short = [each.resource for each in self._why.shortages]
        total: dict[str, int] = dict.fromkeys(short, 0)
        for shape in self._shapes:
            for name in short:
                total[name] += shape.number * shape.request.get(name, 0)
        minimum = {each.resource: each.requested for each in self._why.shortages}
        return {name: max(total[name], minimum[name]) for name in short}

    def _requests(self) -> dict[str, int]:
        """Return what the missing pods request in all, and what is short."""
        total = self._lacks()
        short = frozenset(total)
        for shape in self._shapes:
            for name, amount in shape.request.items():
                if name not in short:
                    total[name] = total.get(name, 0) + shape.number * amount
        return total

    # --- the owner ---------------------------------------------------------------------------

    def _of_owner(self) -> Iterator[str]:
        """Yield what a job's owner has to do; more pods are tried with copies of those there."""
        job = self._job
        roles = job.roles_short_of(*VALID, best_effort=False)
        missing = {role: lacks for role, lacks in sorted(roles.items()) if lacks > 0}
        rest = job.min_available - job.valid_count - sum(missing.values())
        if rest > 0:
            missing[""] = rest
        if missing and self._starts(put_objects(POD, self._copies(missing))):
            yield " and ".join(
                plural(lacks, "more pod") + (f" of task {role}" if role else "")
                for role, lacks in missing.items()
            )
        if job.gated and self._starts(lambda rehearsal: rehearsal.lift_gates(job.key)):
            yield f"no scheduling gate on {plural(job.gated, 'pod')}"

    def _copies(self, missing: Mapping[str, int]) -> list[Pod]:
        """Return pods like the job's own ones, so many of each role."""
        known = {shape.role: shape for shape in reversed(pods_of(self._job, self._dimensions))}
        usual = next(iter(reversed(known.values())))
        made = [
            known.get(role, usual)._replace(role=role, number=number)
            for role, number in missing.items()
        ]
        name = self._mirror.scheduler_names[0]
        return pods(self._job.key, made, now=self._now, scheduler_name=name)

    # --- queues ------------------------------------------------------------------------------

    def _of_queue(self) -> Iterator[str]:
        if self._why.gate not in _OF_QUEUES:
            return
        name = self._job.queue
        known: Queue | None = self._mirror.kept.get(QUEUE.token, name)
        if known is None:
            made = Queue(
                metadata=ObjectMeta(name=name, uid="what-if"),
                status=QueueStatus(state=QueueState.OPEN),
            )
            if self._starts(put_objects(QUEUE, [made])):
                yield f"a queue {name}"
            return
        if known.status.state is not QueueState.OPEN:
            opened = replace(known, status=replace(known.status, state=QueueState.OPEN))
            if self._starts(put_objects(QUEUE, [opened])):
                yield f"queue {name} opened"
        for remedy in self._raised():
            if self._starts(remedy.change):
                yield remedy.words
                return

    def _raised(self) -> Iterator[Remedy]:
        """Yield higher capabilities: of the own queue, of one above it, of all that state one.

        Of each first by what is missing as the queue is now, then by all that the job requests of
        what is short, then by what is missing of other resources, too: a later gate may stop it.
        """
        lacks, requests = self._lacks(), self._requests()
        ancestors = [n for n in self._line() if any(r in self._capability(n) for r in requests)]
        sets = [[name] for name in ancestors] + ([ancestors] if len(ancestors) > 1 else [])
        for names in sets:
            where = f"queue {names[0]}" if len(names) == 1 else f"queues {', '.join(names)}"
            seen = list[dict[str, int]]()
            stated = {
                r: a for r, a in lacks.items() if any(r in self._capability(n) for n in names)
            }
            for more in (self._beyond(names, lacks), stated, self._beyond(names, requests)):
                if more and more not in seen:
                    seen.append(more)
                    changed = [self._higher(name, more) for name in names]
                    yield Remedy(f"{listed(more)} more in {where}", put_objects(QUEUE, changed))

    def _line(self) -> list[str]:
        queues = self._mirror.state.jobs.queues
        return Family(queues).with_ancestors(self._job.queue) if self._job.queue in queues else []

    def _capability(self, name: str) -> Mapping[str, int]:
        return self._mirror.state.jobs.queues[name].capability

    def _beyond(self, names: Iterable[str], lacks: dict[str, int]) -> dict[str, int]:
        """Return by how much a job exceeds what queues have left, and their jobs have not got."""
        state = self._mirror.state
        dimensions, family = state.dimensions, Family(state.jobs.queues)
        more: dict[str, int] = {}
        for name in names:
            below = set(family.below(name))
            allocated = [job.allocated for job in state.jobs.all() if job.queue in below]
            for resource, amount in lacks.items():
                dim, limit = dimensions.find(resource), self._capability(name).get(resource)
                if dim is not None and limit is not None:
                    left = limit - sum(int(each[dim]) for each in allocated)
                    if amount > left:
                        more[resource] = max(more.get(resource, 0), amount - left)
        return more

    def _higher(self, name: str, lacks: Mapping[str, int]) -> Queue:
        queue: Queue = self._mirror.kept.get(QUEUE.token, name)
        stated = self._capability(name)
        more = {
            resource: quantity(resource, stated[resource] + amount)
            for resource, amount in lacks.items()
            if resource in stated
        }
        spec = replace(queue.spec, capability={**queue.spec.capability, **more})
        return replace(queue, spec=spec)

    # --- nodes that there are ----------------------------------------------------------------

    def _of_known_nodes(self) -> Iterator[str]:
        """Yield cordons, labels and taints of nodes with which the job would start."""
        nodes = self._by_room()
        cordoned = [node for node in nodes if node.spec.unschedulable]
        for count in dict.fromkeys((1, len(cordoned))):
            found = self._first_of(
                [cordoned[:count]] if count > 1 else [[node] for node in cordoned[:_NODES]],
                lambda node: replace(node, spec=replace(node.spec, unschedulable=False)),
            )
            if found:
                yield f"{_nodes(found)} uncordoned"
                break
        if self._why.gate != "predicate":
            return
        for shape in self._shapes[:1]:
            missing = [node for node in nodes if not _has(node, shape.selector)]
            if shape.selector and _HOST not in shape.selector and len(missing) == len(nodes):
                found = self._first_of(
                    [[node] for node in nodes[:_NODES]],
                    partial(_labelled, labels=shape.selector),
                )
                if found:
                    labels = ", ".join(f"{k}={v}" for k, v in sorted(shape.selector.items()))
                    yield f"label {labels} on {_nodes(found)}"
        tainted = [node for node in nodes if node.spec.taints and not node.spec.unschedulable]
        found = self._first_of(
            [[node] for node in tainted[:_NODES]],
            lambda node: replace(node, spec=replace(node.spec, taints=())),
        )
        if found:
            taints = ", ".join(f"{taint.key}:{taint.effect}" for taint in found[0].spec.taints)
            yield f"no taint {taints} on {_nodes(found)}"

    def _first_of(
        self, sets: Iterable[Sequence[Node]], changed: Callable[[Node], Node]
    ) -> Sequence[Node]:
        """Return the first set of nodes with which, when they are changed, the job starts."""
        for nodes in sets:
            if nodes and self._starts(put_objects(NODE, [changed(node) for node in nodes])):
                return nodes
        return ()

    def _by_room(self) -> list[Node]:
        """Return the nodes, those with most room for the job's first pods before others."""
        kept, state = self._mirror.kept, self._mirror.state
        ledger, request = state.nodes.ledger, self._shapes[0].request if self._shapes else {}
        dims = [dim for name in request if (dim := state.dimensions.find(name)) is not None]

        def places(node: Node) -> int:
            column = state.nodes.column(node.metadata.name)
            if column < 0:
                return 0
            free = ledger.allocatable[dims, column] - ledger.used[dims, column]
            asked = [request[state.dimensions.names[dim]] for dim in dims]
            return min((int(f) // a for f, a in zip(free, asked, strict=True) if a), default=1)

        found = [node for key in kept.keys(NODE.token) if (node := kept.get(NODE.token, key))]
        return sorted(found, key=lambda node: (-places(node), node.metadata.name))

    # --- more nodes --------------------------------------------------------------------------

    def _of_new_nodes(self) -> Iterator[str]:
        for shape in self._shapes[:_KINDS_OF_PODS]:
            remedy = self._smallest(shape)
            if remedy is not None:
                yield remedy.words
                return
        if len(self._shapes) > 1:
            remedy = self._for_all()
            if self._starts(remedy.change):
                yield remedy.words

    def _smallest(self, shape: PodShape) -> Remedy | None:
        """Return the fewest and smallest nodes for pods of a shape with which the job starts."""
        fewest = min(self._missing, shape.number)
        most = next(
            (
                number
                for number in dict.fromkeys((fewest, shape.number))
                if self._starts(self._nodes_for(shape, number).change)
            ),
            0,
        )
        low = 1
        while low < most:
            middle = (low + most) // 2
            if self._starts(self._nodes_for(shape, middle).change):
                most = middle
            else:
                low = middle + 1
        return self._nodes_for(shape, most) if most else None

    def _nodes_for(self, shape: PodShape, number: int) -> Remedy:
        """Return nodes that take so many pods, none larger than the largest that there is."""
        per_node = max(1, min((self._fit(n, a) for n, a in shape.request.items()), default=number))
        count = math.ceil(number / min(per_node, number))
        each = math.ceil(number / count)
        amounts = {name: amount * each for name, amount in shape.request.items()}
        nodes = [_node(at, amounts, shape.selector) for at in range(min(count, _NODES_MAX))]
        labels = "".join(f", label {key}={value}" for key, value in sorted(shape.selector.items()))
        what = "a node" if count == 1 else f"{count} nodes, each"
        suffix = f" with {listed(amounts)}" if amounts else ""
        return Remedy(f"{what}{suffix}{labels}", put_objects(NODE, nodes))

    def _fit(self, name: str, amount: int) -> int:
        """Return how many pods' requests the largest node has; any number if none has it."""
        dim = self._mirror.state.dimensions.find(name)
        largest = int(self._mirror.state.nodes.ledger.largest[dim]) if dim is not None else 0
        return largest // amount if largest else self._missing

    def _for_all(self) -> Remedy:
        """Return nodes for pods of all shapes."""
        each = [self._nodes_for(shape, shape.number) for shape in self._shapes[:_KINDS_OF_PODS]]
        found = [
            _node(f"{at}-{number}", shape.request, shape.selector)
            for at, shape in enumerate(self._shapes[:_KINDS_OF_PODS])
            for number in range(min(shape.number, _NODES_MAX))
        ]
        return Remedy(" and ".join(remedy.words for remedy in each), put_objects(NODE, found))

    def _of_both(self) -> Iterator[str]:
        """Yield a queue with more and nodes with more, where neither helps alone."""
        raised = list(self._raised())
        if not raised or not self._shapes:
            return
        shape = self._shapes[0]
        nodes = self._nodes_for(shape, min(self._missing, shape.number))
        for remedy in raised:
            if self._starts(_both(remedy.change, nodes.change)):
                yield f"{remedy.words} and {nodes.words}"
                return


def _both(one: Change, other: Change) -> Change:
    def change(rehearsal: Rehearsal) -> None:
        one(rehearsal)
        other(rehearsal)

    return change


def _nodes(nodes: Sequence[Node]) -> str:
    names = [node.metadata.name for node in nodes]
    return f"node {names[0]}" if len(names) == 1 else f"nodes {', '.join(names)}"


def _has(node: Node, labels: Mapping[str, str]) -> bool:
    return all(node.metadata.labels.get(key) == value for key, value in labels.items())


def _labelled(node: Node, labels: Mapping[str, str]) -> Node:
    meta = replace(node.metadata, labels={**node.metadata.labels, **labels})
    return replace(node, metadata=meta)


def _node(number: int | str, amounts: Mapping[str, int], labels: Mapping[str, str]) -> Node:
    name = f"what-if-{number}"
    has = {resource: quantity(resource, amount) for resource, amount in amounts.items()}
    return Node(
        metadata=ObjectMeta(name=name, uid=name, labels={**labels, _HOST: name}),
        spec=NodeSpec(),
        status=NodeStatus(allocatable={"pods": _PODS, **has}),
    )
