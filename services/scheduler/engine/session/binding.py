"""Binds: the claims that they carry, and a last check that their nodes have room (CA05).

Predicates count an evicted pod as gone, though it stays on its node until it has terminated, and
they do not check resources for a task that requests nothing. So tasks that are about to be bound
are compared with what is idle on their nodes at that moment. A task without room stays allocated
for the rest of the session.

A task with requests had room when it was placed. It can have lost it only to a best-effort task
that was bound since: so nodes are checked when one of those is about to be bound.
"""

from collections.abc import Collection, Iterator, Sequence

import numpy as np
from msgspec import Raw
from msgspec.structs import asdict

from pumice.plugins import BoolArray, IntArray
from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.journal import Journal
from services.scheduler.engine.nodes.nodes import Nodes
from services.scheduler.engine.placement.hooks import Combined
from services.scheduler.engine.placement.rows import ports_clash
from services.scheduler.engine.resources.dimensions import Dimensions
from services.scheduler.engine.session.changes import Placed
from services.scheduler.engine.tasks.task import Task, TaskClass
from shared.contracts.messages import Bind, ClaimUse, DeviceUse
from shared.model.status import READY, TaskStatus


def claims_of(hooks: Combined, task: Task) -> tuple[ClaimUse, ...]:
    """Return the PersistentVolumeClaims that the binder has to bind to volumes for a task."""
    if not task.task_class.claims:
        return ()
    return tuple(ClaimUse(**asdict(use)) for use in hooks.claims(task))


def devices_of(hooks: Combined, job: Job, task: Task) -> tuple[DeviceUse, ...]:
    """Return the ResourceClaims of a task, with their allocations."""
    if not task.task_class.demands:
        return ()
    of_group = job.native.claims if job.native is not None else ()
    return tuple(
        DeviceUse(
            claim=use.claim,
            uid=use.uid,
            allocation=Raw(use.allocation),
            allocated=use.allocated,
            to_prepare=use.to_prepare,
            group=job.name if use.claim in of_group else "",
            group_uid=job.uid if use.claim in of_group else "",
            requests=use.requests,
            mappings=use.mappings,
        )
        for use in hooks.devices(task)
    )


def needed(job: Job, binds: Sequence[Bind]) -> int:
    """Return how many of these binds have to succeed so that the job has its minimum.

    0 where no device has to be prepared: then the binder does not wait. Which of the pods will fail
    is not known, so that the role with the least surplus decides; subgroups need all of their pods.
    """
    if not any(use.to_prepare for bind in binds for use in bind.devices):
        return 0
    if job.sub_jobs is not None:
        return len(binds)
    surplus = job.ready_count + job.pending_best_effort - job.min_available
    if job.role_minima_count:
        tasks = (job.tasks.get(bind.uid) for bind in binds)
        for role in {task.role for task in tasks if task is not None}:
            least = job.min_task_member.get(role)
            if least is not None:
                there = job.role_count(role, *READY) + job.role_best_effort(role)
                surplus = min(surplus, there - least)
    return max(0, len(binds) - max(0, surplus))


class Room:
    """Idle amounts of overcommitted nodes, for the check before a bind."""

    def __init__(self, nodes: Nodes, dimensions: Dimensions, journal: Journal) -> None:
        self._nodes = nodes
        self._dimensions = dimensions
        self._journal = journal
        self._idle: dict[str, IntArray] = {}
        """Node → its idle amounts, without counting tasks that are allocated and not yet bound."""

    def take(self, tasks: Sequence[Task]) -> dict[str, str]:
        """Add tasks that are about to be bound; return those without room.

        The result maps uids to messages for users. Tasks are counted one after the other: one
        without room takes none from the next.
        """
        if any(task.task_class.best_effort for task in tasks):
            names = dict.fromkeys(task.node for task in tasks)
            self._note_overfull(names, dict.fromkeys(task.task_class for task in tasks))
        if not self._idle:
            return {}
        return {task.uid: self._text(task, short) for task in tasks if (short := self._count(task))}

    def _note_overfull(self, names: Collection[str], classes: Collection[TaskClass]) -> None:
        """Note the idle amounts of nodes that have too little of what the classes request."""
        ledger = self._nodes.ledger
        known = {name: self._nodes.column(name) for name in names}
        dims = sorted({dim for task_class in classes for dim in task_class.dims})
        grid = np.ix_(dims, list(known.values()))
        overfull: BoolArray = ledger.used[grid] > ledger.allocatable[grid]
        if not overfull.any():
            return
        over = np.nonzero(overfull)[1].tolist()
        listed = list(known)
        fresh = {listed[at] for at in over} - self._idle.keys()
        for name in fresh:
            column = known[name]
            self._idle[name] = ledger.allocatable[:, column] - ledger.used[:, column]
        for task in allocated(self._journal) if fresh else ():
            if task.node in fresh:
                self._idle[task.node] += task.task_class.request

    def _count(self, task: Task) -> list[int]:
        """Add a task if its node has room; else return the resources that are short."""
        left, task_class = self._idle.get(task.node), task.task_class
        if left is None:
            return []
        short = [dim for dim in task_class.dims if task_class.request[dim] > left[dim]]
        if not short:
            left -= task_class.request
        return short

    def _text(self, task: Task, short: Sequence[int]) -> str:
        names = ", ".join(self._dimensions.names[dim] for dim in short)
        return (
            f"node {task.node} has too little {names} left for {task.name}, "
            "pods that terminate included"
        )


def lacked(tasks: Sequence[Task], nodes: Nodes) -> str:
    """Return why one of these tasks cannot be bound for another reason than amounts, "" if none.

    A pod that this session evicted has a host port that the task asks for on its node, or a state
    of policy holds the task back.
    """
    for task in tasks:
        if task.task_class.host_ports and (holder := _port_holder(task, nodes)):
            holds = "terminates and still has a host port of"
            return f"{holder} {holds} {task.name} on {task.node}"
        for state in task.task_class.demands:
            if text := state.lacking(task):
                return text
    return ""


def _port_holder(task: Task, nodes: Nodes) -> str:
    """Return the evicted pod on a node that still has a host port of a task, "" if none has.

    The name of a pod in another namespace is not given.
    """
    ports = task.task_class.host_ports
    for other in nodes.tasks_on(task.node):
        leaves = other.status is TaskStatus.RELEASING
        if leaves and ports_clash(ports, other.task_class.host_ports):
            same = other.key.partition("/")[0] == task.key.partition("/")[0]
            return f"pod {other.key}" if same else "a pod of another namespace"
    return ""


def awaited(task: Task) -> str:
    """Return what the bind of a task waits for, by a policy state; "" if nothing."""
    return next((text for state in task.task_class.demands if (text := state.awaited(task))), "")


def allocated(journal: Journal) -> Iterator[Task]:
    """Yield the tasks that the session has allocated and not yet bound."""
    for change in journal.since(0):
        if isinstance(change, Placed) and not change.waiting:
            yield from (t for t in change.tasks if t.status is TaskStatus.ALLOCATED)
