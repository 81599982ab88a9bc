"""gangreclaim (A09): starving gangs of queues below what they deserve evict from other queues.

Surplus tasks are evicted before whole gangs; then by VictimQueueOrder, and within a queue by the
most gained room per loss.
"""

from pumice.plugins import Arguments, EvictionKind, IntArray
from services.scheduler.engine.jobs.records import Job, Queue
from services.scheduler.engine.session.ordering import Orders
from services.scheduler.engine.session.session import Session
from services.scheduler.policy.actions.evictions import starving_jobs, turns
from services.scheduler.policy.actions.gang_evictions import (
    GangEviction,
    GangOptions,
    PreemptableTasks,
    Round,
    by_worth,
    ranks,
)
from services.scheduler.policy.bundles import Bundle
from services.scheduler.policy.eviction_hints import EvictionHints
from shared.model.status import TaskStatus


def execute(session: Session, arguments: Arguments) -> None:
    """Evict from other queues for starving jobs, best queue and job first."""
    round_ = Round(
        session,
        EvictionKind.GANG_RECLAIM,
        "gangreclaim",
        GangOptions.of(session, arguments),
        PreemptableTasks(session, (TaskStatus.RUNNING,)),
    )
    orders = Orders(session)
    hints = EvictionHints(session, "gangreclaim")
    for queue, queue_jobs in turns(session, orders, starving_jobs(session), hints):
        if session.hooks.overused(queue):
            continue
        jobs = orders.jobs(queue_jobs)
        while jobs:
            job = jobs.pop()
            with session.isolate("gangreclaim", job):
                _reclaim(round_, queue, job)


def _reclaim(round_: Round, queue: Queue, job: Job) -> None:
    session = round_.session

    def elsewhere(other: Job) -> bool:
        owner = session.queue(other.queue)
        return owner is not None and owner is not queue and owner.reclaimable

    def ranked(found: list[Bundle], need: IntArray) -> list[Bundle]:
        places = _queue_ranks(session, {bundle.job.queue for bundle in found}, queue)
        return sorted(found, key=lambda b: (b.whole, places[b.job.queue], *by_worth(b, need)))

    eviction = GangEviction(round_, queue, job, from_=elsewhere, ranked=ranked)
    if eviction.pending and session.hooks.preemptive(queue, eviction.pending):
        eviction.run()


def _queue_ranks(session: Session, names: set[str], home: Queue) -> dict[str, int]:
    """Return the rank of victims' queues: by VictimQueueOrder, then against the order of queues."""
    queues = [queue for name in sorted(names) if (queue := session.queue(name)) is not None]
    last = ranks({queue.name: session.hooks.queue_order(queue) for queue in queues}, reverse=True)
    order = session.hooks.victim_queue_order
    return ranks({q.name: (*order(q, home), last[q.name]) for q in queues})
