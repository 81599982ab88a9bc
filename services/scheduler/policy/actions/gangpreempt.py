"""gangpreempt (A08): starving gangs evict less important jobs of their queue, all or nothing.

Surplus tasks are evicted before whole gangs, and those of the least important job first.
"""

from pumice.plugins import Arguments, EvictionKind, IntArray
from services.scheduler.engine.jobs.holders import MAY_GO
from services.scheduler.engine.jobs.records import Job
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


def execute(session: Session, arguments: Arguments) -> None:
    """Evict for starving jobs, best queue and job first.

    ⚠ Jobs of equal priority never evict from each other, even if plugins allow it.
    """
    round_ = Round(
        session,
        EvictionKind.GANG_PREEMPT,
        "gangpreempt",
        GangOptions.of(session, arguments),
        PreemptableTasks(session, MAY_GO),
    )
    orders = Orders(session)
    hints = EvictionHints(session, "gangpreempt")
    for queue, queue_jobs in turns(session, orders, starving_jobs(session), hints):
        jobs = orders.jobs(queue_jobs)
        while jobs:
            job = jobs.pop()

            def below(other: Job, job: Job = job) -> bool:
                return other.queue == job.queue and other.priority < job.priority

            def ranked(found: list[Bundle], need: IntArray) -> list[Bundle]:
                keys = {bundle.job.key: session.hooks.job_order(bundle.job) for bundle in found}
                places = ranks(keys, reverse=True)
                return sorted(found, key=lambda b: (b.whole, places[b.job.key], *by_worth(b, need)))

            with session.isolate("gangpreempt", job):
                GangEviction(round_, queue, job, from_=below, ranked=ranked).run()
