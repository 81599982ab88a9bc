"""The scheduler's memory: assumptions, last statuses and orders that are not in facts.

A cycle's input is the facts and this. Dumped together they make the same decisions elsewhere
(`services.scheduler.dump`); in a new cluster state the order of columns and resources and what
policy remembers are laid out before the facts are folded, everything else is put in after them.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, convert, field, to_builtins

from pumice.plugins import Condition
from services.scheduler.engine.jobs.records import GroupStatus
from services.scheduler.engine.state.assumptions import Assumption
from services.scheduler.engine.state.cluster_state import ClusterState
from services.scheduler.engine.state.refusals import PodBackoff
from shared.api.core import Node
from shared.model.status import TaskStatus

_GAP = "\0"
"""Placeholder name of a column without node; no object can have it."""


SchedulerMemory = Mapping[str, Any]
"""Everything but the facts: the fields of `_OfEngine`, and each policy state's under its name."""


class _OfEngine(Struct, frozen=True, kw_only=True):
    """The engine's own memory."""

    resources: tuple[str, ...] = ()
    """Resources in the order of amounts arrays."""
    columns: tuple[str, ...] = ()
    """Node of each column of the ledger; empty for one that is free."""
    assumptions: tuple[tuple[str, Assumption], ...] = ()
    """Pod uid and what is assumed of it, oldest first."""
    nominations: tuple[tuple[str, str, str], ...] = ()
    """Pod uid, intent and node."""
    decided: tuple[tuple[str, str, GroupStatus], ...] = ()
    """PodGroup, uid and the status that was published and not seen yet."""
    reported: tuple[tuple[str, Condition | None], ...] = ()
    """Uid of each pending pod of ours and PodScheduled as it was last desired."""
    allocated: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Queue → status.allocated as it was last desired."""
    pending: Mapping[str, int] = field(default_factory=dict)
    """Queue → status.pending, likewise."""
    unjudged: tuple[str, ...] = ()
    """PodGroups that changed since their status was last computed."""
    refusals: tuple[PodBackoff, ...] = ()
    """Binds and evictions that failed."""
    leadership_term: str | None = None
    """In which it acted."""
    memory: Mapping[str, float] = field(default_factory=dict)
    """Unix times of the plugins' last periodic runs."""


def memory_of(cluster_state: ClusterState) -> SchedulerMemory:
    """Return what a cluster state remembers between sessions."""
    names = cluster_state.nodes.attributes.names
    columns = (names[at] for at in range(cluster_state.nodes.ledger.size))
    jobs = cluster_state.jobs
    jobs.refresh()
    of_engine = _OfEngine(
        resources=tuple(cluster_state.dimensions.names),
        columns=tuple(
            name if cluster_state.nodes.column(name) == at else ""
            for at, name in enumerate(columns)
        ),
        assumptions=cluster_state.assumptions.items(),
        nominations=cluster_state.nominations.items(),
        decided=tuple(
            (job.key, job.uid, job.decided) for job in jobs.all() if job.decided is not None
        ),
        reported=tuple(
            (task.uid, task.last_condition)
            for job in jobs.active()
            for task in job.by_status[TaskStatus.PENDING].values()
            if task.ours
        ),
        allocated={name: queue.last_allocated for name, queue in jobs.queues.items()},
        pending={name: queue.last_pending for name, queue in jobs.queues.items()},
        unjudged=tuple(jobs.status_due),
        refusals=cluster_state.refusals.items(),
        leadership_term=cluster_state.shards.leadership_term,
        memory=dict(cluster_state.memory),
    )
    of_policy = {state.name: state.dump() for state in cluster_state.states if state.name}
    found: dict[str, Any] = {**to_builtins(of_engine), **to_builtins(of_policy)}
    return found


def prepare_replay(cluster_state: ClusterState, memory: SchedulerMemory) -> None:
    """Prepare an empty cluster state for the facts of a recorded cycle.

    Raises `msgspec.ValidationError` for a memory that no cluster state has had.
    """
    of_engine = convert(memory, _OfEngine)
    for name in of_engine.resources:
        cluster_state.dimensions.index(name)
    for at, name in enumerate(of_engine.columns):
        cluster_state.nodes.put(name or f"{_GAP}{at}", Node())
    for state in cluster_state.states:
        if state.name in memory:
            state.restore(memory[state.name])


def restore(cluster_state: ClusterState, memory: SchedulerMemory) -> None:
    """Restore the memory of a cluster state that was laid out and has all facts."""
    of_engine = convert(memory, _OfEngine)
    for at, name in enumerate(of_engine.columns):
        if not name:
            cluster_state.nodes.remove(f"{_GAP}{at}")
    _restore_pods(cluster_state, of_engine)
    for key, group_uid, status in of_engine.decided:
        cluster_state.jobs.assume_status(key, group_uid, status)
    for name, allocated in of_engine.allocated.items():
        queue = cluster_state.jobs.queues.get(name)
        if queue is not None:
            queue.last_allocated = allocated
            queue.last_pending = of_engine.pending.get(name, 0)
    cluster_state.memory.update(of_engine.memory)
    cluster_state.shards.leadership_term = of_engine.leadership_term
    cluster_state.refusals.restore(of_engine.refusals)
    cluster_state.jobs.compute_only(of_engine.unjudged)


def _restore_pods(cluster_state: ClusterState, memory: _OfEngine) -> None:
    for uid, assumption in memory.assumptions:
        cluster_state.add_assumption(uid, assumption)
    for uid, intent, node in memory.nominations:
        cluster_state.assume_nomination(intent, uid, node)
    for uid, condition in memory.reported:
        task = cluster_state.task(uid)
        if task is not None:
            task.last_condition = condition
