"""What a replica goes by that no fact says: assumptions, own words, and the order it met things in.

A cycle's input is the facts and this. Dumped together they make the same decisions elsewhere
(`services.scheduler.dump`); in a new replica the order of columns and resources is laid out before
the facts are folded, everything else is put in after them.
"""

from collections.abc import Mapping

from msgspec import Struct, field

from pumice.plugins import Condition
from services.scheduler.engine.assumed import Assumption
from services.scheduler.engine.records import GroupStatus
from services.scheduler.engine.refusals import Refusal
from services.scheduler.engine.replica import Replica
from services.scheduler.engine.usage import Usage
from shared.api.core import Node
from shared.model.status import TaskStatus

_GAP = "\0"
"""Name of the stand-in for a column that no node has; no object can be called so."""


class Beliefs(Struct, frozen=True, kw_only=True):
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


def beliefs_of(replica: Replica) -> Beliefs:
    """Return what a replica goes by, between sessions."""
    names = replica.nodes.attributes.names
    columns = (names[at] for at in range(replica.nodes.ledger.size))
    jobs = replica.jobs
    jobs.refresh()
    return Beliefs(
        resources=tuple(replica.dimensions.names),
        columns=tuple(
            name if replica.nodes.column(name) == at else "" for at, name in enumerate(columns)
        ),
        assumptions=replica.assumptions.items(),
        nominations=replica.nominations.items(),
        decided=tuple(
            (job.key, job.uid, job.decided) for job in jobs.all() if job.decided is not None
        ),
        said=tuple(
            (task.uid, task.said)
            for job in jobs.unsettled()
            for task in job.by_status[TaskStatus.PENDING].values()
            if task.ours
        ),
        allocated={name: queue.said_allocated for name, queue in jobs.queues.items()},
        pending={name: queue.said_pending for name, queue in jobs.queues.items()},
        unjudged=tuple(jobs.unjudged),
        cards=replica.nodes.gpus.chosen(),
        shares=replica.nodes.vgpus.chosen(),
        cpus=replica.nodes.numa.chosen(),
        refusals=replica.refusals.items(),
        promised=dict(replica.nodes.volumes.promised),
        usage=replica.usage.samples(),
        memory=dict(replica.memory),
    )


def lay_out(replica: Replica, beliefs: Beliefs) -> None:
    """Give an empty replica the order of columns and resources, before any fact."""
    for name in beliefs.resources:
        replica.dimensions.index(name)
    for at, name in enumerate(beliefs.columns):
        replica.nodes.put(name or f"{_GAP}{at}", Node())


def believe(replica: Replica, beliefs: Beliefs) -> None:
    """Put into a replica that was laid out, and has all facts, what it went by."""
    for at, name in enumerate(beliefs.columns):
        if not name:
            replica.nodes.remove(f"{_GAP}{at}")
    _believe_of_pods(replica, beliefs)
    for key, group_uid, status in beliefs.decided:
        replica.jobs.adopt(key, group_uid, status)
    for name, allocated in beliefs.allocated.items():
        queue = replica.jobs.queues.get(name)
        if queue is not None:
            queue.said_allocated = allocated
            queue.said_pending = beliefs.pending.get(name, 0)
    replica.nodes.volumes.promised.update(beliefs.promised)
    for node, usage in beliefs.usage.items():
        replica.usage.put(node, usage)
    replica.memory.update(beliefs.memory)
    replica.refusals.restore(beliefs.refusals)
    replica.jobs.judge_later(beliefs.unjudged)


def _believe_of_pods(replica: Replica, beliefs: Beliefs) -> None:
    for uid, node, cards in beliefs.cards:
        replica.nodes.gpus.choose_again(uid, node, cards)
    for uid, node, shown in beliefs.shares:
        replica.nodes.vgpus.choose_again(uid, node, shown)
    for uid, node, cpus in beliefs.cpus:
        replica.nodes.numa.choose_again(uid, node, cpus)
    for uid, assumption in beliefs.assumptions:
        replica.believe(uid, assumption)
    for uid, _, _ in beliefs.cpus:
        task = replica.task(uid)
        if task is not None:
            replica.nodes.numa.hold(task)
    for uid, intent, node in beliefs.nominations:
        replica.assume_nomination(intent, uid, node)
    for uid, condition in beliefs.said:
        task = replica.task(uid)
        if task is not None:
            task.said = condition
