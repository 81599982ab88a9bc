"""Changes that would open the gate that stops a job, each tried before it is named.

What could help follows from the gate and from what it found short. A rehearsal with the change then
shows whether the scheduler's next cycle lets the job pass that gate, beside all others that wait
for the same, and not to one behind it where it never fits. What only the job's owner can do needs
no trial.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.plan import Explanation, Plan
from services.scheduler.engine.resources.dimensions import PODS_DIM, quantity
from services.scheduler.engine.session.session import Session
from services.scheduler.engine.status.messages import NEVER
from services.scheduler.engine.tasks.task import Task
from services.visibility.answers.cluster_mirror import ClusterMirror
from services.visibility.answers.queues import Family
from services.visibility.answers.rehearsal import Rehearsal
from services.visibility.answers.survey import Policy
from services.visibility.answers.wording import listed
from shared.api.core import Node, NodeSpec, NodeStatus
from shared.api.kinds import NODE, QUEUE, Kind
from shared.api.meta import ObjectMeta
from shared.api.scheduling import Queue, QueueState, QueueStatus
from shared.model.status import VALID, TaskStatus

TRIALS_MAX = 8
"""Rehearsals for one answer: each takes as long as a cycle."""
_ENDS = (1, 3, 10)
_PODS = "110"
_HOST = "kubernetes.io/hostname"

Change = Callable[[Rehearsal], None]


class BlockedJob(Struct, frozen=True, kw_only=True):
    """A job, and the gate that stops it."""

    job: str
    why: Explanation
    order: Sequence[str]
    """Gates in the order in which the job meets them."""
    holders: Sequence[str] = ()
    """PodGroups of the jobs that hold what is short, those that hold most first."""


def helps(
    mirror: ClusterMirror,
    policy: Policy,
    stop: BlockedJob,
    *,
    now: float,
    out_of_time: Callable[[], bool],
) -> tuple[str, ...]:
    """Return the changes of which each lets the job pass its gate, and may let it start."""
    job = mirror.state.jobs.get(stop.job)
    if job is None:
        return ()
    found = list(_of_owner(job, stop.why))
    trials = _Candidates(mirror, job, stop.why, stop.holders).all()
    for _, (text, change) in zip(range(TRIALS_MAX), trials, strict=False):
        if out_of_time():
            break
        if _passes_gate(mirror, policy, stop, change, now=now):
            found.append(text)
    return tuple(dict.fromkeys(found))


def _passes_gate(
    mirror: ClusterMirror, policy: Policy, stop: BlockedJob, change: Change, *, now: float
) -> bool:
    """Tell whether a job passes its gate in a cycle after a change, and may pass the others."""
    stopped: Explanation | None = None

    def look(_: Session, plan: Plan) -> None:
        nonlocal stopped
        stopped = next((why for why in plan.explanations if why.job == stop.job), None)

    with Rehearsal(mirror, policy, now=now) as rehearsal:
        change(rehearsal)
        rehearsal.cycle(stop.job, look)
    order = list(stop.order)
    if stopped is None or stopped.gate not in order:
        return True
    return order.index(stopped.gate) > order.index(stop.why.gate) and NEVER not in stopped.details


def _of_owner(job: Job, why: Explanation) -> Iterator[str]:
    """Yield what a job's owner has to do."""
    if why.gate != "gang":
        return
    missing = job.min_available - job.valid_count
    if missing > 0:
        yield f"{_count(missing, 'more pod')}"
    roles = job.roles_short_of(*VALID, best_effort=False)
    for role, lacks in sorted(roles.items()):
        yield f"{_count(lacks, 'more pod')} of task {role}"
    if job.gated:
        yield f"no scheduling gate on {_count(job.gated, 'pod')}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


class _Candidates:
    """The changes that could open a gate, most likely first."""

    def __init__(
        self, mirror: ClusterMirror, job: Job, why: Explanation, holders: Sequence[str]
    ) -> None:
        self._mirror = mirror
        self._job = job
        self._why = why
        self._holders = holders
        self._missing = max(1, job.min_available - job.ready_count)

    def all(self) -> Iterator[tuple[str, Change]]:
        """Yield each with its words."""
        if self._why.gate in {"enqueue", "queue", "quota"}:
            yield from self._queues()
        if self._why.gate in {"enqueue", "queue", "quota", "predicate", "topology"}:
            yield from self._nodes()
            yield from self._ends()

    # --- queues ------------------------------------------------------------------------------

    def _queues(self) -> Iterator[tuple[str, Change]]:
        name = self._job.queue
        known: Queue | None = self._mirror.kept.get(QUEUE.token, name)
        if known is None:
            made = Queue(
                metadata=ObjectMeta(name=name, uid="what-if"),
                status=QueueStatus(state=QueueState.OPEN),
            )
            yield f"a queue {name}", _put_objects(QUEUE, [made])
            return
        if known.status.state is not QueueState.OPEN:
            opened = replace(known, status=replace(known.status, state=QueueState.OPEN))
            yield f"queue {name} opened", _put_objects(QUEUE, [opened])
        yield from self._raised(self._lacks())

    def _raised(self, lacks: dict[str, int]) -> Iterator[tuple[str, Change]]:
        """Yield higher capabilities: of the own queue, of one above it, of all that state one."""
        line = Family(self._mirror.state.jobs.queues).line(self._job.queue)
        stating = [name for name in line if self._states(name, lacks)]
        sets = [[name] for name in stating] + ([stating] if len(stating) > 1 else [])
        for names in sets:
            changed = [self._higher(name, lacks) for name in names]
            where = f"queue {names[0]}" if len(names) == 1 else f"queues {', '.join(names)}"
            yield f"{listed(lacks)} more in {where}", _put_objects(QUEUE, changed)

    def _states(self, name: str, lacks: dict[str, int]) -> bool:
        capability = self._mirror.state.jobs.queues[name].capability
        return any(resource in capability for resource in lacks)

    def _higher(self, name: str, lacks: dict[str, int]) -> Queue:
        queue: Queue = self._mirror.kept.get(QUEUE.token, name)
        stated = self._mirror.state.jobs.queues[name].capability
        more = {
            resource: quantity(resource, stated[resource] + amount)
            for resource, amount in lacks.items()
            if resource in stated
        }
        spec = replace(queue.spec, capability={**queue.spec.capability, **more})
        return replace(queue, spec=spec)

    def _lacks(self) -> dict[str, int]:
        """Return what is short by resource: of the job's minimum, or of all pods that it lacks."""
        times = self._missing if self._why.gate == "quota" else 1
        return {
            short.resource: lacks
            for short in self._why.shortages
            if (lacks := short.requested * times - short.largest_free) > 0
        }

    # --- nodes -------------------------------------------------------------------------------

    def _nodes(self) -> Iterator[tuple[str, Change]]:
        if self._why.gate == "enqueue":
            if lacks := self._lacks():
                node = _node(0, {name: quantity(name, most) for name, most in lacks.items()})
                yield f"a node with {listed(lacks)}", _put_objects(NODE, [node])
            return
        task = self._first_pending()
        if task is not None:
            yield self._for_pods(task)

    def _first_pending(self) -> Task | None:
        pending = self._job.by_status[TaskStatus.PENDING].values()
        return min(pending, key=lambda task: task.order(), default=None)

    def _for_pods(self, task: Task) -> tuple[str, Change]:
        """Return nodes that take the pods which the job lacks, like one that is open to them."""
        state = self._mirror.state
        request = task.task_class.request
        largest = state.nodes.ledger.largest
        asked = [dim for dim in np.flatnonzero(request > 0).tolist() if dim != PODS_DIM]
        per_node = min((int(largest[dim] // request[dim]) for dim in asked), default=1)
        count = math.ceil(self._missing / max(1, per_node))
        each = math.ceil(self._missing / count)
        names = state.dimensions.names
        amounts = {names[dim]: int(request[dim]) * each for dim in asked}
        selector = dict(task.task_class.node_selector)
        quantities = {name: quantity(name, most) for name, most in amounts.items()}
        nodes = [_node(number, quantities, selector) for number in range(count)]
        labels = "".join(f", label {key}={value}" for key, value in sorted(selector.items()))
        what = "a node" if count == 1 else f"{count} nodes, each"
        words = f" with {listed(amounts)}" if amounts else ""
        return f"{what}{words}{labels}", _put_objects(NODE, nodes)

    # --- the end of others -------------------------------------------------------------------

    def _ends(self) -> Iterator[tuple[str, Change]]:
        """Yield the end of the jobs that hold most; which they are, the answer says elsewhere."""
        tried = 0
        for count in _ENDS:
            gone = self._holders[:count]
            if len(gone) <= tried:
                return
            tried = len(gone)
            what = "job that holds" if tried == 1 else f"{tried} jobs that hold"
            yield f"the end of the {what} most of it", _end(gone)


def _put_objects(kind: Kind, objects: Sequence[Any]) -> Change:
    def change(rehearsal: Rehearsal) -> None:
        for obj in objects:
            rehearsal.put(kind, obj)

    return change


def _end(keys: Sequence[str]) -> Change:
    def change(rehearsal: Rehearsal) -> None:
        for key in keys:
            rehearsal.end(key)

    return change


def _node(number: int, amounts: dict[str, str], labels: dict[str, str] | None = None) -> Node:
    name = f"what-if-{number}"
    return Node(
        metadata=ObjectMeta(name=name, uid=name, labels={**(labels or {}), _HOST: name}),
        spec=NodeSpec(),
        status=NodeStatus(allocatable={"pods": _PODS, **amounts}),
    )
