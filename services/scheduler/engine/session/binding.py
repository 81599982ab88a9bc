"""A bind: the claims that travel with it, and the room that its node must have by then (CA05).

A node holds what it has, whatever brought a pod there.

Predicates count an evicted pod as gone, and a task that asks for nothing is not asked for room. On
its node an evicted pod stays until it has terminated. So what a session is about to bind is held
against what is idle then; what has no room stays allocated for the rest of the session.

A task that asks for something had room when it was placed. It has lost it only if a task that asks
for nothing was bound since; so nodes are looked at when one of those is about to be.
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
from services.scheduler.engine.resources.dimensions import Dimensions
from services.scheduler.engine.session.changes import Placed
from services.scheduler.engine.tasks.task import Task, TaskClass
from shared.contracts.messages import Bind, ClaimUse, DeviceUse
from shared.model.status import READY, TaskStatus


def claims_of(hooks: Combined, task: Task) -> tuple[ClaimUse, ...]:
    """Return the claims that are to get their volumes."""
    if not task.task_class.claims:
        return ()
    return tuple(ClaimUse(**asdict(use)) for use in hooks.claims(task))


def devices_of(hooks: Combined, task: Task) -> tuple[DeviceUse, ...]:
    """Return the claims for devices, with what they have or are to get."""
    if not task.task_class.device_claims:
        return ()
    return tuple(
        DeviceUse(
            claim=use.claim,
            uid=use.uid,
            allocation=Raw(use.allocation),
            allocated=use.allocated,
            to_prepare=use.to_prepare,
        )
        for use in hooks.devices(task)
    )


def needed(job: Job, binds: Sequence[Bind]) -> int:
    """Return how many of these binds must come about so that the job keeps its minimum.

    0 where no device has to be prepared: then nothing is waited for. Which of the pods fail is not
    known, so that the role with the least surplus counts; subgroups need all of their pods.
    """
    if not any(use.to_prepare for bind in binds for use in bind.devices):
        return 0
    if job.division is not None:
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
    """The idle amounts of nodes on which more was placed than they have."""

    def __init__(self, nodes: Nodes, dimensions: Dimensions, journal: Journal) -> None:
        self._nodes = nodes
        self._dimensions = dimensions
        self._journal = journal
        self._idle: dict[str, IntArray] = {}
        """Node → what is idle there when tasks that are allocated and not bound do not count."""

    def take(self, tasks: Sequence[Task]) -> dict[str, str]:
        """Count allocated tasks in that are about to be bound; return those that have no room.

        By uid, with a message to users. They are counted one after the other: what has no room
        takes none from the next.
        """
        if any(task.task_class.best_effort for task in tasks):
            names = dict.fromkeys(task.node for task in tasks)
            self._look_at(names, dict.fromkeys(task.task_class for task in tasks))
        if not self._idle:
            return {}
        return {task.uid: self._text(task, short) for task in tasks if (short := self._count(task))}

    def _look_at(self, names: Collection[str], classes: Collection[TaskClass]) -> None:
        """Note of each node that has too little of what the classes ask for, what is idle there."""
        ledger = self._nodes.ledger
        known = {name: self._nodes.column(name) for name in names}
        dims = sorted({dim for task_class in classes for dim in task_class.dims})
        grid = np.ix_(dims, list(known.values()))
        lacking: BoolArray = ledger.used[grid] > ledger.allocatable[grid]
        if not lacking.any():
            return
        over = np.nonzero(lacking)[1].tolist()
        listed = list(known)
        fresh = {listed[at] for at in over} - self._idle.keys()
        for name in fresh:
            column = known[name]
            self._idle[name] = ledger.allocatable[:, column] - ledger.used[:, column]
        for task in allocated(self._journal) if fresh else ():
            if task.node in fresh:
                self._idle[task.node] += task.task_class.request

    def _count(self, task: Task) -> list[int]:
        """Count a task in unless its node is short of something; return what is short."""
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


def lacked(tasks: Sequence[Task]) -> str:
    """Return what a state of policy still lacks for one of these tasks, "" if nothing."""
    for task in tasks:
        for state in task.task_class.demands:
            if text := state.lacking(task):
                return text
    return ""


def awaited(task: Task) -> str:
    """Return what a state of policy says that a task's bind waits for, "" if nothing."""
    return next((text for state in task.task_class.demands if (text := state.awaited(task))), "")


def allocated(journal: Journal) -> Iterator[Task]:
    """Yield the tasks that the session has allocated and not bound."""
    for change in journal.since(0):
        if isinstance(change, Placed) and not change.waiting:
            yield from (t for t in change.tasks if t.status is TaskStatus.ALLOCATED)
