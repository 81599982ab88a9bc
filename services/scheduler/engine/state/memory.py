"""The scheduler's memory: assumptions, last statuses and orders that no fact says.

A cycle's input is the facts and this. Dumped together they make the same decisions elsewhere
(`services.scheduler.dump`); in a new cluster state the order of columns and resources is laid out
before the facts are folded, everything else is put in after them.
"""

from collections.abc import Mapping

from msgspec import Struct, field

from pumice.plugins import Condition
from services.scheduler.engine.jobs.records import GroupStatus
from services.scheduler.engine.nodes.usage import Usage
from services.scheduler.engine.state.assumptions import Assumption
from services.scheduler.engine.state.cluster_state import ClusterState
from services.scheduler.engine.state.refusals import Refusal
from shared.api.core import Node
from shared.model.status import TaskStatus

_GAP = "\0"
"""Name of the stand-in for a column that no node has; no object can be called so."""


class SchedulerMemory(Struct, frozen=True, kw_only=True):
    """Everything but the facts."""

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
    said: tuple[tuple[str, Condition | None], ...] = ()
    """Uid of each pending pod of ours and PodScheduled as it was last wanted."""
    allocated: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Queue → status.allocated as it was last wanted."""
    pending: Mapping[str, int] = field(default_factory=dict)
    """Queue → status.pending, likewise."""
    unjudged: tuple[str, ...] = ()
    """PodGroups that changed since their status was last computed."""
    cards: tuple[tuple[str, str, tuple[int, ...]], ...] = ()
    """Pod uid, node and GPU cards that were chosen for it and that it does not show yet."""
    shares: tuple[tuple[str, str, str], ...] = ()
    """Pod uid, node and shares of virtual GPUs, likewise, as its annotation will say them."""
    cpus: tuple[tuple[str, str, tuple[int, ...]], ...] = ()
    """Pod uid, node and CPUs that are its own and that no Numatopology shows yet."""
    refusals: tuple[Refusal, ...] = ()
    """Binds and evictions that could not be carried out."""
    promised: Mapping[str, str] = field(default_factory=dict)
    """Claim → volume that it is to be bound to."""
    usage: Mapping[str, Usage] = field(default_factory=dict)
    """Node → its measured load."""
    memory: Mapping[str, float] = field(default_factory=dict)
    """When plugins last did what they do from time to time."""


def memory_of(cluster_state: ClusterState) -> SchedulerMemory:
    """Return what a cluster state goes by, between sessions."""
    names = cluster_state.nodes.attributes.names
    columns = (names[at] for at in range(cluster_state.nodes.ledger.size))
    jobs = cluster_state.jobs
    jobs.refresh()
    return SchedulerMemory(
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
        said=tuple(
            (task.uid, task.last_condition)
            for job in jobs.unsettled()
            for task in job.by_status[TaskStatus.PENDING].values()
            if task.ours
        ),
        allocated={name: queue.last_allocated for name, queue in jobs.queues.items()},
        pending={name: queue.last_pending for name, queue in jobs.queues.items()},
        unjudged=tuple(jobs.status_due),
        cards=cluster_state.nodes.gpus.chosen(),
        shares=cluster_state.nodes.vgpus.chosen(),
        cpus=cluster_state.nodes.numa.chosen(),
        refusals=cluster_state.refusals.items(),
        promised=dict(cluster_state.nodes.volumes.promised),
        usage=cluster_state.usage.samples(),
        memory=dict(cluster_state.memory),
    )


def lay_out(cluster_state: ClusterState, memory: SchedulerMemory) -> None:
    """Give an empty cluster state the order of columns and resources, before any fact."""
    for name in memory.resources:
        cluster_state.dimensions.index(name)
    for at, name in enumerate(memory.columns):
        cluster_state.nodes.put(name or f"{_GAP}{at}", Node())


def restore(cluster_state: ClusterState, memory: SchedulerMemory) -> None:
    """Put into a cluster state that was laid out, and has all facts, what it went by."""
    for at, name in enumerate(memory.columns):
        if not name:
            cluster_state.nodes.remove(f"{_GAP}{at}")
    _restore_pods(cluster_state, memory)
    for key, group_uid, status in memory.decided:
        cluster_state.jobs.adopt(key, group_uid, status)
    for name, allocated in memory.allocated.items():
        queue = cluster_state.jobs.queues.get(name)
        if queue is not None:
            queue.last_allocated = allocated
            queue.last_pending = memory.pending.get(name, 0)
    cluster_state.nodes.volumes.promised.update(memory.promised)
    for node, usage in memory.usage.items():
        cluster_state.usage.put(node, usage)
    cluster_state.memory.update(memory.memory)
    cluster_state.refusals.restore(memory.refusals)
    cluster_state.jobs.compute_only(memory.unjudged)


def _restore_pods(cluster_state: ClusterState, memory: SchedulerMemory) -> None:
    for uid, node, cards in memory.cards:
        cluster_state.nodes.gpus.choose_again(uid, node, cards)
    for uid, node, shown in memory.shares:
        cluster_state.nodes.vgpus.choose_again(uid, node, shown)
    for uid, node, cpus in memory.cpus:
        cluster_state.nodes.numa.choose_again(uid, node, cpus)
    for uid, assumption in memory.assumptions:
        cluster_state.add_assumption(uid, assumption)
    for uid, _, _ in memory.cpus:
        task = cluster_state.task(uid)
        if task is not None:
            cluster_state.nodes.numa.hold(task)
    for uid, intent, node in memory.nominations:
        cluster_state.assume_nomination(intent, uid, node)
    for uid, condition in memory.said:
        task = cluster_state.task(uid)
        if task is not None:
            task.last_condition = condition
